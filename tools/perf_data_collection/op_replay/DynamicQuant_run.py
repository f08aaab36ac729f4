"""DynamicQuant: int8 by token, with the scale of each."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import torch

from tools.perf_data_collection.op_replay.host.float64 import Array, float64, quantised
from tools.perf_data_collection.op_replay.host.pieces import dynamic_quant
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor]:
    """x (…, D)."""
    return (make(row.input(0, "x", 2, 3, 4)),)


def launch(x: torch.Tensor) -> object:
    """int8 and scale."""
    return npu_function("npu_dynamic_quant")(x)


def reference(x: torch.Tensor) -> tuple[Array, Array]:
    """int8 and scale."""
    return quantised(float64(x))


KERNEL = Kernel("DynamicQuant", operands, launch=launch, host=dynamic_quant, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
