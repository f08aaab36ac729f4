"""ScatterNdUpdate: rows of a tensor replaced, in place."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import numpy as np
import torch

from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host.float64 import Array, float64, whole
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """data (S, …), indices (n, 1), each row once, and updates (n, …)."""
    data, indices = row.input(0, "data"), row.input(1, "indices", 2)
    count, depth = indices.shape
    if depth != 1 or count > data.shape[0]:
        raise RowError(f"Indices {indices.shape} do not name different rows of {data.shape}: they must be n,1.")
    return make(data), make.integers(torch.arange(count), indices), make(row.input(2, "updates"))


def launch(data: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> object:
    """In place: the other call copies data first, which is a TensorMove of its own."""
    return npu_function("npu_scatter_nd_update_")(data, indices, updates)


def host(data: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
    """The same."""
    return data.index_copy_(0, indices[:, 0].long(), updates)


def reference(data: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> Array:
    """The same."""
    result = float64(data).copy()
    result[whole(indices)[:, 0]] = float64(updates)
    return np.asarray(result)


KERNEL = Kernel("ScatterNdUpdate", operands, launch=launch, host=host, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
