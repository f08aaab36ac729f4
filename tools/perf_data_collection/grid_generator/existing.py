"""What a database file already has: layouts and dtypes of its rows, their sizes, and which of them are timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensor_cast.performance_model.profiling_database.blocks import blocks
from tensor_cast.performance_model.profiling_database.kernels import Kernel
from tensor_cast.performance_model.profiling_database.layouts import Layout
from tensor_cast.performance_model.profiling_database.measurements import LayoutRows, rows_in_layout
from tensor_cast.performance_model.profiling_database.shapes import key_of
from tensor_cast.performance_model.profiling_database.statistics import latency_us
from tensor_cast.performance_model.profiling_database.table import Table
from tools.perf_data_collection.grid_generator.candidates import Structure

_RESULT_DTYPES = ("y", "z")
"""Names of dtypes that do not tell two rows apart: what a result or a cache is kept in."""

Variant = tuple[Layout, tuple[tuple[str, str], ...]]
"""A layout with the dtypes of its names."""
Identity = tuple[bool, tuple[tuple[str, str], ...], bytes]
"""Whether a row's weight is FRACTAL_NZ, its dtypes and its sizes."""


@dataclass
class ExistingRows:
    """Rows of one kernel in a file."""

    kernel: Kernel
    variants: Counter[Variant] = field(default_factory=Counter)
    identities: set[Identity] = field(default_factory=set)
    structures: dict[tuple[float, ...], Variant] = field(default_factory=dict)
    timed: set[Structure] = field(default_factory=set)
    present: set[Structure] = field(default_factory=set)


def existing_rows(table: Table, kernels: Sequence[Kernel]) -> list[ExistingRows]:
    """The rows of ``table`` by kernel; each row counts for the first kernel and layout that it has."""
    cells = [table.cells(row) for row in table.rows]
    row_blocks = blocks([key_of(row) for row in cells])
    timed = np.array([latency_us(row) is not None for row in cells], dtype=np.bool_)
    taken = np.zeros(len(cells), dtype=np.bool_)
    found = []
    for kernel in kernels:
        existing = ExistingRows(kernel)
        for layout in kernel.layouts:
            for block in row_blocks:
                rows = rows_in_layout(kernel, layout, block, taken, lambda name, row: cells[row].get(name, ""))
                if rows is not None:
                    _add(existing, layout, rows, timed)
        found.append(existing)
    return found


def identity(layout: Layout, dtypes: Mapping[str, str], sizes: np.typing.NDArray[np.float64]) -> list[Identity]:
    """Identities of rows with ``sizes`` (rows, widths and axes of the kernel)."""
    named = {operand.dtype for operand in layout.operands}
    told = tuple((name, dtype) for name, dtype in told_dtypes(dtypes) if name in named)
    return [(layout.fractal, told, row.tobytes()) for row in np.ascontiguousarray(sizes, dtype=np.float64)]


def told_dtypes(dtypes: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Dtypes that tell kernels apart, as ``Structure`` has them."""
    return tuple(sorted((name, dtype) for name, dtype in dtypes.items() if name not in _RESULT_DTYPES))


def _add(existing: ExistingRows, layout: Layout, rows: LayoutRows, timed: np.typing.NDArray[np.bool_]) -> None:
    kernel = existing.kernel
    sizes = np.stack([rows.sizes[name] for name in kernel.sizes], axis=1)
    variant: Variant = (layout, tuple(sorted(rows.dtypes.items())))
    existing.variants[variant] += len(sizes)
    existing.identities.update(identity(layout, rows.dtypes, sizes))
    for row, is_timed in zip(sizes.tolist(), timed[rows.positions], strict=True):
        widths = tuple(row[: len(kernel.widths)])
        existing.structures.setdefault(widths, variant)
        structure = Structure(kernel, widths, told_dtypes(rows.dtypes))
        existing.present.add(structure)
        if is_timed:
            existing.timed.add(structure)
