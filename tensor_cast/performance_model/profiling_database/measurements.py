"""Measured rows of one kernel as sizes and seconds, grouped by layout, dtypes and widths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tensor_cast.ops import Op
from tensor_cast.performance_model.profiling_database.blocks import Block, blocks
from tensor_cast.performance_model.profiling_database.interpolation import Curve, FloatArray, Surface, surface
from tensor_cast.performance_model.profiling_database.kernels import Kernel
from tensor_cast.performance_model.profiling_database.layouts import Coordinates, Dtypes, Layout
from tensor_cast.performance_model.profiling_database.schema import PROFILE_STD
from tensor_cast.performance_model.profiling_database.statistics import duration_us
from tensor_cast.performance_model.profiling_database.store import Database, KernelRows
from tensor_cast.quantity import Quantity

SecondsOf = Callable[[Op], Quantity]
"""The analytic model: seconds of an op whose sizes may be arrays."""


@dataclass(frozen=True, eq=False)
class Measurements:
    """Rows of one kernel in one layout with the same dtypes.

    ``sizes`` has the kernel's widths and axes, ``seconds`` the measured time, ``spread`` the relative standard
    deviation that the profile states (NaN where it does not), ``lines`` (kernel type, position among its timed rows).
    """

    kernel: Kernel
    layout: Layout
    dtypes: Dtypes
    sizes: Mapping[str, FloatArray]
    seconds: FloatArray
    spread: FloatArray
    lines: Sequence[tuple[str, int]]
    analytic: SecondsOf

    @cached_property
    def logarithms(self) -> FloatArray:
        """Logarithm of measured over analytic time, a row."""
        expected = self.analytic(self.kernel.op_at(self.layout, self.sizes, self.dtypes))
        return np.log(self.seconds / expected)

    @cached_property
    def widths(self) -> FloatArray:
        """(rows, widths) of the kernel."""
        return _stacked([self.sizes[name] for name in self.kernel.widths], len(self.seconds))

    @cached_property
    def structures(self) -> tuple[FloatArray, npt.NDArray[np.intp]]:
        """The different widths that rows have, and which of them each row has."""
        distinct, place = np.unique(self.widths, axis=0, return_inverse=True)
        return distinct, place.reshape(-1)

    @cached_property
    def _surfaces(self) -> dict[int, Curve | Surface]:
        return {}

    def surface(self, structure: int) -> Curve | Surface:
        """The rows of one structure, to be interpolated along the kernel's axes."""
        if structure not in self._surfaces:
            rows = self.structures[1] == structure
            axes = [self.sizes[name][rows] for name in self.kernel.axes]
            self._surfaces[structure] = surface(axes, self.logarithms[rows])
        return self._surfaces[structure]

    def without(self, row: int) -> Measurements:
        """All but one row."""
        kept = np.arange(len(self.seconds)) != row
        reduced = Measurements(
            self.kernel,
            self.layout,
            self.dtypes,
            {name: values[kept] for name, values in self.sizes.items()},
            self.seconds[kept],
            self.spread[kept],
            [line for index, line in enumerate(self.lines) if index != row],
            self.analytic,
        )
        reduced.__dict__["logarithms"] = self.logarithms[kept]
        return reduced


def read_measurements(database: Database, kernel: Kernel, analytic: SecondsOf) -> list[Measurements]:
    """What ``database`` has of ``kernel``, preferred layouts first; only the kernel's own files are read."""
    parts: dict[tuple[int, tuple[tuple[str, str], ...]], list[_Part]] = {}
    for kernel_type in kernel.types:
        if kernel_type not in database.paths:
            continue
        rows = database.rows(kernel_type, (*kernel.columns, PROFILE_STD))
        taken = np.zeros(len(rows.keys), dtype=np.bool_)
        if not kernel.columns:
            # Of rows that say the same the first counts; attention rows of equal shapes differ in their lengths.
            taken[:] = True
            taken[list(rows.index.values())] = False
        row_blocks = blocks(rows.keys)
        for order, layout in enumerate(kernel.layouts):
            for block in row_blocks:
                found = rows_in_layout(kernel, layout, block, taken, rows.cell)
                if found is not None:
                    parts.setdefault((order, tuple(sorted(found.dtypes.items()))), []).append((rows, found))
    return [
        _joined(kernel, kernel.layouts[order], dict(dtypes), members, analytic)
        for (order, dtypes), members in sorted(parts.items(), key=lambda item: item[0][0])
    ]


@dataclass(frozen=True, eq=False)
class LayoutRows:
    """Rows of a file that have one layout: their ``positions``, sizes by name (the kernel's all there) and dtypes."""

    positions: npt.NDArray[np.intp]
    sizes: dict[str, FloatArray]
    dtypes: dict[str, str]


def rows_in_layout(
    kernel: Kernel,
    layout: Layout,
    block: Block,
    taken: npt.NDArray[np.bool_],
    cell: Callable[[str, int], str],
) -> LayoutRows | None:
    """Rows of ``block`` in ``layout`` that are not ``taken`` yet and of which all sizes are known.

    Args:
        kernel: whose rows they are.
        layout: one of its layouts.
        block: rows of equal structure.
        taken: of each row of the file, whether another layout has it; rows found here are marked in it.
        cell: text of one of the kernel's further columns, by name and position.
    """
    match = layout.match(block)
    if match is None:
        return None
    chosen = match.rows & ~taken[block.positions]
    positions = block.positions[chosen]
    if not positions.size:
        return None
    sizes: Coordinates = {name: values[chosen] for name, values in match.coordinates.items()}
    if kernel.derive is not None:
        columns = {name: tuple(cell(name, index) for index in positions.tolist()) for name in kernel.columns}
        sizes = kernel.derive(sizes, columns)
    every = {name: np.broadcast_to(np.asarray(v, dtype=np.float64), positions.shape) for name, v in sizes.items()}
    ones = np.ones(positions.shape)
    known = np.ones(positions.shape, dtype=np.bool_)
    for name in kernel.sizes:
        # A width that the layout does not name is one: a norm without heads.
        known &= every.setdefault(name, ones) > 0.0
    if not known.any():
        return None
    taken[positions[known]] = True
    return LayoutRows(positions[known], {name: values[known] for name, values in every.items()}, match.dtypes)


_Part = tuple[KernelRows, LayoutRows]
"""A file and those of its rows that have a layout."""


def _joined(
    kernel: Kernel, layout: Layout, dtypes: Dtypes, parts: Sequence[_Part], analytic: SecondsOf
) -> Measurements:
    return Measurements(
        kernel,
        layout,
        dtypes,
        {name: np.concatenate([found.sizes[name] for _, found in parts]) for name in parts[0][1].sizes},
        np.concatenate([rows.duration_us[found.positions] for rows, found in parts]) * 1e-6,
        np.concatenate([_spread(rows, found.positions) for rows, found in parts]),
        [(rows.kernel_type, int(position)) for rows, found in parts for position in found.positions],
        analytic,
    )


def _spread(rows: KernelRows, positions: npt.NDArray[np.intp]) -> FloatArray:
    deviations = (duration_us(rows.cell(PROFILE_STD, position)) for position in positions.tolist())
    values = np.array([np.nan if value is None else value for value in deviations])
    return np.where(rows.replayed[positions], np.nan, values / rows.duration_us[positions])


def _stacked(columns: Iterable[FloatArray], rows: int) -> FloatArray:
    arrays = list(columns)
    return np.stack(arrays, axis=1) if arrays else np.zeros((rows, 0))
