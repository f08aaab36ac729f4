"""The ``Runtime`` columns of FusedInferAttentionScore, as far as shapes and the operator's own record tell them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.kernels_attention import (
    BLOCK_TABLE,
    KV_LENGTHS,
    QUERY_LENGTHS,
)
from tensor_cast.performance_model.profiling_database.schema import FUSED_ATTENTION, RUNTIME_COMPLETENESS
from tensor_cast.performance_model.profiling_database.shapes import RowKey, is_missing, row_key
from tensor_cast.performance_model.profiling_database.table import read_table

OPERATOR_DETAILS = "operator_details.csv"
_OPERATOR_NAME_COLUMNS = ("Type", "Name", "Op Type", "Op Name", "Operator Type", "Operator Name")
_SLOTS = {
    "Runtime actual_seq_lengths_shape": QUERY_LENGTHS,
    "Runtime actual_seq_lengths_kv_shape": KV_LENGTHS,
    "Runtime block_table_shape": BLOCK_TABLE,
}


def runtime_of(rows: Iterable[tuple[str, ...]], profile: Path) -> tuple[dict[RowKey, dict[str, str]], str | None]:
    """The ``Runtime`` cells of each attention key in a profile, and a warning if its rows could not all be paired.

    ``rows`` are the key cells of the profile's attention rows in order. When ``operator_details.csv`` lies beside the
    profile, its attention operators are paired with the rows by order and their shapes are used; the first row of a
    key decides.
    """
    kernels = list(rows)
    operators, warning = _operator_shapes(profile.parent / OPERATOR_DETAILS) if kernels else ([], None)
    if operators and len(operators) != len(kernels):
        warning = (
            f"{profile.parent / OPERATOR_DETAILS} has {len(operators)} attention operators for {len(kernels)} "
            f"attention kernels: only the first {min(len(operators), len(kernels))} are paired."
        )
    runtime: dict[RowKey, dict[str, str]] = {}
    for cells, operator in zip_longest(kernels, operators[: len(kernels)]):
        shapes = cells[0] if operator is None else operator
        runtime.setdefault(row_key(*cells), _runtime_cells(shapes, profile.absolute().parent.name))
    return runtime, warning


def _runtime_cells(shapes: str, source: str) -> dict[str, str]:
    slots = shapes.strip().strip('"').split(";")
    lengths = {
        column: slots[slot].replace(" ", "") for column, slot in _SLOTS.items() if slot < len(slots) and slots[slot]
    }
    return {"Runtime source_profile": source, **lengths, RUNTIME_COMPLETENESS: "profile_shapes_only"}


def _operator_shapes(path: Path) -> tuple[list[str], str | None]:
    if not path.is_file():
        return [], None
    try:
        table = read_table(path)
    except ModelingError as error:
        return [], f"The lengths in {path.name} are not used: {error}"
    if "Input Shapes" not in table.columns:
        return [], None
    names = [table.columns.index(name) for name in _OPERATOR_NAME_COLUMNS if name in table.columns]
    shapes = table.columns.index("Input Shapes")
    return [
        row[shapes]
        for row in table.rows
        if any(_is_attention(row[name]) for name in names) and not is_missing(row[shapes])
    ], None


def _is_attention(name: str) -> bool:
    return FUSED_ATTENTION.lower() in re.sub(r"[^0-9a-z]", "", name.lower())
