"""Turn profiler files into a performance database: one CSV of measured rows a kernel type.

Reads torch_npu's kernel_details.csv and msprof's op_summary_*.csv of every generation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from tensor_cast.command_line import CommandParser, given_path
from tools.perf_data_collection.command import exit_status
from tools.perf_data_collection.database_arguments import add_database_arguments, add_wait_argument, database_path

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.store import FileChange
    from tools.perf_data_collection.parsers.profile_reader import ParsedProfile

_EXAMPLES = """examples:
  python tools/perf_data_collection/parsers/parse_kernel_details.py --profiling-path ./profiling \\
      --vllm-version 0.15.0 --torch-version 2.9.0 --cann-version 8.5
  python tools/perf_data_collection/parsers/parse_kernel_details.py --profiling-path kernel_details.csv \\
      --database-path ./my_database

A summary of what was read, skipped and written goes to stdout; files that cannot be used are named on stderr.
"""


def build_parser() -> CommandParser:
    """The command's flags."""
    parser = CommandParser(
        prog="parse_kernel_details.py",
        description=__doc__,
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "--profiling-path",
        type=given_path,
        required=True,
        metavar="DIR_OR_FILE",
        help="a profiler CSV, or a directory searched for kernel_details*.csv and op_summary_*.csv",
    )
    add_database_arguments(parser)
    add_wait_argument(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Parse profiles as the arguments say; returns the exit status."""
    return exit_status(lambda: _run(build_parser().parse_args(argv)))


def _run(arguments: argparse.Namespace) -> None:
    directory = database_path(arguments)

    from tensor_cast.performance_model.profiling_database.store import update_database
    from tools.perf_data_collection.parsers.discovery import profile_files
    from tools.perf_data_collection.parsers.profile_reader import read_profile

    paths, copies = profile_files(arguments.profiling_path)
    parsed = read_profile(paths)
    for sentence in (*parsed.unusable, *parsed.warnings):
        print(f"warning: {sentence}", file=sys.stderr)
    changes = update_database(directory, parsed.rows, wait=not arguments.no_wait)
    print("\n".join(summary(parsed, copies, directory, changes)))


def summary(parsed: ParsedProfile, copies: Sequence[Path], directory: Path, changes: Sequence[FileChange]) -> list[str]:
    """The lines that tell what was read, skipped and written."""
    from tools.perf_data_collection.parsers.aggregation import INVALID_DURATIONS, SKIP_REASONS

    read = parsed.aggregation
    bad_lines = parsed.malformed + parsed.truncated
    lines = [
        f"Profile: files read {len(parsed.files)}; rows read {read.rows_read + bad_lines}, used {read.rows_used}, "
        f"skipped {read.rows_read - read.rows_used + bad_lines}"
    ]
    skipped = [(read.skipped[reason], reason) for reason in SKIP_REASONS if read.skipped[reason]]
    if parsed.malformed:
        skipped.append((parsed.malformed, "lines with another number of cells than the header, or with NUL bytes"))
    if parsed.truncated:
        skipped.append((parsed.truncated, "last lines cut off in the middle"))
    lines += [f"{count:>10}  {reason}" for count, reason in skipped]
    invalid = sum(read.skipped[reason] for reason in INVALID_DURATIONS)
    if invalid:
        lines.append(f"  Invalid durations, which entered no statistic: {invalid}.")
    if copies:
        lines.append(f"  op_summary files left out, because kernel_details beside them hold the same: {len(copies)}.")
    if parsed.unusable:
        lines.append(f"  Files that could not be used (see the warnings): {len(parsed.unusable)}.")
    counts = [change.rows for change in changes]
    lines += [
        f"Database: {directory}",
        f"  files: new {sum(change.created for change in changes)}, "
        f"updated {sum(change.written and not change.created for change in changes)}, "
        f"unchanged {sum(not change.written for change in changes)}",
        f"  rows: new {sum(count.new for count in counts)}, updated {sum(count.updated for count in counts)}, "
        f"unchanged {sum(count.unchanged for count in counts)}",
    ]
    return lines


if __name__ == "__main__":
    sys.exit(main())
