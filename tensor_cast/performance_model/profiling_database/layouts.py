"""How a kernel reports its operands, written once and used both ways: to read rows and to render new ones.

A layout is text such as ``m,k:x ; k/16,n/16,16,16:x@NZ ; n:x? -> m,n:x``: operands separated by ``;``, inputs before
the arrow. Of an operand,

- dimensions are numbers, names (``m``), multiples (``2*d``) or quotients rounded up (``k/16``);
- after ``:`` comes its dtype: a lower-case name that stands for the same dtype everywhere in the layout, or the
  profiler's own names (``FLOAT|BF16``); after ``:=`` what new rows get, while rows are read whatever theirs is;
- ``@NZ`` says FRACTAL_NZ; without it the operand lies in a plain format;
- ``~`` behind the dimensions: named for its shape, hardly streamed (a cache of which a few slots are written);
- ``?`` at the end: it may be left out; ``-`` alone: an optional operand that is absent.

Outputs after ``*`` are what new rows get, while rows are read whatever their outputs are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tensor_cast.performance_model.profiling_database.blocks import Block, BlockOperand
from tensor_cast.performance_model.profiling_database.shapes import RowKey
from tensor_cast.quantity import Quantity

FloatArray: TypeAlias = npt.NDArray[np.float64]
Coordinates: TypeAlias = Mapping[str, Quantity]
"""Values of a layout's dimension names."""
Dtypes: TypeAlias = Mapping[str, str]
"""The project's dtypes (``bfloat16``) of a layout's dtype names."""

DTYPE_NAMES: dict[str, tuple[str, ...]] = {
    "float32": ("FLOAT", "FLOAT32", "FP32"),
    "bfloat16": ("BF16", "BFLOAT16"),
    "float16": ("FLOAT16", "FP16"),
    "int8": ("INT8",),
    "int4": ("INT4",),
    "int32": ("INT32",),
    "int64": ("INT64",),
    "bool": ("BOOL",),
    "fp8": ("FLOAT8_E4M3FN", "FLOAT8_E5M2", "FP8", "HIFLOAT8"),
    "fp4": ("FLOAT4_E2M1", "FP4"),
    "e8m0": ("FLOAT8_E8M0",),
}
"""The project's dtypes as profilers spell them without ``DT_``, the usual spelling first."""
_PROJECT_DTYPE = {spelling: dtype for dtype, spellings in DTYPE_NAMES.items() for spelling in spellings}
_WRITTEN_DTYPE = {"bfloat16": "DT_BF16"}
"""Only bfloat16 keeps its prefix in a profiler's cells."""

_OPERAND = re.compile(
    r"(?P<dims>[^:@?~]*)(?P<untouched>~)?(:(?P<any>=)?(?P<dtype>[\w|]+))?(@(?P<format>\w+))?(?P<optional>\?)?"
)
_DIMENSION = re.compile(r"(?:(?P<factor>\d+)\*)?(?P<name>[a-z_]\w*)(?:/(?P<divisor>\d+))?|(?P<constant>\d+)")


@dataclass(frozen=True)
class Dimension:
    """``ceil(factor x name / divisor)``, or ``constant`` where there is no name."""

    name: str = ""
    factor: int = 1
    divisor: int = 1
    constant: int = 0

    @property
    def is_bare(self) -> bool:
        """Whether it is a name alone."""
        return bool(self.name) and self.factor == self.divisor == 1

    def value(self, coordinates: Coordinates) -> Quantity:
        """Its size where the names have these values."""
        if not self.name:
            return float(self.constant)
        return np.ceil(np.multiply(coordinates[self.name], self.factor / self.divisor))

    def solved(self, size: FloatArray) -> FloatArray:
        """A value of the name that gives ``size``."""
        return size * self.divisor / self.factor


@dataclass(frozen=True)
class Operand:
    """One input or output of a layout; ``None`` dimensions: absent. ``any_dtype``: ``dtype`` is of new rows alone."""

    dimensions: tuple[Dimension, ...] | None
    dtype: str = ""
    format: str = ""
    optional: bool = False
    untouched: bool = False
    any_dtype: bool = False

    def admits(self, actual: BlockOperand) -> bool:
        """Whether a reported operand may be this one, by rank and format."""
        if self.dimensions is None or actual.is_absent:
            return self.dimensions is None and actual.is_absent
        is_nz = actual.format == "FRACTAL_NZ"
        if is_nz != (self.format == "NZ"):
            return False
        return actual.rank == len(self.dimensions) if is_nz or not self.dimensions else actual.rank >= 1


