"""The parser that all commands and tools share: one sentence for what is wrong, and types that say what they expect."""

from __future__ import annotations

import argparse
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from tensor_cast.errors import ModelingError, did_you_mean

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_LARGEST = 10**12
_HELP_WIDTH = 100
_UNKNOWN = "unrecognized arguments: "


class UsageError(ModelingError):
    """A command line that is wrong in itself; its sentence names flags already."""


class CommandParser(argparse.ArgumentParser):
    """``argparse`` with the project's errors: a wrong command line raises ``UsageError`` instead of exiting."""

    def __init__(self, **options: Any) -> None:
        # An abbreviation would mean another flag as soon as a longer one is added.
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)

    def error(self, message: str) -> NoReturn:
        """Raise for what argparse found wrong, the flag first: ``--num-queries must be …``."""
        if message.startswith(_UNKNOWN):
            self.refuse(message.removeprefix(_UNKNOWN).split())
        sentence = re.sub(r"^argument ([^:/]+)(?:/[^:]*)?: ", r"\1 ", message).rstrip(".")
        raise UsageError(f"{sentence}{'' if sentence.endswith('?') else '.'} `{self.prog} --help` explains all flags.")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """A value that is none of the choices, in words, with the nearest; argparse quotes each of them."""
        if action.choices is None or value in action.choices:
            return
        names = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            raise argparse.ArgumentError(
                None, f"there is no command {value!r}: one of {', '.join(names)}.{did_you_mean(str(value), names)}"
            )
        raise argparse.ArgumentError(action, _no_choice(str(value), names))

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Raise for arguments that the command does not have."""
        first = next((argument for argument in unknown if argument.startswith("-")), unknown[0])
        typed = first.partition("=")[0]
        known = [option for option in self._options() if option != typed]
        near = did_you_mean(typed.replace("_", "-"), known) if first.startswith("-") else ""
        self.error(f"there is no argument {first}.{near}")

    def _options(self) -> dict[str, None]:
        """Options of the command and of its own commands, each once; hidden ones are for programs."""
        found: dict[str, None] = {}
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    found.update(parser._options())
            elif action.help != argparse.SUPPRESS:
                found.update(dict.fromkeys(action.option_strings))
        return found

    def flags(self) -> dict[str, str]:
        """Flags by destination, subcommands' too, as the core names it: ``num_queries`` -> ``--num-queries``."""
        found = {}
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    found.update(parser.flags())
            elif action.option_strings and action.option_strings[0].startswith("--"):
                found[action.dest] = action.option_strings[0]
        return found

    def format_help(self) -> str:
        """The help text, coloured on a terminal, no wider than it."""
        width = min(_HELP_WIDTH, shutil.get_terminal_size().columns)
        formatter: type[argparse.HelpFormatter] = argparse.RawDescriptionHelpFormatter
        if sys.stdout.isatty():
            from rich_argparse import RawDescriptionRichHelpFormatter

            formatter = RawDescriptionRichHelpFormatter
        self.formatter_class = partial(formatter, max_help_position=30, width=width)
        return super().format_help()


def with_flags(message: str, flags: Mapping[str, str]) -> str:
    """The core's sentence with its parameters' names as a person typed them: ``--query-length``, not query_length.

    Only whole words are replaced, not parts of a path or of a key.
    """
    names = "|".join(sorted((name for name in flags if "_" in name), key=len, reverse=True))
    if not names:
        return message
    return re.sub(rf"(?<![^\s(])({names})(?!\.\S|[^\s,.:;)])", lambda match: flags[match[1]], message)


def whole_number(minimum: int) -> Callable[[str], int]:
    """A type for a whole number of at least ``minimum``, written in digits."""

    def parse(text: str) -> int:
        stripped = text.strip()
        if not _WHOLE_NUMBER.fullmatch(stripped) or len(stripped) > 20 or not minimum <= int(stripped) <= _LARGEST:
            limit = f" and at most {_LARGEST:,}" if stripped.isdigit() and len(stripped) > 12 else ""
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {minimum}{limit}, got {text!r:.40}")
        return int(stripped)

    return parse


def number(
    minimum: float, below: float = math.inf, *, inclusive: bool = False, above: bool = False
) -> Callable[[str], float]:
    """A type for a number of at least ``minimum`` (``above``: more than it) and less than ``below`` (or up to it)."""
    lower = f"{'greater than' if above else 'of at least'} {minimum:g}"
    upper = "" if below == math.inf else f" and {'at most' if inclusive else 'less than'} {below:g}"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (minimum <= value < below or (inclusive and value == below)) or (above and value == minimum):
            raise argparse.ArgumentTypeError(f"must be a number {lower}{upper}, got {text!r:.40}")
        return value

    return parse


def choice(choices: Iterable[str]) -> Callable[[str], str]:
    """A type for one of ``choices``, in any case; hyphens count as underscores."""
    by_folded = {name.casefold().replace("-", "_"): name for name in choices}

    def parse(text: str) -> str:
        name = by_folded.get(text.strip().casefold().replace("-", "_"))
        if name is None:
            raise argparse.ArgumentTypeError(_no_choice(text, list(by_folded.values())))
        return name

    return parse


def given_path(text: str) -> Path:
    """A type for a path. An empty one is a variable that was not set, and would mean the working directory."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty: give a path")
    return Path(text)


def _no_choice(text: str, names: Sequence[str]) -> str:
    return f"must be one of {', '.join(names)}, got {text!r:.60}.{did_you_mean(text, names)}"
