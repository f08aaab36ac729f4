"""ArgMaxV2: the position of the largest element along the last dimension."""

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
    """The tensor; an axis that a profile records beside it is always the last."""
    return (make(row.input(0, "x")),)


def argmax(x: torch.Tensor) -> torch.Tensor:
    """The position of the largest element."""
    return torch.argmax(x, dim=-1)


def reference(x: torch.Tensor) -> Array:
    """The position of the largest element."""
    return np.asarray(np.argmax(float64(x), axis=-1))


KERNEL = Kernel("ArgMaxV2", operands, launch=argmax, host=argmax, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
