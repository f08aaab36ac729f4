"""TransposeBatchMatMul: a batch of products whose result has batch and rows exchanged."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import numpy as np
import torch

from tools.perf_data_collection.op_replay.host.float64 import Array, float64
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main

AS_STORED = [0, 1, 2]
ROWS_FIRST = [1, 0, 2]


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, torch.Tensor]:
    """a (B, M, K) and b (B, K, N)."""
    return make(row.input(0, "a", 3)), make(row.input(1, "b", 3))


def launch(a: torch.Tensor, b: torch.Tensor) -> object:
    """The result is (M, B, N)."""
    return npu_function("npu_transpose_batchmatmul")(
        a, b, bias=None, scale=None, perm_x1=AS_STORED, perm_x2=AS_STORED, perm_y=ROWS_FIRST, batch_split_factor=1
    )


def host(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same."""
    return torch.bmm(a, b).transpose(0, 1).contiguous()


def reference(a: torch.Tensor, b: torch.Tensor) -> Array:
    """The same."""
    return np.asarray(np.einsum("bmk,bkn->mbn", float64(a), float64(b)))


KERNEL = Kernel("TransposeBatchMatMul", operands, launch=launch, host=host, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
