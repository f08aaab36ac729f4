"""``msmodeling explain``: a measured profile against a recorded evaluation."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tensor_cast.command_line import CommandParser, choice, given_path, whole_number
from tensor_cast.evaluation.language import LANGUAGES

if TYPE_CHECKING:
    from tensor_cast.evaluation.explain.layers import Explanation

    Subparsers = argparse._SubParsersAction[CommandParser]

_EXAMPLES = """\
example:
  msmodeling explain --profile ./profiling/ASCEND_PROFILER_OUTPUT \\
      --results results/qwen3_0.6b_a2-376t-64g_w1_tp1_dp1_ep1
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add ``explain`` to the command line."""
    parser = subparsers.add_parser(
        "explain",
        help="explain the difference between a measured profile and an evaluation",
        description="Hold a measured profile against a recorded evaluation: the whole step, where the difference sits\n"
        "by category, and which kernels and shapes make it, with time between kernels apart.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "--profile",
        type=given_path,
        required=True,
        metavar="DIR_OR_FILE",
        help="kernel_details.csv of torch_npu's profiler, op_summary_*.csv of msprof, or a directory with them",
    )
    parser.add_argument("--results", type=given_path, required=True, metavar="DIR", help="directory of an evaluation")
    parser.add_argument("--step", metavar="ID", help="step of the profile (default: the one of median length)")
    parser.add_argument(
        "--steps", type=whole_number(1), default=1, metavar="N", help="equal steps in a profile without step numbers"
    )
    parser.add_argument("--rank", metavar="ID", help="device of the profile (default: the one that is busy longest)")
    parser.add_argument(
        "--output-dir", type=given_path, metavar="DIR", help="where it is written (default: explain/ in the results)"
    )
    parser.add_argument(
        "--language", type=choice(LANGUAGES), default="en", metavar="{en,zh}", help="of the pages (default: en)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the explanation, print its first two layers; 0 when done.

    Raises:
        ModelingError: the profile or the results cannot be read.
    """
    from tensor_cast.evaluation.explain.layers import explain
    from tensor_cast.evaluation.explain.writing import write_explanation
    from tensor_cast.evaluation.results import read_results
    from tensor_cast.evaluation.validate import require_valid

    require_valid(arguments.results)
    found = explain(
        arguments.profile,
        read_results(arguments.results),
        step=arguments.step,
        rank=arguments.rank,
        repeats=arguments.steps,
    )
    paths = write_explanation(found, arguments.language, arguments.output_dir)
    print("\n".join(_lines(found)))
    for path in paths:
        print(path)
    return 0


def _lines(found: Explanation) -> list[str]:
    from tensor_cast.units import duration

    lines = [f"step: measured {duration(found.measured_s)}, predicted {duration(found.predicted_s)}"]
    width = max(len(part.name) for part in found.parts)
    for part in found.parts:
        sign = "-" if part.difference_s < 0 else "+"
        lines.append(f"  {part.name.ljust(width)}  {sign}{duration(abs(part.difference_s))}")
    return lines
