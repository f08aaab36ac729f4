"""New rows as a file has them: shapes, dtypes and formats, no durations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tensor_cast.performance_model.profiling_database.kernels_attention import LATENT_ATTENTION
from tensor_cast.performance_model.profiling_database.schema import (
    CORE_COLUMN,
    FUSED_ATTENTION,
    KEY_COLUMNS,
    STATE_COLUMN,
    kernel_columns,
    with_columns,
)
from tensor_cast.performance_model.profiling_database.table import Table
from tools.perf_data_collection.fia_common import paged_lengths, runtime_cells

if TYPE_CHECKING:
    from tools.perf_data_collection.grid_generator.grid import Batch

EP_SIZE = "EP Size"
_LENGTH_KERNELS = ("LightningIndexer", "SparseFlashAttention")


def new_table(table: Table, kernel_type: str, batches: Sequence[Batch]) -> Table:
    """``table`` with the rows of ``batches`` behind its own, which stay as they are.

    State and core of a new row are those of the file's first row; durations and counters stay empty.
    """
    extra = [_extra_cells(kernel_type, batch) for batch in batches]
    wanted = list(table.columns) or list(kernel_columns(kernel_type))
    named = dict.fromkeys(name for cells in extra for row in cells for name in row)
    columns = with_columns(wanted, (*KEY_COLUMNS, *named))
    position = {name: index for index, name in enumerate(columns)}
    rows = [_widened(row, table.columns, position) for row in table.rows]
    template = table.cells(table.rows[0]) if table.rows else {}
    base = {name: template.get(name, "") for name in (STATE_COLUMN, CORE_COLUMN) if name in position}
    for batch, cells_of_rows in zip(batches, extra, strict=True):
        layout, dtypes = batch.layout_dtypes
        order = np.lexsort(batch.sizes.T[::-1])
        keys = layout.render_all(batch.filled, dict(dtypes))
        for index in order.tolist():
            row = [""] * len(columns)
            cells = {**base, **dict(zip(KEY_COLUMNS, keys[index], strict=True)), **cells_of_rows[index]}
            for name, cell in cells.items():
                row[position[name]] = cell
            rows.append(row)
    return Table(columns, rows)


def _widened(row: list[str], old_columns: Sequence[str], position: Mapping[str, int]) -> list[str]:
    wide = [""] * len(position)
    for name, cell in zip(old_columns, row, strict=True):
        wide[position[name]] = cell
    return wide


def _extra_cells(kernel_type: str, batch: Batch) -> list[dict[str, str]]:
    """Cells beside shapes that a row needs to be replayed and to be found again."""
    rows = len(batch.sizes)
    if kernel_type == FUSED_ATTENTION:
        layout = batch.layout_dtypes[0]
        names = set(layout.names)
        return [
            runtime_cells(
                _row(batch, index),
                input_layout=_input_layout(batch),
                paged="nb" in names,
                masked="mask" in names,
            )
            for index in range(rows)
        ]
    if kernel_type in _LENGTH_KERNELS:
        return [paged_lengths(_with_lengths(_row(batch, index))) for index in range(rows)]
    if kernel_type == "DispatchFFNCombine":
        return [{EP_SIZE: str(int(_row(batch, index)["ep"]))} for index in range(rows)]
    return [{} for _ in range(rows)]


def _input_layout(batch: Batch) -> str:
    if batch.kernel is not LATENT_ATTENTION:
        return "TND"
    output = batch.layout_dtypes[0].written_sides[1][0]
    assert output.dimensions is not None
    return "BNSD" if output.dimensions[0].name == "b" else "BNSD_NBSD"


def _row(batch: Batch, index: int) -> dict[str, float]:
    return {name: float(values[index]) for name, values in batch.filled.items()}


def _with_lengths(sizes: dict[str, float]) -> dict[str, float]:
    """A sparse attention's sequences fill their block tables."""
    return {"kv": sizes["mb"] * sizes["bs"], **sizes}