@dataclass(frozen=True)
class Match:
    """Rows of a block that have a layout: the values of its names (NaN in other rows) and which rows have it."""

    coordinates: dict[str, FloatArray]
    rows: npt.NDArray[np.bool_]
    dtypes: dict[str, str]


@dataclass(frozen=True)
class Layout:
    """Operands of one form of a kernel. ``text`` is what it was written as."""

    text: str

    @cached_property
    def sides(self) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
        """Inputs and outputs that a row must have."""
        inputs, outputs = self.written_sides
        return (inputs, ()) if self._has_any_outputs else (inputs, outputs)

    @cached_property
    def written_sides(self) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
        """Inputs and outputs of a new row."""
        inputs, outputs = (
            tuple(_operand(part) for part in side.split(";")) if side.strip() else ()
            for side in self.text.replace("-> *", "->").split("->")
        )
        return inputs, outputs

    @property
    def _has_any_outputs(self) -> bool:
        return "-> *" in self.text

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Inputs, then outputs."""
        return (*self.sides[0], *self.sides[1])

    @property
    def fractal(self) -> bool:
        """Whether an operand lies in FRACTAL_NZ."""
        return any(operand.format == "NZ" for operand in self.operands)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Dimension names, in order of appearance."""
        dimensions = (d for operand in self.operands for d in operand.dimensions or ())
        return tuple(dict.fromkeys(d.name for d in dimensions if d.name))

    def match(self, block: Block) -> Match | None:
        """Rows of ``block`` that have this layout, ``None`` when none can by rank, format or dtype."""
        inputs = _paired(self.sides[0], block.inputs)
        outputs = _paired(self.sides[1], block.outputs) if self.sides[1] else []
        if inputs is None or outputs is None:
            return None
        pairs = [*inputs, *outputs]
        if not all(wanted.admits(actual) for wanted, actual in pairs):
            return None
        dtypes = _bound_dtypes(pairs)
        if dtypes is None:
            return None
        sizes: list[tuple[Dimension, FloatArray]] = []
        rows = np.ones(len(block.positions), dtype=np.bool_)
        for wanted, actual in pairs:
            columns, fits = _with_rank(block.columns(actual), len(wanted.dimensions or ()))
            if columns is None:
                return None
            rows &= fits
            sizes += zip(wanted.dimensions or (), columns, strict=True)
        values: dict[str, FloatArray] = {}
        for dimension, size in sorted(sizes, key=lambda pair: not pair[0].is_bare):
            if dimension.name and dimension.name not in values:
                values[dimension.name] = dimension.solved(size)
        for dimension, size in sizes:
            rows &= dimension.value(values) == size
        return Match(values, rows, dtypes) if rows.any() else None

    @cached_property
    def written_names(self) -> tuple[str, ...]:
        """Names that a new row needs values of."""
        dimensions = (d for side in self.written_sides for operand in side for d in operand.dimensions or ())
        return tuple(dict.fromkeys(d.name for d in dimensions if d.name))

    def render(self, coordinates: Coordinates, dtypes: Dtypes) -> RowKey:
        """The six key cells of a row, in the order of ``schema.KEY_COLUMNS``; every name must have a scalar value."""
        return self.render_all(coordinates, dtypes)[0]

    def render_all(self, coordinates: Coordinates, dtypes: Dtypes) -> list[RowKey]:
        """The key cells of many rows, one for each element of the names' arrays, which broadcast to one dimension."""
        sides = []
        for side in self.written_sides:
            operands = [operand for operand in side if not operand.optional]
            dtype_cell = ";".join(_written_dtype(operand, dtypes) for operand in operands)
            format_cell = ";".join(_written_format(operand) for operand in operands)
            sides.append((_shape_cells(operands, coordinates), dtype_cell, format_cell))
        (inputs, input_dtypes, input_formats), (outputs, output_dtypes, output_formats) = sides
        rows = max(len(inputs), len(outputs))
        inputs, outputs = (cells * rows if len(cells) == 1 else cells for cells in (inputs, outputs))
        return [
            (shapes, input_dtypes, input_formats, out_shapes, output_dtypes, output_formats)
            for shapes, out_shapes in zip(inputs, outputs, strict=True)
        ]


@lru_cache(maxsize=256)
def layouts(*texts: str) -> tuple[Layout, ...]:
    """Layouts of these texts, preferred ones first."""
    return tuple(Layout(text) for text in texts)


