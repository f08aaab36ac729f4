"""``msmodeling <command>``: find the command, run it, and turn errors into one sentence and an exit status."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from tensor_cast.command_line import CommandParser, UsageError, with_flags
from tensor_cast.errors import ModelingError, did_you_mean

PROGRAM = "msmodeling"


class _VersionAction(argparse.Action):
    """Look the version up only when asked: the metadata takes 20 ms to import."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version(PROGRAM)
        except PackageNotFoundError:
            number = "of a checkout that is not installed (pip install -e .)"
        print(f"{PROGRAM} {number}")
        parser.exit()


class Command(NamedTuple):
    """A command's module, imported only when the command is asked for, and its line in the help."""

    module: str
    summary: str


COMMANDS = {
    "text-generate": Command("cli.inference.text_generate", "time and memory of a language model's prefill or decode"),
    "video-generate": Command("cli.inference.video_generate", "time and memory of generating a video"),
    "image-generate": Command("cli.inference.image_generate", "time and memory of generating an image"),
    "models": Command("cli.models", "list the known models, or show what follows from one's config"),
    "devices": Command("cli.devices", "list the devices, or show every figure of one with its source"),
    "evaluate": Command("cli.evaluate", "run a simulation on the record and write its report"),
    "compare": Command("cli.compare", "compare recorded evaluations"),
    "explain": Command("cli.explain", "explain the difference between a measured profile and an evaluation"),
    "perf-db": Command("cli.perf_db", "look into a performance database"),
    "calibrate": Command("cli.calibrate", "fit a device profile to the measured rows of a performance database"),
}

_DESCRIPTION = "Predict what a model costs on an accelerator that you do not have."
_EPILOG = f"""\
example:
  {PROGRAM} text-generate Qwen/Qwen3-32B --device ATLAS_800_A2_376T_64G \\
      --num-queries 2 --query-length 3500 --quantize-linear-action DISABLED

`{PROGRAM} <command> --help` explains a command.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit status is 0 when done, 2 for a wrong request, 1 for a failure."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except ModelingError as error:
        print(f"{_error_label()} {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader is gone (`| head`): the flush at exit must not fail again. 128 + SIGPIPE, as other programs exit.
        _abandon_stdout()
        return 141
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        # Files of the user are written elsewhere, with a sentence of their own: it is stdout that is full.
        _abandon_stdout()
        print(f"{_error_label()} Cannot write to stdout: no space left on device.", file=sys.stderr)
        return 1
    return status


def _run(arguments: list[str]) -> int:
    name = next((argument for argument in arguments if not argument.startswith("-")), None)
    if name is not None and name not in COMMANDS:
        raise UsageError(f"There is no command {name!r}: one of {', '.join(COMMANDS)}.{did_you_mean(name, COMMANDS)}")
    parser, chosen = _parser(name)
    if not arguments:
        parser.print_help()
        return 0
    try:
        namespace, unknown = parser.parse_known_args(arguments)
    except SystemExit as stop:
        # --help and --version: argparse has printed the answer.
        return int(stop.code or 0)
    if namespace.command is None or chosen is None:
        raise UsageError(f"Name a command: one of {', '.join(COMMANDS)}.")
    if unknown:
        chosen.refuse(unknown)
    try:
        status: int = import_module(COMMANDS[namespace.command].module).run(namespace)
    except UsageError:
        raise
    except ModelingError as error:
        raise ModelingError(with_flags(str(error), chosen.flags()), exit_status=error.exit_status) from error
    return status


def _parser(name: str | None) -> tuple[CommandParser, CommandParser | None]:
    """The parser of all commands, and that of ``name``; only its module is imported."""
    parser = CommandParser(prog=PROGRAM, description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--version", action=_VersionAction, nargs=0, help="print the version and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="<command>", title="commands", prog=PROGRAM)
    for command, (module, summary) in COMMANDS.items():
        if command == name:
            import_module(module).add_parser(subparsers)
        else:
            subparsers.add_parser(command, help=summary, add_help=False)
    return parser, subparsers.choices[name] if name else None


def _abandon_stdout() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _error_label() -> str:
    colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    return "\x1b[1;31merror:\x1b[0m" if colour else "error:"


if __name__ == "__main__":
    sys.exit(main())
