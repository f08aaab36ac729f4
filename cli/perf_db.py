"""``msmodeling perf-db``: look into a performance database."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cli.perf_db_accuracy import add_accuracy_parser, run_accuracy
from cli.perf_db_plot import add_plot_parser, run_plot
from tensor_cast.command_line import given_path, whole_number

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.coverage import Coverage
    from tensor_cast.performance_model.profiling_database.difference import ChangedRow, KernelDifference

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_SHAPE_WIDTH = 48


def add_parser(subparsers: Subparsers) -> None:
    """Add ``perf-db`` and its commands."""
    parser = subparsers.add_parser(
        "perf-db",
        help="look into a performance database",
        description="Look into a performance database: a directory of measured rows, one CSV a kernel type.",
    )
    commands = parser.add_subparsers(dest="perf_db_command", required=True, metavar="COMMAND")

    stats = commands.add_parser(
        "stats",
        help="rows by where their time comes from, duplicates and suspicious rows",
        description="Count a database's rows by where their time comes from; list duplicates and suspicious rows.",
    )
    stats.add_argument("directory", type=given_path, metavar="DIR", help="database directory")
    stats.add_argument(
        "--limit", type=whole_number(0), default=20, metavar="N", help="suspicious rows to list (default: %(default)s)"
    )

    validate = commands.add_parser(
        "validate",
        help="every break of the format, by file, line and column",
        description="Print every break of the format as FILE:LINE: COLUMN: what; exit status 1 if there is any.",
    )
    validate.add_argument("directory", type=given_path, metavar="DIR", help="database directory")

    diff = commands.add_parser(
        "diff",
        help="how the durations of two databases differ",
        description="Compare two databases row by row, collectives beside them too. Exit status 1 if they differ.",
    )
    diff.add_argument("before", type=given_path, metavar="A", help="database directory")
    diff.add_argument("after", type=given_path, metavar="B", help="database directory it is compared with")
    diff.add_argument(
        "--limit", type=whole_number(0), default=20, metavar="N", help="changed rows to list (default: %(default)s)"
    )

    add_accuracy_parser(commands)
    add_plot_parser(commands)


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen command; returns the exit status.

    Raises:
        ModelingError: a directory or a file in it cannot be read.
    """
    if arguments.perf_db_command == "plot":
        return run_plot(arguments)
    if arguments.perf_db_command == "accuracy":
        return run_accuracy(arguments, _print_table)
    if arguments.perf_db_command == "stats":
        return _stats(arguments.directory, arguments.limit)
    if arguments.perf_db_command == "validate":
        return _validate(arguments.directory)
    return _diff(arguments.before, arguments.after, arguments.limit)


def _stats(directory: Path, limit: int) -> int:
    from tensor_cast.performance_model.profiling_database.coverage import coverage

    found = coverage(directory)
    if found.kernels:
        _print_table(
            ("kernel", "rows", "measured", "replayed", "both", "empty", "timed", "duplicates", "invocations"),
            [
                (
                    kernel.kernel_type,
                    kernel.rows,
                    *(kernel.states[state] for state in ("measured", "replayed", "both", "empty")),
                    f"{kernel.timed / kernel.rows:.0%}" if kernel.rows else "-",
                    kernel.duplicates,
                    kernel.invocations or "-",
                )
                for kernel in found.kernels
            ],
        )
        print("\n".join(_stats_lines(found, limit)))
    if found.collectives:
        rows = ", ".join(f"{name} {count}" for name, count in found.collectives.items())
        print(f"Measured rows of collectives: {rows}.")
    return 0


def _stats_lines(found: Coverage, limit: int) -> Iterable[str]:
    rows = sum(kernel.rows for kernel in found.kernels)
    yield (
        f"Kernel types: {len(found.kernels)}. Rows: {rows}; measured in a profile {found.total('measured')}, "
        f"replayed {found.total('replayed')}, both {found.total('both')}, empty {found.total('empty')}."
    )
    if duplicates := sum(kernel.duplicates for kernel in found.kernels):
        yield f"Rows that repeat an earlier one: {duplicates}; the first is used (validate tells the lines)."
    if found.missing_kernels:
        missing = ", ".join(found.missing_kernels)
        yield f"Kernels that can be replayed and have no file: {missing}."
    outliers = [outlier for kernel in found.kernels for outlier in kernel.outliers]
    if outliers:
        yield f"Suspicious rows: {len(outliers)}."
    for outlier in outliers[:limit]:
        yield f"  {outlier.kernel_type}.csv:{outlier.line}: {_short(outlier.shapes)}: {outlier.reason}"
    if len(outliers) > limit:
        yield f"  … and {len(outliers) - limit} more (--limit)"


def _validate(directory: Path) -> int:
    from tensor_cast.performance_model.profiling_database.validation import validate

    violations = validate(directory)
    for violation in violations:
        print(violation)
    files = len({violation.path for violation in violations})
    print(
        f"Violations: {len(violations)}, files that have any: {files}."
        if violations
        else f"{directory} keeps the format."
    )
    return 1 if violations else 0


def _diff(before: Path, after: Path, limit: int) -> int:
    from tensor_cast.performance_model.profiling_database.difference import difference

    found = difference(before, after)
    different = [kernel for kernel in found if not kernel.is_equal]
    if not different:
        print(f"No difference. Files: {len(found)}, rows: {sum(kernel.equal for kernel in found)}.")
        return 0
    _print_table(
        ("kernel", "only in A", "only in B", "equal", "changed", "B/A median"),
        [_difference_row(kernel) for kernel in different],
    )
    changed = sorted((row for kernel in different for row in kernel.changed), key=_change_size, reverse=True)
    if changed:
        print("Largest changes:")
    for row in changed[:limit]:
        ratio = f"  x{row.ratio:.3f}" if row.ratio else ""
        print(f"  {row.kernel_type} {_short(row.shapes)}: {_us(row.before_us)} -> {_us(row.after_us)}{ratio}")
    if len(changed) > limit:
        print(f"  … and {len(changed) - limit} more (--limit)")
    return 1


def _difference_row(kernel: KernelDifference) -> tuple[object, ...]:
    ratio = kernel.median_ratio
    return (
        kernel.kernel_type,
        kernel.only_before,
        kernel.only_after,
        kernel.equal,
        len(kernel.changed),
        "-" if ratio is None else f"{ratio:.3f}",
    )


def _change_size(row: ChangedRow) -> float:
    """How far apart the durations are as a factor; one that is missing counts as furthest."""
    return float("inf") if row.ratio is None else max(row.ratio, 1.0 / row.ratio)


def _us(duration: float | None) -> str:
    return "no duration" if duration is None else f"{duration:.3f} us"


def _short(shapes: str) -> str:
    bare = shapes.strip('"') or "no shapes"
    return bare if len(bare) <= _SHAPE_WIDTH else bare[: _SHAPE_WIDTH - 1] + "…"


def _print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns aligned by width, the first to the left, numbers to the right."""
    lines = [tuple(header), *(tuple(map(str, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for first, *others in lines:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        print("  ".join(cells).rstrip())
