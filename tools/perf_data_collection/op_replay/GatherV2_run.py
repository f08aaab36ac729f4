"""GatherV2: rows of a table by index, as an embedding looks them up."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import torch
import torch.nn.functional as functional

from tools.perf_data_collection.op_replay.host.float64 import Array, float64, whole
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices and the table (V, D); an axis beside them is always 0."""
    table, indices = row.input(0, "weight", 2), row.input(1, "indices")
    values = make.filled(indices.shape, torch.int64) % table.shape[0]
    return make.integers(values, indices), make(table)


def embedding(indices: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """The rows."""
    return functional.embedding(indices, table)


def reference(indices: torch.Tensor, table: torch.Tensor) -> Array:
    """The rows."""
    return float64(table)[whole(indices)]


KERNEL = Kernel("GatherV2", operands, launch=embedding, host=embedding, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
