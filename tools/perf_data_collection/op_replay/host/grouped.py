"""Matrix products of groups of tokens with a weight each, as a mixture of experts needs them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tensor_cast.performance_model.profiling_database.shapes import Tensor
from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host.pieces import dynamic_quant, int8_product, swiglu
from tools.perf_data_collection.op_replay.host.requests import cumulative, evenly
from tools.perf_data_collection.op_replay.layouts import FRACTAL_NZ, logical_shape, torch_dtype
from tools.perf_data_collection.op_replay.operands import OperandMaker


def group_ends(tokens: int, groups: Tensor, make: OperandMaker) -> torch.Tensor:
    """Where each group's tokens end, evenly spread."""
    return make.integers(cumulative(evenly(tokens, groups.shape[0])), groups)


def weights(spec: Tensor, inner: int, make: OperandMaker) -> torch.Tensor:
    """Weights (E, K, N); four dimensions (E, K, N/16, 16) name the blocks of N only.

    Raises:
        RowError: K is not what x has.
    """
    shape = logical_shape(spec) if len(spec.shape) != 4 else (*spec.shape[:2], spec.shape[2] * spec.shape[3])
    if len(shape) != 3 or shape[1] != inner:
        raise RowError(f"Weights {spec.shape} are no (E, K={inner}, N).")
    format_name = FRACTAL_NZ if spec.format == FRACTAL_NZ or len(spec.shape) > 3 else spec.format
    return make.place(make.filled(shape, torch_dtype(spec.dtype)), format_name)


def groups(ends: torch.Tensor) -> Iterator[tuple[int, slice]]:
    """Each group that has tokens, with them."""
    start = 0
    for group, end in enumerate(ends.tolist()):
        if end > start:
            yield group, slice(start, end)
        start = end


def grouped_product(
    x: torch.Tensor,
    weight: torch.Tensor,
    ends: torch.Tensor,
    scale: torch.Tensor | None,
    token_scale: torch.Tensor | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Tokens (T, K) times their group's weight (E, K, N), int8 scaled back by column and token."""
    result = x.new_zeros((x.shape[0], weight.shape[-1]), dtype=dtype)
    for group, part in groups(ends):
        if x.dtype is torch.int8:
            product = int8_product(x[part], weight[group]).float()
            if scale is not None:
                product *= scale[group].float()
            if token_scale is not None:
                product *= token_scale[part].float().unsqueeze(-1)
        else:
            product = x[part] @ weight[group]
        result[part] = product.to(dtype)
    return result


def expert_product_swiglu_quant(
    x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor, scale: torch.Tensor, token_scale: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The product, SwiGLU of its halves, and that in int8 with a scale by token."""
    return dynamic_quant(swiglu(grouped_product(x, weight, ends, scale, token_scale, torch.float32)))
