"""Add shapes worth measuring to a performance database: rows without durations, for start_microbench.py to measure.

With --target-models the simulator is run on the models at every parallel size that divides them, and rows are made for
the kernels that it asks for; without, for general axes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tensor_cast.command_line import CommandParser, number, whole_number
from tensor_cast.errors import ModelingError, did_you_mean
from tools.perf_data_collection.command import exit_status
from tools.perf_data_collection.database_arguments import add_database_arguments, add_wait_argument, database_path

if TYPE_CHECKING:
    from tools.perf_data_collection.grid_generator.grid import FilePlan
    from tools.perf_data_collection.grid_generator.model_structures import ModelNeeds

_Item = TypeVar("_Item")

_EXAMPLES = """examples:
  python tools/perf_data_collection/generate_shape_grid.py --database-path ./my_database \\
      --target-models deepseek-ai/DeepSeek-V3,Qwen/Qwen3-32B --rows 2000
  python tools/perf_data_collection/generate_shape_grid.py --database-path ./my_database --ops MatMulV2 --dry-run

A summary goes to stdout: rows a file gets, why candidates were dropped, and how many kernels of each model have rows.
"""


def build_parser() -> CommandParser:
    """The command's flags."""
    parser = CommandParser(
        prog="generate_shape_grid.py",
        description=__doc__,
        epilog=_EXAMPLES,
    )
    add_database_arguments(parser)
    parser.add_argument(
        "--target-models",
        type=_names,
        metavar="A,B",
        help="models by catalog id, path or hub id, separated by commas (default: general axes)",
    )
    parser.add_argument(
        "--rows",
        type=whole_number(0),
        default=1000,
        metavar="N",
        help="most new rows a file; 0: all (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=whole_number(0), default=20260409, metavar="N", help="of what breaks ties (default: %(default)s)"
    )
    parser.add_argument(
        "--max-hbm-gb",
        type=number(0),
        default=32.0,
        metavar="GIB",
        help="leave out rows whose inputs and outputs take more GiB; 0: none (default: %(default)s)",
    )
    parser.add_argument(
        "--ops",
        nargs="+",
        metavar="KERNEL",
        help="kernel types to generate for; files that are not there yet are created (default: all that are there)",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be added, and write nothing")
    add_wait_argument(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Add rows as the arguments say; returns the exit status."""
    return exit_status(lambda: _run(build_parser().parse_args(argv)), interrupted="Interrupted; nothing was changed.")


def _run(arguments: argparse.Namespace) -> None:
    directory = database_path(arguments)
    if not directory.is_dir():
        raise ModelingError(f"The database directory {directory} does not exist.{_others(directory)}")
    if arguments.dry_run:
        plans, needs, others = _plan(directory, arguments)
    else:
        from tensor_cast.performance_model.profiling_database.atomic import database_lock, replace_files
        from tensor_cast.performance_model.profiling_database.table import table_bytes

        with database_lock(directory, wait=not arguments.no_wait):
            plans, needs, others = _plan(directory, arguments)
            replace_files({plan.path: table_bytes(plan.content()) for plan in plans if plan.new})
    print("\n".join(summary(directory, plans, needs, others, dry_run=arguments.dry_run)))


def _plan(directory: Path, arguments: argparse.Namespace) -> tuple[list[FilePlan], list[ModelNeeds], list[FilePlan]]:
    """What each file gets, what the models need, and what the files that are not to be extended have of it."""
    import numpy as np

    from tensor_cast.performance_model.profiling_database.store import csv_files
    from tools.perf_data_collection.grid_generator.candidates import Structure
    from tools.perf_data_collection.grid_generator.grid import GridOptions, StructuresOf, plan_file, rows_of_file
    from tools.perf_data_collection.grid_generator.model_structures import model_needs
    from tools.perf_data_collection.memory_estimator import GIB

    paths = _paths(directory, arguments.ops)
    needs = [model_needs(model) for model in _shown(arguments.target_models or (), "models")]
    structures: StructuresOf | None = None
    if needs:
        by_kernel: dict[object, list[Structure]] = {}
        for one in dict.fromkeys(structure for need in needs for structure in need.structures):
            by_kernel.setdefault(one.kernel, []).append(one)

        def structures(kernel: object) -> list[Structure]:
            return by_kernel.get(kernel, [])

    options = GridOptions(arguments.rows, arguments.seed, arguments.max_hbm_gb * GIB)
    generator = np.random.default_rng(options.seed)
    plans = [plan_file(path, structures, options, generator) for path in _shown(paths, "files")]
    extended = {plan.path for plan in plans if plan.table is not None}
    others = [path for path in csv_files(directory) if needs and path not in extended]
    return plans, needs, [rows_of_file(path) for path in others]


def _paths(directory: Path, ops: Sequence[str] | None) -> list[Path]:
    """The files to extend, sorted.

    Raises:
        ModelingError: there is none, or a named kernel has no generator.
    """
    from tensor_cast.performance_model.profiling_database.coverage import REPLAYED_KERNELS
    from tensor_cast.performance_model.profiling_database.store import kernel_files

    if ops is None:
        return list(kernel_files(directory).values())
    names = [name.strip().removesuffix(".csv") for name in ops]
    for name in names:
        if name not in REPLAYED_KERNELS:
            raise ModelingError(
                f"There are no shapes for {name!r}: it cannot be replayed.{did_you_mean(name, REPLAYED_KERNELS)}"
            )
    return sorted(directory / f"{name}.csv" for name in dict.fromkeys(names))


def _others(directory: Path) -> str:
    below = sorted(path.name for path in directory.parent.glob("*/")) if directory.parent.is_dir() else []
    return f" Beside it there are {', '.join(below)}." if below else ""


def _shown(items: Sequence[_Item], what: str) -> Iterable[_Item]:
    """``items`` with a progress bar on a terminal."""
    if len(items) < 2 or not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, description=what, console=Console(stderr=True), transient=True)


def summary(
    directory: Path,
    plans: Sequence[FilePlan],
    needs: Sequence[ModelNeeds],
    others: Sequence[FilePlan] = (),
    *,
    dry_run: bool,
) -> list[str]:
    """The lines that tell what was added, what was dropped and what a model's kernels have now.

    ``others`` are the database's files beside those of ``plans``.
    """
    from tools.perf_data_collection.grid_generator.coverage import coverage_lines

    added = [plan for plan in plans if plan.new]
    lines = [
        f"Database {directory}",
        f"{'file':<32}{'candidates':>11}{'known':>8}{'too large':>11}{'beyond':>9}{'new':>8}",
    ]
    lines += [
        f"{plan.kernel_type:<32}{plan.candidates:>11}{plan.known:>8}{plan.too_large:>11}{plan.beyond:>9}{plan.new:>8}"
        for plan in plans
        if plan.candidates
    ]
    lines.append(f"{sum(plan.new for plan in added)} rows {'would be ' if dry_run else ''}added to {len(added)} files.")
    skipped = [f"{plan.kernel_type} ({plan.reason})" for plan in plans if not plan.candidates]
    if skipped:
        lines.append(f"Nothing for {len(skipped)} files: {', '.join(skipped)}.")
    return [*lines, *coverage_lines(needs, [*plans, *others])]


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError("name at least one model")
    return names


if __name__ == "__main__":
    sys.exit(main())
