"""InterleaveRope: rotary embedding of vectors whose pairs lie side by side."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import numpy as np
import torch

from tools.perf_data_collection.op_replay.host.float64 import Array, float64
from tools.perf_data_collection.op_replay.host.pieces import interleaved_rope
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x (B, N, S, D), cos and sin (B, 1, S, D)."""
    return make(row.input(0, "x", 4)), make(row.input(1, "cos", 4)), make(row.input(2, "sin", 4))


def launch(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> object:
    """The rotated vectors, their pairs half a row apart."""
    return npu_function("npu_interleave_rope")(x, cos, sin)


def reference(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Array:
    """The rotation pair by pair."""
    wide, c, s = float64(x), float64(cos), float64(sin)
    even, odd = wide[..., 0::2], wide[..., 1::2]
    half = even.shape[-1]
    return np.concatenate(
        (even * c[..., :half] - odd * s[..., :half], odd * c[..., half:] + even * s[..., half:]), axis=-1
    )


KERNEL = Kernel("InterleaveRope", operands, launch=launch, host=interleaved_rope, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
