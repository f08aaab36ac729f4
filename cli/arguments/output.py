"""Output: what is written where."""

from __future__ import annotations

import argparse

from tensor_cast.command_line import CommandParser, UsageError, choice, given_path


def add_output_arguments(parser: CommandParser) -> None:
    """What is written where."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "--all-kernels", action="store_true", help="a row for each kernel (default: those below 0.1%% are one row)"
    )
    group.add_argument("--dump-input-shapes", action="store_true", help="a row for each shape, with shapes and dtypes")
    group.add_argument(
        "--dump-op-bound-results", action="store_true", help="what each row would take by each bound alone"
    )
    group.add_argument(
        "--json", type=given_path, metavar="FILE", help="write all figures as JSON; - for stdout, instead"
    )
    group.add_argument("--chrome-trace-file", type=given_path, metavar="FILE", help="write a trace for Perfetto")
    group.add_argument(
        "--log-level",
        type=choice(("DEBUG", "INFO", "WARNING", "ERROR")),
        default="WARNING",
        metavar="LEVEL",
        help="what is told on stderr: DEBUG, INFO, WARNING, ERROR (default: WARNING)",
    )


def check_outputs(arguments: argparse.Namespace) -> None:
    """Refuse result files that could not be written, before anything is computed.

    Raises:
        ModelingError: there is no such directory, it may not be written, or one file would be written over the other.
    """
    from tensor_cast.reporting.output_file import check_writable

    trace = arguments.chrome_trace_file
    if str(trace) == "-":
        raise UsageError("--chrome-trace-file - is no file: only --json may be - for stdout; give a file.")
    if None not in (arguments.json, trace) and arguments.json.resolve() == trace.resolve():
        raise UsageError(f"--json and --chrome-trace-file are both {trace}: give two files.")
    for flag, path in (("--json", arguments.json), ("--chrome-trace-file", arguments.chrome_trace_file)):
        if path is not None and (flag, str(path)) != ("--json", "-"):
            check_writable(path, flag)
