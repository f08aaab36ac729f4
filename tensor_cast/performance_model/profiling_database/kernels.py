"""What a kernel of the device is to the lookup: its files, how it reports operands, which sizes tell its time.

A launch is a kernel with sizes: what an op of the model asks the database for. The same sizes are read from rows and,
for a shape grid, written into rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tensor_cast.dtypes import BYTES
from tensor_cast.ops import Elementwise, Op, Tensor
from tensor_cast.performance_model.profiling_database.layouts import (
    Coordinates,
    Dtypes,
    Layout,
    Operand,
    project_dtype,
)
from tensor_cast.quantity import Quantity

OpOf: TypeAlias = Callable[[Coordinates, Dtypes], Op]
Columns: TypeAlias = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class Kernel:
    """One kind of kernel.

    Args:
        types: kernel types whose files hold its rows; which of them runs is the library's choice by size.
        layouts: how it may report its operands, the likeliest first; rows of different layouts never mix.
        axes: sizes that a step's tokens and context decide: measured points are interpolated along these.
        widths: sizes that the model and its deployment decide: equal, or another kernel is spoken of.
        op: the op that the analytic model times in its place; ``None``: a vector kernel that streams its operands.
        flops: vector FLOPs an element of the first operand, where ``op`` is ``None``.
        flat: whether it sees its operands as one run of elements, where ``op`` is ``None``.
        columns: further columns of its file, which ``derive`` turns into sizes that shapes do not tell.
        derive: sizes from those that a layout names; rows where one is NaN are not used.
        expand: the other way: a layout's names from widths, axes and what is free (the width of a head, a pool).
    """

    types: tuple[str, ...]
    layouts: tuple[Layout, ...]
    axes: tuple[str, ...]
    widths: tuple[str, ...]
    op: OpOf | None = None
    flops: float = 1.0
    flat: bool = False
    columns: tuple[str, ...] = ()
    derive: Callable[[Coordinates, Columns], Coordinates] | None = None
    expand: Callable[[Coordinates], Coordinates] | None = None

    @property
    def name(self) -> str:
        """The first of its types stands for all."""
        return self.types[0]

    @property
    def sizes(self) -> tuple[str, ...]:
        """Widths, then axes."""
        return (*self.widths, *self.axes)

    def op_at(self, layout: Layout, coordinates: Coordinates, dtypes: Dtypes) -> Op:
        """The op of these sizes, for the analytic model."""
        if self.op is not None:
            return self.op(coordinates, dtypes)
        if self.expand is not None:
            coordinates = {**coordinates, **self.expand(coordinates)}
        return streamed(self, layout, coordinates, dtypes)


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel with sizes; axes may be arrays of a sweep's points. ``dtypes`` are those of the layouts' dtype names."""

    kernel: Kernel
    coordinates: Mapping[str, Quantity]
    dtypes: Dtypes = field(default_factory=dict)


Form: TypeAlias = tuple[Launch, ...]
"""Kernels that together do what one op does, one after another."""
FormsOf: TypeAlias = Callable[[Op], tuple[Form, ...]]
"""The ways in which an op may be launched, the likeliest first; none when this op has no kernel of its own."""


def streamed(kernel: Kernel, layout: Layout, coordinates: Coordinates, dtypes: Dtypes) -> Elementwise:
    """A vector kernel that reads and writes each operand of a layout once."""
    inputs, outputs = (
        tuple(_tensor(operand, coordinates, dtypes) for operand in side if _is_streamed(operand))
        for side in layout.sides
    )
    elements = next((tensor.elements for tensor in (*inputs, *outputs)), 0.0)
    flops = kernel.flops * elements
    return Elementwise(name=kernel.name, part="", inputs=inputs, outputs=outputs, flops=flops, flat=kernel.flat)


def _is_streamed(operand: Operand) -> bool:
    return operand.dimensions is not None and not operand.optional and not operand.untouched


def _tensor(operand: Operand, coordinates: Coordinates, dtypes: Dtypes) -> Tensor:
    shape = tuple(np.asarray(d.value(coordinates), dtype=np.float64) for d in operand.dimensions or ())
    return Tensor(shape, _dtype(operand.dtype, dtypes))


def _dtype(name: str, dtypes: Dtypes) -> str:
    if not name:
        return dtypes.get("x", "bfloat16")
    dtype = dtypes.get(name, "bfloat16") if name[0].islower() else project_dtype(name.split("|")[0]) or "bfloat16"
    return dtype if dtype in BYTES else "bfloat16"


def numbers(cells: Iterable[str]) -> npt.NDArray[np.float64]:
    """Cells as numbers, NaN where they are none."""
    return np.array([_number(cell) for cell in cells], dtype=np.float64)


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")
