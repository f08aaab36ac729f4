"""QuantBatchMatmulV3: an int8 product scaled back by column, optionally by token, with bias or offset."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import numpy as np
import torch

from tensor_cast.performance_model.profiling_database.shapes import Tensor
from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host.float64 import Array, float64
from tools.perf_data_collection.op_replay.host.pieces import int8_product
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.layouts import torch_dtype
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.products import right_side
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main

INT8_LIMITS = (-128, 127)
ALL_SLOTS = 6
"""x1, x2, scale, offset, bias, pertoken_scale; profiles leave absent ones out of the shapes."""


@dataclass(frozen=True)
class Operands:
    """x1 (M, K), x2 (K, N), scale, then offset, bias and per-token scale or nothing, and the output dtype."""

    x1: torch.Tensor
    x2: torch.Tensor
    scale: torch.Tensor
    offset: torch.Tensor | None
    bias: torch.Tensor | None
    token_scale: torch.Tensor | None
    dtype: torch.dtype


def operands(row: ReplayRow, make: OperandMaker) -> tuple[Operands]:
    """The operands of a row."""
    x1, x2, result = row.input(0, "x1", 2), row.input(1, "x2", 2, 4), row.output(0, "y", 2)
    if (x1.dtype, x2.dtype) != ("INT8", "INT8"):
        raise RowError(f"Operands are {x1.dtype} and {x2.dtype}: only int8 products are replayed.")
    right = right_side(make(x2), x1.shape[1], result.shape[1])
    options = _options(row, x1.shape[0], result)
    offset, bias, token_scale = (make.optional(spec) for spec in options)
    scale = make(row.input(2, "scale", 1))
    return (Operands(make(x1), right, scale, offset, bias, token_scale, torch_dtype(result.dtype)),)


def _options(row: ReplayRow, tokens: int, result: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Offset, bias and per-token scale, told apart by slot or, in a shortened row, by dtype and size."""
    if len(row.inputs) == ALL_SLOTS:
        return row.optional_input(3), row.optional_input(4), row.optional_input(5)
    offset = bias = token_scale = None
    for spec in row.inputs[3:]:
        if spec is None:
            continue
        if spec.dtype != "FLOAT":
            bias = spec
        elif spec.shape == (tokens,) and result.dtype != "INT8":
            token_scale = spec
        else:
            offset = spec
    return offset, bias, token_scale


def launch(given: Operands) -> object:
    """The API's order of the optional operands is not the kernel's."""
    return npu_function("npu_quant_matmul")(
        given.x1,
        given.x2,
        given.scale,
        offset=given.offset,
        pertoken_scale=given.token_scale,
        bias=given.bias,
        output_dtype=given.dtype,
    )


def host(given: Operands) -> torch.Tensor:
    """An int32 bias joins the accumulator, a floating one the result."""
    total = int8_product(given.x1, given.x2)
    if given.bias is not None and given.bias.dtype is torch.int32:
        total += given.bias
    result = total.float() * given.scale.float()
    if given.token_scale is not None:
        result *= given.token_scale.unsqueeze(-1)
    if given.bias is not None and given.bias.is_floating_point():
        result += given.bias.float()
    if given.dtype is torch.int8:
        result = torch.round(result if given.offset is None else result + given.offset).clamp_(*INT8_LIMITS)
    return result.to(given.dtype)


def reference(given: Operands) -> Array:
    """The same."""
    whole_bias = 0.0 if given.bias is None or given.bias.is_floating_point() else float64(given.bias)
    result = (float64(given.x1) @ float64(given.x2) + whole_bias) * float64(given.scale)
    result = result if given.token_scale is None else result * float64(given.token_scale)[:, None]
    result = result + float64(given.bias) if given.bias is not None and given.bias.is_floating_point() else result
    if given.dtype is not torch.int8:
        return result
    return np.clip(np.rint(result + (0.0 if given.offset is None else float64(given.offset))), *INT8_LIMITS)


KERNEL = Kernel("QuantBatchMatmulV3", operands, launch=launch, host=host, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
