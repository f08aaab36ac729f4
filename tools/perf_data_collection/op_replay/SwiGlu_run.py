"""SwiGlu: silu of the first half of the last dimension times the second half."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import torch

from tools.perf_data_collection.op_replay.host import float64 as double
from tools.perf_data_collection.op_replay.host.float64 import Array, float64
from tools.perf_data_collection.op_replay.host.pieces import swiglu
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor]:
    """x (…, 2D)."""
    return (make(row.input(0, "x")),)


def launch(x: torch.Tensor) -> object:
    """The halves of the last dimension."""
    return npu_function("npu_swiglu")(x, dim=-1)


def reference(x: torch.Tensor) -> Array:
    """The same."""
    return double.swiglu(float64(x))


KERNEL = Kernel("SwiGlu", operands, launch=launch, host=swiglu, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
