"""The text of shapes, dtypes and formats: reading it, writing it, and when two texts mean the same.

A cell lists tensors separated by ``;`` and dimensions by ``,``. The profiler writes shape cells with one pair of
literal double quotes inside the value, so ``"4096;"`` is a tensor and an empty entry. An empty entry is a rank-0
tensor or an absent optional one; only the dtype beside it tells (``DT_UNDEFINED`` is absent).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.schema import KEY_COLUMNS

RowKey: TypeAlias = tuple[str, str, str, str, str, str]
"""Canonical shapes, dtypes and formats of inputs and outputs, in the order of ``schema.KEY_COLUMNS``."""

_DROPPED = str.maketrans("", "", "\"'() \t")
_NOTHING = frozenset({"", "N/A", "NA", "NULL", "NONE"})
_ABSENT_DTYPES = _NOTHING | {"UNDEFINED"}


@dataclass(frozen=True)
class Tensor:
    """One operand of a kernel as the profiler reports it; ``shape`` is ``()`` for a scalar."""

    shape: tuple[int, ...]
    dtype: str
    format: str


def is_missing(text: str) -> bool:
    """Whether a cell says that the profiler knows no shapes, as for collectives and raw launches.

    An empty cell is not missing: a kernel may have no inputs.
    """
    return text.translate(_DROPPED).upper() in ("N/A", "NA")


def canonical_shapes(text: str) -> str:
    """Shapes without quotes, spaces, spelt-out nothings and trailing empty entries."""
    bare = text.translate(_DROPPED)
    if bare.isascii() and not bare.replace(",", "").replace(";", "").isdigit():
        bare = ";".join("" if entry.upper() in _NOTHING else entry for entry in bare.split(";"))
    return bare.rstrip(";")


@lru_cache(maxsize=65536)
def canonical_dtypes(text: str) -> str:
    """Dtypes in upper case without ``DT_``; absent entries are empty, trailing ones gone."""
    entries = (entry.removeprefix("DT_") for entry in text.translate(_DROPPED).upper().split(";"))
    return ";".join("" if entry in _ABSENT_DTYPES else entry for entry in entries).rstrip(";")


@lru_cache(maxsize=65536)
def canonical_formats(text: str) -> str:
    """Formats in upper case without ``FORMAT_``; absent entries are empty, trailing ones gone."""
    entries = (entry.removeprefix("FORMAT_") for entry in text.translate(_DROPPED).upper().split(";"))
    return ";".join("" if entry in _NOTHING else entry for entry in entries).rstrip(";")


def row_key(
    input_shapes: str,
    input_dtypes: str,
    input_formats: str,
    output_shapes: str,
    output_dtypes: str,
    output_formats: str,
) -> RowKey:
    """The identity of a row: equal for two spellings of the same operands."""
    return (
        canonical_shapes(input_shapes),
        canonical_dtypes(input_dtypes),
        canonical_formats(input_formats),
        canonical_shapes(output_shapes),
        canonical_dtypes(output_dtypes),
        canonical_formats(output_formats),
    )


def key_of(cells: Mapping[str, str]) -> RowKey:
    """The identity of a row given as column name to text; a column that is not there counts as empty."""
    return row_key(*(cells.get(column, "") for column in KEY_COLUMNS))


def quoted_shapes(text: str) -> str:
    """Shape text with the literal quotes that database files carry."""
    bare = text.strip()
    return bare if len(bare) >= 2 and bare[0] == bare[-1] == '"' else f'"{bare.strip(chr(34))}"'


def parse_shapes(text: str) -> tuple[tuple[int, ...], ...]:
    """Dimensions of each entry of a shape cell; an empty entry is ``()``.

    Raises:
        ModelingError: a dimension is not a whole number.
    """
    bare = text.translate(_DROPPED)
    try:
        return tuple(
            () if entry.upper() in _NOTHING else tuple(int(size) for size in entry.split(","))
            for entry in bare.split(";")
        )
    except ValueError:
        raise ModelingError(
            f'Shapes {text!r} cannot be read: write whole dimensions separated by "," and tensors by ";".'
        ) from None


def parse_tensors(shapes: str, dtypes: str, formats: str) -> tuple[Tensor | None, ...]:
    """The tensors of one side of a row, ``None`` for an absent optional operand.

    Raises:
        ModelingError: the shapes cannot be read.
    """
    sizes = parse_shapes(shapes)
    dtype_names = canonical_dtypes(dtypes).split(";")
    format_names = canonical_formats(formats).split(";")
    return tuple(
        None if not size and not dtype else Tensor(size, dtype, format_name)
        for size, dtype, format_name in zip(
            sizes, _padded(dtype_names, len(sizes)), _padded(format_names, len(sizes)), strict=True
        )
    )


def _padded(entries: list[str], length: int) -> list[str]:
    return [*entries, *[""] * (length - len(entries))][:length]
