"""Tables of timed kernels, of a step and of a generation alike: kernels, bounds, categories, collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensor_cast.ops import Collective, Tensor
from tensor_cast.performance_model.roofline import BOUNDS
from tensor_cast.reporting.layout import Column, Section, Table
from tensor_cast.timed_kernels import CollectiveEstimate, OpEstimate, TimedKernels
from tensor_cast.units import byte_size, column_unit, duration, error_limits, percent

BOUND_COLUMNS = tuple(bound for bound in BOUNDS if bound != "wait")
SMALL_SHARE = 0.001
"""Kernels of less than this share of the time are one row together, unless all are asked for."""


def kernel_sections(
    estimate: TimedKernels,
    found: Sequence[CollectiveEstimate],
    *,
    input_shapes: bool = False,
    op_bounds: bool = False,
    all_kernels: bool = False,
) -> list[Section]:
    """Kernels, the longest first, then what they add up to. Shapes are of single kernels: with them all are shown."""
    rows = sorted(estimate.ops_by_shape if input_shapes else estimate.ops, key=lambda op: -float(op.total_s))
    sections: list[Section] = [kernels(estimate, rows, shapes=input_shapes, every=all_kernels or input_shapes)]
    if op_bounds:
        sections.append(bounds(rows))
    sections.append(categories(estimate))
    if found:
        sections.append(collectives(found, gaps=_gaps_in_rows(estimate)))
    return sections


def _gaps_in_rows(estimate: TimedKernels) -> bool:
    """Whether a row of a collective holds gaps beside its transfers."""
    held = (kernel.held_gap_s for kernel in estimate.kernels if isinstance(kernel.op, Collective))
    return any(float(seconds) > 0.0 for seconds in held)


def kernels(estimate: TimedKernels, rows: Sequence[OpEstimate], *, shapes: bool = False, every: bool = True) -> Table:
    """A row a kernel name and part; unless ``every`` is wanted, the small ones in one row at the end."""
    total_unit = column_unit([float(op.total_s) for op in rows])
    average_unit = column_unit([float(op.average_s) for op in rows])
    columns = (
        Column("kernel", breakable=True),
        Column("part", breakable=True),
        Column("category", rank=1),
        Column("calls", right=True),
        Column(f"total {total_unit[1]}", right=True),
        Column(f"avg {average_unit[1]}", right=True),
        Column("share", right=True),
        Column("bound", styled=True),
        Column("source", rank=2),
        Column("error", right=True, rank=2),
    )
    small = [] if every else [op for op in rows if float(op.share) < SMALL_SHARE]
    if len(small) < 2:
        small = []
    shown = [op for op in rows if op not in small]
    cells = [_cells(op, total_unit, average_unit) for op in shown]
    note = _overlap_note(estimate)
    if small:
        cells.append((f"{len(small)} more kernels", "", "", *_sums(estimate, small, total_unit), "", "", ""))
        note = f"{note} --all-kernels shows those of less than {percent(SMALL_SHARE)} one by one.".lstrip()
    return Table(
        "Kernels",
        columns,
        tuple(cells),
        total=("all", "", "", *_sums(estimate, rows, total_unit), "", "", ""),
        note=note,
        details=tuple(shape_text(op) for op in shown) if shapes else (),
    )


def _cells(op: OpEstimate, total_unit: tuple[float, str], average_unit: tuple[float, str]) -> tuple[str, ...]:
    return (
        op.name,
        op.part,
        op.category,
        f"{op.count:,.0f}",
        *_times([float(op.total_s)], total_unit),
        *_times([float(op.average_s)], average_unit),
        percent(float(op.share)),
        op.bound_name,
        op.source,
        error_limits(float(op.error_low), float(op.error_high)),
    )


def _sums(estimate: TimedKernels, rows: Sequence[OpEstimate], unit: tuple[float, str]) -> tuple[str, ...]:
    """Calls, time, no average, and share of several rows."""
    calls, sum_s = sum(float(op.count) for op in rows), sum(float(op.total_s) for op in rows)
    return (f"{calls:,.0f}", *_times([sum_s], unit), "", percent(sum_s / float(estimate.total_time_s)))


def _overlap_note(estimate: TimedKernels) -> str:
    hidden = float(estimate.overlapped_s)
    return f"{duration(hidden)} of it run hidden on a second stream." if hidden > 0.0 else ""


def shape_text(op: OpEstimate) -> str:
    """``bfloat16[7000,5120] bfloat16[5120,10240] -> bfloat16[7000,10240]``."""
    return f"{tensors_text(op.op.inputs)} -> {tensors_text(op.op.outputs)}"


def tensors_text(tensors: Sequence[Tensor]) -> str:
    """Dtype and shape of each tensor."""
    return " ".join(f"{t.dtype}[{','.join(f'{float(size):.10g}' for size in t.shape)}]" for t in tensors) or "none"


def bounds(rows: Sequence[OpEstimate]) -> Table:
    """What each row would take if one part of the device were all that limits it."""
    unit = column_unit([float(op.total_s) for op in rows])
    columns = (
        Column("kernel", breakable=True),
        Column("part", breakable=True),
        *(Column(f"{bound} {unit[1]}", right=True) for bound in BOUND_COLUMNS),
    )
    cells = zip(*(_times([float(op.parts_s[bound]) for op in rows], unit) for bound in BOUND_COLUMNS), strict=True)
    return Table(
        "Bounds: time of all calls if only this limited them; fixed comes on top",
        columns,
        tuple((op.name, op.part, *times) for op, times in zip(rows, cells, strict=True)),
    )


def categories(estimate: TimedKernels) -> Table:
    """Seconds by category, and those in which no kernel runs and that no row holds."""
    found: dict[str, float] = {name: float(seconds) for name, seconds in estimate.categories.items()}
    rest = float(estimate.total_time_s + estimate.overlapped_s) - sum(found.values())
    if rest > 1e-9 * float(estimate.total_time_s):
        found["no kernel"] = rest
    unit = column_unit(list(found.values()))
    return Table(
        "Categories",
        (Column("category"), Column(f"total {unit[1]}", right=True), Column("share", right=True)),
        tuple(
            (name, text, percent(float(seconds / estimate.total_time_s)))
            for (name, seconds), text in zip(found.items(), _times(list(found.values()), unit), strict=True)
        ),
    )


def collectives(found: Sequence[CollectiveEstimate], *, gaps: bool = False) -> Table:
    """A row a kind, part, size and group; layers that do the same are added up. ``gaps``: kernels' rows hold them."""
    merged: dict[tuple[Any, ...], tuple[float, float]] = {}
    for one in found:
        key = (one.name, one.part, float(one.bytes), one.group_size, one.stride, one.link, one.fused)
        calls, seconds = merged.get(key, (0, 0.0))
        merged[key] = (calls + float(one.count), seconds + float(one.total_s))
    unit = column_unit([seconds for _, seconds in merged.values()])
    rows = []
    for (name, part, size, group, stride, link, fused), (calls, seconds) in merged.items():
        ranks = f"{group}" if stride == 1 else f"{group} (1 in {stride})"
        time = _times([seconds], unit)[0]
        rows.append((name, part, f"{calls:,.0f}", byte_size(size), ranks, link, f"({time})" if fused else time))
    columns = (
        Column("collective"),
        Column("part", breakable=True),
        Column("calls", right=True),
        Column("bytes a call", right=True),
        Column("group"),
        Column("link"),
        Column(f"total {unit[1]}", right=True),
    )
    notes = ["(time) is hidden inside a fused kernel."] if any(one.fused for one in found) else []
    if gaps:
        notes.append("Transfers alone: the rows of Kernels also hold the gap after each launch.")
    return Table("Collectives", columns, tuple(rows), note=" ".join(notes))


def _times(seconds: Sequence[float], unit: tuple[float, str]) -> list[str]:
    """A column of times, to a thousandth of its unit."""
    return [f"{value / unit[0]:,.3f}" for value in seconds]