def spellings(dtype: str) -> tuple[str, ...]:
    """How profilers spell one of the project's dtypes."""
    return DTYPE_NAMES.get(dtype, (dtype.upper(),))


def _operand(text: str) -> Operand:
    bare = "".join(text.split())
    if bare == "-":
        return Operand(None)
    found = _OPERAND.fullmatch(bare)
    assert found, f"layout operand {text!r}"
    dims = tuple(_dimension(part) for part in found["dims"].split(",") if part)
    return Operand(
        dimensions=dims,
        dtype=found["dtype"] or "",
        format=found["format"] or "",
        optional=bool(found["optional"]),
        untouched=bool(found["untouched"]),
        any_dtype=bool(found["any"]),
    )


def _dimension(text: str) -> Dimension:
    found = _DIMENSION.fullmatch(text)
    assert found, f"layout dimension {text!r}"
    if found["constant"]:
        return Dimension(constant=int(found["constant"]))
    return Dimension(found["name"], int(found["factor"] or 1), int(found["divisor"] or 1))


def _paired(wanted: Sequence[Operand], actual: Sequence[BlockOperand]) -> list[tuple[Operand, BlockOperand]] | None:
    """Operands beside what was reported; trailing optional and absent ones need not be reported."""
    if len(actual) > len(wanted):
        if not all(operand.is_absent for operand in actual[len(wanted) :]):
            return None
        actual = actual[: len(wanted)]
    if any(operand.dimensions and not operand.optional for operand in wanted[len(actual) :]):
        return None
    return list(zip(wanted, actual, strict=False))


def _bound_dtypes(pairs: Iterable[tuple[Operand, BlockOperand]]) -> dict[str, str] | None:
    """Project dtypes of a layout's dtype names, ``None`` if one operand contradicts."""
    bound: dict[str, str] = {}
    for wanted, actual in pairs:
        if not wanted.dtype or wanted.any_dtype or wanted.dimensions is None or not actual.dtype:
            continue
        if not wanted.dtype[0].islower():
            if actual.dtype not in wanted.dtype.split("|"):
                return None
            continue
        dtype = _PROJECT_DTYPE.get(actual.dtype)
        if dtype is None or bound.setdefault(wanted.dtype, dtype) != dtype:
            return None
    return bound


def _with_rank(
    columns: list[FloatArray], rank: int
) -> tuple[list[FloatArray] | None, npt.NDArray[np.bool_] | np.bool_]:
    """Columns merged to ``rank`` of them, and in which rows that only drops dimensions of size 1.

    A profiler may report (1, T, D) or (T, 1, D) where the kernel works on (T, D).
    """
    excess = len(columns) - rank
    if excess == 0:
        return columns, np.True_
    if excess < 0 or rank == 0:
        return None, np.False_
    leading = columns[: excess + 1]
    merged, largest = product_of(leading), leading[0]
    for column in leading[1:]:
        largest = np.maximum(largest, column)
    return [merged, *columns[excess + 1 :]], merged == largest


def product_of(columns: Iterable[FloatArray]) -> FloatArray:
    """Product of columns, element by element."""
    total: FloatArray = np.ones(1)
    for column in columns:
        total = total * column
    return total


def _shape_cells(operands: Sequence[Operand], coordinates: Coordinates) -> list[str]:
    template = ";".join(",".join("%d" for _ in operand.dimensions or ()) for operand in operands)
    columns = [
        np.atleast_1d(np.asarray(dimension.value(coordinates), dtype=np.int64))
        for operand in operands
        for dimension in operand.dimensions or ()
    ]
    if not columns:
        return [f'"{template}"']
    return [f'"{template % row}"' for row in zip(*map(np.ndarray.tolist, np.broadcast_arrays(*columns)), strict=True)]


def _written_dtype(operand: Operand, dtypes: Dtypes) -> str:
    if operand.dimensions is None:
        return "DT_UNDEFINED"
    if not operand.dtype[0].islower():
        spelling = operand.dtype.split("|")[0]
        return f"DT_{spelling}" if spelling == "BF16" else spelling
    dtype = dtypes[operand.dtype]
    return _WRITTEN_DTYPE.get(dtype, spellings(dtype)[0])


def _written_format(operand: Operand) -> str:
    if operand.dimensions is None:
        return "NULL"
    return "FRACTAL_NZ" if operand.format == "NZ" else "ND"


def project_dtype(spelling: str) -> str | None:
    """The project's name of a dtype as profilers spell it without ``DT_``; ``None``: it has none."""
    return _PROJECT_DTYPE.get(spelling)
