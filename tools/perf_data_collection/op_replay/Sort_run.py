"""Sort: descending along the last dimension, with the positions."""

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
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor]:
    """The tensor."""
    return (make(row.input(0, "x")),)


def sort(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and positions."""
    values, positions = torch.sort(x, dim=-1, descending=True)
    return values, positions


def reference(x: torch.Tensor) -> tuple[Array]:
    """The values; equal ones may stand in any order, so positions are not told."""
    return (-np.sort(-float64(x), axis=-1),)


KERNEL = Kernel("Sort", operands, launch=sort, host=sort, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
