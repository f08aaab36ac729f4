"""BatchMatMulV2: products of batches of matrices."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import torch

from tools.perf_data_collection.op_replay.host.float64 import Array, float64
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.products import right_side
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, torch.Tensor]:
    """a (…, M, K) and b (…, K, N); two-dimensional b is stored (N, K), in a batch the output tells how."""
    a, b = make(row.input(0, "a")), make(row.input(1, "b"))
    return a, right_side(b, a.shape[-1], row.output(0, "y").shape[-1]) if b.dim() == 2 else _batched(row, a, b)


def _batched(row: ReplayRow, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    inner, columns = a.shape[-1], row.output(0, "y").shape[-1]
    return b if tuple(b.shape[-2:]) == (inner, columns) else right_side(b, inner, columns)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a times b."""
    return torch.matmul(a, b)


def reference(a: torch.Tensor, b: torch.Tensor) -> Array:
    """a times b."""
    return float64(a) @ float64(b)


KERNEL = Kernel("BatchMatMulV2", operands, launch=product, host=product, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
