"""``msmodeling compare``: recorded evaluations side by side."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING

from tensor_cast.command_line import CommandParser, choice, given_path
from tensor_cast.evaluation.language import LANGUAGES

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[CommandParser]

_EXAMPLES = """\
example:
  msmodeling compare results/qwen3_32b_a2-376t-64g_w4_tp4_dp1_ep1 results/qwen3_32b_a3-752t-128g-die_w4_tp4_dp1_ep1
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add ``compare`` to the command line."""
    parser = subparsers.add_parser(
        "compare",
        help="compare recorded evaluations",
        description="Compare recorded evaluations of several devices, strategies or quantisations: a table, charts,\n"
        "and what makes the difference by category and kernel. The first one is what the others are held against.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("results", type=given_path, nargs="+", metavar="RESULTS_DIR", help="directories of evaluations")
    parser.add_argument(
        "--output-dir",
        type=given_path,
        metavar="DIR",
        help="where the comparison goes (default: compare/ beside the first)",
    )
    parser.add_argument(
        "--language", type=choice(LANGUAGES), default="en", metavar="{en,zh}", help="of the comparison (default: en)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the comparison and print where it is; 0 when done.

    Raises:
        ModelingError: a directory holds no evaluation, or they cannot be compared.
    """
    from tensor_cast.evaluation.comparison import compared
    from tensor_cast.evaluation.comparison_report import write_comparison
    from tensor_cast.evaluation.results import read_results
    from tensor_cast.evaluation.validate import require_valid

    for directory in arguments.results:
        require_valid(directory)
    evaluations = compared([read_results(directory) for directory in arguments.results])
    paths = write_comparison(
        evaluations, language=arguments.language, directory=arguments.output_dir, now=datetime.now()
    )
    for one in evaluations:
        print(
            f"{one.letter}  {one.results.name}: {one.time_s / evaluations[0].time_s:.2f}x the time, "
            f"{one.throughput / evaluations[0].throughput:.2f}x the throughput of a device"
        )
    for path in paths:
        print(path)
    return 0
