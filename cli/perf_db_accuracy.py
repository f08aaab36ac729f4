"""``msmodeling perf-db accuracy``: how well the rows of a database predict each other."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from cli.perf_db_device import measured_device
from tensor_cast.command_line import given_path, whole_number

if TYPE_CHECKING:
    from tensor_cast.performance_model.profiling_database.accuracy import KernelAccuracy, LeftOut

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

PrintTable = Callable[[Sequence[str], Iterable[Sequence[object]]], None]
_HEADER = ("kernel", "rows", "interpolated", "extrapolated", "none", "median", "p90", "analytic", "p90")


def add_accuracy_parser(commands: Subparsers) -> None:
    """Add ``accuracy`` to the commands of ``perf-db``."""
    parser = commands.add_parser(
        "accuracy",
        help="how well the rows of a database predict each other",
        description=(
            "Leave out each row in turn, predict it from the others as --performance-model profiling would, and print "
            "the relative errors by kernel type beside those of the analytic model."
        ),
    )
    parser.add_argument("directory", type=given_path, metavar="DIR", help="database directory")
    parser.add_argument(
        "--device", metavar="NAME", help="device that was measured (default: the one that the path names)"
    )
    parser.add_argument(
        "--samples",
        type=whole_number(0),
        default=200,
        metavar="N",
        help="rows of a kernel and layout that are left out, evenly spread; 0: all (default: %(default)s)",
    )
    parser.add_argument(
        "--limit",
        type=whole_number(0),
        default=10,
        metavar="N",
        help="worst rows and unused kernel types to list (default: %(default)s)",
    )


def run_accuracy(arguments: argparse.Namespace, print_table: PrintTable) -> int:
    """Print the errors; returns the exit status.

    Raises:
        ModelingError: the database cannot be read, or its device is not known.
    """
    from tensor_cast.performance_model.analytic import analytic_time
    from tensor_cast.performance_model.profiling_database.accuracy import accuracy

    device = measured_device(arguments.directory, arguments.device)
    kernels = accuracy(arguments.directory, lambda op: analytic_time(op, device).total_s, samples=arguments.samples)
    rows = [row for kernel in kernels for row in kernel.rows]
    print_table(_HEADER, [*(_line(kernel) for kernel in kernels if kernel.rows), *_totals(rows)])
    print("\n".join(_lines(kernels, rows, arguments.limit)))
    return 0


def _line(kernel: KernelAccuracy) -> tuple[object, ...]:
    return (
        kernel.kernel_type,
        len(kernel.rows),
        len(kernel.of("measured", "interpolated")),
        len(kernel.of("extrapolated")),
        len(kernel.of("analytic")),
        *_errors(kernel.rows),
    )


def _totals(rows: Sequence[LeftOut]) -> Iterable[tuple[object, ...]]:
    named = (("measured", "interpolated"), ("extrapolated",), ("analytic",))
    for label, sources in zip(("all interpolated", "all extrapolated", "all without"), named, strict=True):
        chosen = [row for row in rows if row.source in sources]
        if chosen:
            yield label, len(chosen), "", "", "", *_errors(chosen)


def _errors(rows: Sequence[LeftOut]) -> tuple[str, ...]:
    from tensor_cast.performance_model.profiling_database.accuracy import quantile

    predicted, analytic = [row.error for row in rows], [row.analytic_error for row in rows]
    return tuple(f"{quantile(errors, share):.1%}" for errors in (predicted, analytic) for share in (0.5, 0.9))


def _lines(kernels: Sequence[KernelAccuracy], rows: Sequence[LeftOut], limit: int) -> Iterable[str]:
    if not rows:
        yield "No row can be left out: none has a duration and a layout that is understood."
    unknown = sorted((kernel for kernel in kernels if kernel.unknown), key=lambda kernel: -kernel.unknown)
    if unknown:
        named = [f"{kernel.kernel_type} {kernel.unknown}" for kernel in unknown[:limit]]
        more = [f"{len(unknown) - limit} more kernel types (--limit)"] if len(unknown) > limit else []
        yield f"Rows that are not used, their layout or their lengths being unknown: {', '.join([*named, *more])}."
    worst = sorted((row for row in rows if row.predicted_us is not None), key=lambda row: -row.error)[:limit]
    if worst:
        yield "Worst predictions:"
    for row in worst:
        yield (
            f"  {row.kernel_type} {row.shapes}: {row.predicted_us:.3f} us predicted ({row.source}), "
            f"{row.measured_us:.3f} us measured, {row.analytic_us:.3f} us analytic"
        )
