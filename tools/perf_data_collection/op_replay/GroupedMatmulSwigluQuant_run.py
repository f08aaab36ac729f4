"""GroupedMatmulSwigluQuant: an expert's first product, its SwiGLU, and that in int8."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import numpy as np
import torch

from tools.perf_data_collection.op_replay.host import float64 as double
from tools.perf_data_collection.op_replay.host.float64 import Array, float64
from tools.perf_data_collection.op_replay.host.grouped import expert_product_swiglu_quant, group_ends, groups, weights
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main

KERNEL_ORDER = (2, 3, 4)
"""Slots of weight_scale, x_scale and group_list behind x and weight."""
GRID_ORDER = (3, 8, 7)
"""The same in rows laid out like GroupedMatmul's nine slots."""


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, ...]:
    """x (T, K), weight (E, K, N), group ends (E), weight scale (E, N) and token scale (T) of ones."""
    scale_slot, token_slot, list_slot = GRID_ORDER if len(row.inputs) > 5 else KERNEL_ORDER
    x = row.input(0, "x", 2)
    weight = weights(row.input(1, "weight", 3, 4, 5), x.shape[1], make)
    ends = group_ends(x.shape[0], row.input(list_slot, "group_list", 1), make)
    scales = (row.input(scale_slot, "weight_scale", 2), row.input(token_slot, "x_scale", 1))
    return make(x), weight, ends, *(make.place(torch.ones(spec.shape)) for spec in scales)


def launch(
    x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor, scale: torch.Tensor, token_scale: torch.Tensor
) -> object:
    """The API's order is not the kernel's."""
    return npu_function("npu_grouped_matmul_swiglu_quant")(
        x=x, weight=weight, group_list=ends, weight_scale=scale, x_scale=token_scale
    )


def reference(
    x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor, scale: torch.Tensor, token_scale: torch.Tensor
) -> tuple[Array, Array]:
    """int8 and scale, group by group."""
    product = np.zeros((x.shape[0], weight.shape[-1]))
    for group, part in groups(ends):
        product[part] = float64(x)[part] @ float64(weight)[group] * float64(scale)[group]
    return double.quantised(double.swiglu(product * float64(token_scale)[:, None]))


KERNEL = Kernel(
    "GroupedMatmulSwigluQuant", operands, launch=launch, host=expert_product_swiglu_quant, reference=reference
)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
