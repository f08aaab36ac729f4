"""Measure the rows of a performance database again and write the durations back.

On an NPU msprof records op_replay/run_all_op.py; on a GPU or CPU that script times the same operations itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tensor_cast.command_line import CommandParser, given_path
from tools.perf_data_collection.command import exit_status
from tools.perf_data_collection.op_replay.arguments import EP_SIZE_FLAG, add_rank_arguments, add_replay_arguments
from tools.perf_data_collection.op_replay.run_all_op import STATUS_PATH

_EXAMPLES = """examples:
  python tools/perf_data_collection/start_microbench.py --vllm-version 0.18.0 --torch-version 2.9.0 \\
      --cann-version 8.5 --ops MatMulV2 RmsNorm
  python tools/perf_data_collection/start_microbench.py --database-path ./cpu_database --backend cpu \\
      --update-mode missing-only --repeat-count 5

The report goes to stdout and to reports/ in the database, progress to stderr. Rows that fail keep their data and are
listed. Ctrl-C writes back what is done; --resume goes on from there.
"""


def build_parser() -> CommandParser:
    """The command's flags."""
    parser = CommandParser(
        prog="start_microbench.py",
        description=__doc__,
        epilog=_EXAMPLES,
    )
    add_replay_arguments(parser, repeat_count=1)
    parser.add_argument("--ops", nargs="+", metavar="OP", help="operators to measure (default: all of the database)")
    parser.add_argument(
        "--prune-empty-duration-rows",
        action="store_true",
        help="remove rows that have no valid duration even afterwards (default: keep them for another try)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="leave out what an interrupted run of this database has done already"
    )
    parser.add_argument("--status-path", type=given_path, default=STATUS_PATH, metavar="FILE", help=argparse.SUPPRESS)
    add_rank_arguments(parser, EP_SIZE_FLAG)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write back as the arguments say; returns the exit status."""
    return exit_status(lambda: _run(build_parser().parse_args(argv)), interrupted="Interrupted; nothing was changed.")


def _run(arguments: argparse.Namespace) -> int:
    from tools.perf_data_collection.op_replay.microbench import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
