"""SoftmaxV2: softmax over the last dimension."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import torch
import torch.nn.functional as functional

from tools.perf_data_collection.op_replay.host import float64 as double
from tools.perf_data_collection.op_replay.host.float64 import Array, float64
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor]:
    """The tensor."""
    return (make(row.input(0, "x")),)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension."""
    return functional.softmax(x, dim=-1)


def reference(x: torch.Tensor) -> Array:
    """The same."""
    return double.softmax(float64(x))


KERNEL = Kernel("SoftmaxV2", operands, launch=softmax, host=softmax, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
