"""MaskedFill: zeros where a mask is true, in place."""

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


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, torch.Tensor]:
    """x and a boolean mask, whatever dtype the row records for it."""
    mask = make.filled(row.input(1, "mask").shape, torch.bool)
    return make(row.input(0, "x")), make.place(mask)


def masked_fill(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """x with zeros in it."""
    return x.masked_fill_(mask, 0)


def reference(x: torch.Tensor, mask: torch.Tensor) -> Array:
    """The same."""
    return np.where(float64(mask) != 0, 0.0, float64(x))


KERNEL = Kernel("MaskedFill", operands, launch=masked_fill, host=masked_fill, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
