"""RmsNorm: x over its root mean square, times gamma."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import torch

from tools.perf_data_collection.op_replay.host.float64 import Array, float64, rms_normalised
from tools.perf_data_collection.op_replay.host.pieces import rms_norm
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main

EPSILON = 1e-6


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, torch.Tensor]:
    """x and gamma (D)."""
    return make(row.input(0, "x")), make(row.input(1, "gamma", 1))


def launch(x: torch.Tensor, gamma: torch.Tensor) -> object:
    """y and 1/rms."""
    return npu_function("npu_rms_norm")(x, gamma, EPSILON)


def host(x: torch.Tensor, gamma: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """y and 1/rms."""
    return rms_norm(x, gamma, EPSILON)


def reference(x: torch.Tensor, gamma: torch.Tensor) -> tuple[Array, Array]:
    """y and 1/rms."""
    return rms_normalised(float64(x), float64(gamma), EPSILON)


KERNEL = Kernel("RmsNorm", operands, launch=launch, host=host, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
