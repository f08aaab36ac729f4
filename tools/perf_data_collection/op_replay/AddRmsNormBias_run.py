"""AddRmsNormBias: the residual sum and its RMSNorm with gamma and an optional bias."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import torch

from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host.float64 import Array, float64, rms_normalised
from tools.perf_data_collection.op_replay.host.pieces import rms_norm
from tools.perf_data_collection.op_replay.kernel import C_ASCEND, CUSTOM_OPP, Kernel
from tools.perf_data_collection.op_replay.npu import custom_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main

EPSILON = 1e-6
SLOTS = 4


def operands(
    row: ReplayRow, make: OperandMaker
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """x1, x2 (T, D), gamma (D) and beta (D) or nothing."""
    if len(row.inputs) != SLOTS:
        raise RowError(
            f"The kernel has {SLOTS} inputs and the row {len(row.inputs)}: give x1;x2;gamma;beta, beta empty if none."
        )
    gamma = make(row.input(2, "gamma", 1))
    return make(row.input(0, "x1")), make(row.input(1, "x2")), gamma, make.optional(row.optional_input(3))


def launch(x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor | None) -> object:
    """vllm-ascend's operator; torch_npu's own npu_add_rms_norm is another kernel."""
    return custom_function("_C_ascend", "npu_add_rms_norm_bias")(x1, x2, gamma, beta, EPSILON)


def host(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """y, 1/rms (T, 1) in float32, and the sum."""
    total = x1 + x2
    y, rstd = rms_norm(total, gamma, EPSILON)
    return (y if beta is None else y + beta), rstd, total


def reference(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor | None
) -> tuple[Array, Array, Array]:
    """The same."""
    total = float64(x1) + float64(x2)
    y, rstd = rms_normalised(total, float64(gamma), EPSILON)
    return (y if beta is None else y + float64(beta)), rstd, total


KERNEL = Kernel(
    "AddRmsNormBias", operands, launch=launch, host=host, reference=reference, needs=frozenset({CUSTOM_OPP, C_ASCEND})
)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
