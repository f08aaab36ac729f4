"""GroupedMatmul: tokens times the weight of their group, in int8 with scales or as they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import numpy as np
import torch

from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host.float64 import Array, float64
from tools.perf_data_collection.op_replay.host.grouped import group_ends, grouped_product, groups, weights
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.layouts import torch_dtype
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main

WEIGHT_SCALE, GROUP_LIST, TOKEN_SCALE = 3, 7, 8
"""Slots behind x and weight: bias, scale, offset, two for antiquant, the group list, per-token scale."""


def operands(row: ReplayRow, make: OperandMaker) -> tuple[Any, ...]:
    """x (T, K), weight (E, K, N), scale (E, N) and per-token scale (T) of ones or nothing, group ends (E), dtype."""
    x, result = row.input(0, "x", 2), row.output(0, "y", 2)
    if row.optional_input(2) is not None:
        raise RowError("A bias is not replayed: no known row has one.")
    scales = []
    for slot in (WEIGHT_SCALE, TOKEN_SCALE):
        spec = row.optional_input(slot)
        scales.append(None if spec is None else make.place(torch.ones(spec.shape, dtype=torch_dtype(spec.dtype))))
    ends = group_ends(x.shape[0], row.input(GROUP_LIST, "group_list", 1), make)
    weight = weights(row.input(1, "weight", 3, 4, 5), x.shape[1], make)
    return make(x), weight, ends, scales[0], scales[1], torch_dtype(result.dtype)


def launch(
    x: torch.Tensor,
    weight: torch.Tensor,
    ends: torch.Tensor,
    scale: torch.Tensor | None,
    token_scale: torch.Tensor | None,
    dtype: torch.dtype,
) -> object:
    """Group ends are cumulative (group_list_type 0) and groups split the tokens (group_type 0)."""
    return npu_function("npu_grouped_matmul")(
        x=[x],
        weight=[weight],
        scale=None if scale is None else [scale],
        per_token_scale=None if token_scale is None else [token_scale],
        group_list=ends,
        split_item=2,
        group_type=0,
        group_list_type=0,
        output_dtype=dtype,
    )


def reference(
    x: torch.Tensor,
    weight: torch.Tensor,
    ends: torch.Tensor,
    scale: torch.Tensor | None,
    token_scale: torch.Tensor | None,
    dtype: torch.dtype,
) -> Array:
    """The same, group by group."""
    result = np.zeros((x.shape[0], weight.shape[-1]))
    for group, part in groups(ends):
        result[part] = float64(x)[part] @ float64(weight)[group]
        if scale is not None:
            result[part] *= float64(scale)[group]
    return result if token_scale is None else result * float64(token_scale)[:, None]


KERNEL = Kernel("GroupedMatmul", operands, launch=launch, host=grouped_product, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
