"""When a measured kernel and a database row are the same: the signature of their operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tensor_cast.performance_model.profiling_database.schema import KEY_COLUMNS
from tensor_cast.performance_model.profiling_database.shapes import (
    canonical_dtypes,
    canonical_formats,
    canonical_shapes,
    is_missing,
)
from tools.perf_data_collection.op_replay.rows import EP_SIZE

Signature: TypeAlias = tuple[str, ...]
"""Normalised input shapes, dtypes and formats, output shapes and dtypes; for DispatchFFNCombine the EP size too."""

MATMUL_FAMILY = ("MatMulV2", "MatMulV3", "MatMulCommon")
"""torch.mm launches any of the three, as CANN chooses by size."""
DISPATCH_FFN_COMBINE = "DispatchFFNCombine"
FIRST_INPUT_ONLY = ("Slice", "SliceAiCore", "Transpose", "TransposeAiCore")

COARSE = frozenset({*MATMUL_FAMILY, *FIRST_INPUT_ONLY, "Index"})
"""Kernels of which rows spelt differently are the same work, so that one measurement serves them."""


def signature(kernel_type: str, cells: Mapping[str, str]) -> Signature:
    """The signature of a row given as column name to text.

    Output formats do not count, dtypes and formats of empty entries neither. Kernels that a replay launches with
    other parameter operands than a model did are compared by the operands that decide their work.
    """
    inputs, dtypes, formats = _side(*(cells.get(name, "") for name in KEY_COLUMNS[:3]))
    outputs, output_dtypes, _ = _side(*(cells.get(name, "") for name in KEY_COLUMNS[3:]))
    if kernel_type in MATMUL_FAMILY:
        inputs, dtypes, formats, outputs = _matrix_product(inputs, dtypes, formats, outputs)
    elif kernel_type == "Index" and inputs and outputs:
        length = outputs[0].split(",")[0]
        inputs, dtypes, formats = [inputs[0], length], [dtypes[0], dtypes[-1]], [formats[0], formats[-1]]
    elif kernel_type in FIRST_INPUT_ONLY and inputs:
        inputs, dtypes, formats = inputs[:1], dtypes[:1], ["ND"]
    found = tuple(_joined(part) for part in (inputs, dtypes, formats, outputs, output_dtypes))
    return (*found, cells.get(EP_SIZE, "").strip()) if kernel_type == DISPATCH_FFN_COMBINE else found


def has_no_shapes(cells: Mapping[str, str]) -> bool:
    """Whether the profiler knew no operands, as for kernels launched through a raw handler."""
    return is_missing(cells.get(KEY_COLUMNS[0], "")) and is_missing(cells.get(KEY_COLUMNS[3], ""))


def _side(shapes: str, dtypes: str, formats: str) -> tuple[list[str], list[str], list[str]]:
    """Entries of three parallel cells; an empty shape blanks what is beside it, trailing empty entries are gone."""
    entries = canonical_shapes(shapes).split(";") if canonical_shapes(shapes) else []
    return entries, _beside(entries, canonical_dtypes(dtypes)), _beside(entries, canonical_formats(formats))


def _beside(entries: list[str], text: str) -> list[str]:
    words = text.split(";")
    words += [""] * (len(entries) - len(words))
    return [word if entry else "" for entry, word in zip(entries, words, strict=False)]


def _matrix_product(
    inputs: list[str], dtypes: list[str], formats: list[str], outputs: list[str]
) -> tuple[list[str], list[str], list[str], list[str]]:
    """M,K;N,K -> M,N for a two-dimensional product however its operands are stored; a bias does not count."""
    shapes = [entry.split(",") for entry in (*inputs[:2], *outputs[:1])]
    if len(inputs) >= 2 and len(outputs) == 1 and [len(shape) for shape in shapes] == [2, 2, 2]:
        left, right, (rows, columns) = shapes
        inner = left[1] if left[0] == rows else left[0]
        if sorted(left) == sorted((rows, inner)) and sorted(right) == sorted((columns, inner)):
            return [f"{rows},{inner}", f"{columns},{inner}"], dtypes[:2], formats[:2], outputs
    return inputs, dtypes, formats, outputs


def _joined(entries: list[str]) -> str:
    return ";".join(entries).rstrip(";")
