"""The performance model: where kernel times come from."""

from __future__ import annotations

import argparse

from tensor_cast.command_line import CommandParser, UsageError, choice, given_path
from tensor_cast.pricing import PERFORMANCE_MODELS


def add_performance_model_arguments(parser: CommandParser) -> None:
    """Where kernel times come from."""
    group = parser.add_argument_group("performance model")
    group.add_argument(
        "--performance-model",
        type=choice(PERFORMANCE_MODELS),
        default="analytic",
        metavar="{analytic,profiling}",
        help="where kernel times come from: the analytic model, or measured times where a database has them "
        "(default: analytic)",
    )
    group.add_argument(
        "--profiling-database-path",
        type=given_path,
        metavar="DIR",
        help="directory of measured times for --performance-model profiling (default: the packaged one of the device)",
    )
    group.add_argument(
        "--disable-profiling-interpolation",
        action="store_true",
        help="take measured times for exactly the measured sizes only",
    )


def check_performance_model(arguments: argparse.Namespace) -> None:
    """Refuse flags of measured times without asking for any, and a database that is not there.

    Raises:
        UsageError: one is given with the analytic model, or the path is no directory.
    """
    given = {
        "--profiling-database-path": arguments.profiling_database_path is not None,
        "--disable-profiling-interpolation": arguments.disable_profiling_interpolation,
    }
    useless = [flag for flag, is_given in given.items() if is_given]
    if useless and arguments.performance_model != "profiling":
        raise UsageError(f"{useless[0]} is about measured times: add --performance-model profiling, or leave it out.")
    path = arguments.profiling_database_path
    if path is not None and not path.is_dir():
        raise UsageError(f"--profiling-database-path {path} is no directory.")
