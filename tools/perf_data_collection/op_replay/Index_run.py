"""Index: rows of a tensor by an index tensor."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import torch

from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host.float64 import Array, float64, whole
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, torch.Tensor]:
    """Source and index 0 … n-1; the two entries between them describe which dimensions are indexed."""
    source, count = row.input(0, "source"), row.output(0, "y").shape[0]
    if count > source.shape[0]:
        raise RowError(f"{count} different rows cannot be taken out of {source.shape[0]}.")
    last = row.inputs[-1] if len(row.inputs) > 1 else None
    dtype = torch.int32 if last is not None and last.dtype == "INT32" else torch.int64
    return make(source), make.place(torch.arange(count, dtype=dtype))


def index(source: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The rows."""
    return source[rows]


def reference(source: torch.Tensor, rows: torch.Tensor) -> Array:
    """The rows."""
    return float64(source)[whole(rows)]


KERNEL = Kernel("Index", operands, launch=index, host=index, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
