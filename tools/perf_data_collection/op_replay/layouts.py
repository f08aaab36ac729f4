"""Dtypes by the profiler's names, and the fractal layout of an NPU's matrix operands."""

from __future__ import annotations

import math

import torch

from tensor_cast.performance_model.profiling_database.shapes import Tensor
from tools.perf_data_collection.op_replay.errors import RowError

FRACTAL_NZ = "FRACTAL_NZ"
FRACTAL_NZ_CODE = 29
"""``acl_format`` of FRACTAL_NZ for npu_format_cast (aclFormat in acl_base.h)."""
_BLOCK_ROWS = 16
_BLOCK_BYTES = 32

TORCH_DTYPES = {
    "BF16": torch.bfloat16,
    "BFLOAT16": torch.bfloat16,
    "FLOAT16": torch.float16,
    "FP16": torch.float16,
    "FLOAT": torch.float32,
    "FLOAT32": torch.float32,
    "DOUBLE": torch.float64,
    "INT8": torch.int8,
    "UINT8": torch.uint8,
    "INT16": torch.int16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "BOOL": torch.bool,
}


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a profiler's dtype, ``DT_`` already removed.

    Raises:
        RowError: torch has no such dtype.
    """
    try:
        return TORCH_DTYPES[name]
    except KeyError:
        raise RowError(
            f"Dtype {name or 'of an operand'} cannot be made in torch: replay knows none of that name."
        ) from None


def logical_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape of the matrix that an operand is, whatever its layout.

    FRACTAL_NZ stores ``[…, R, C]`` as ``[…, C/c0, R/16, 16, c0]`` with c0 = 32 bytes of elements (CANN's format
    description); a 2-D or 3-D shape beside that format is already the logical one.

    Raises:
        RowError: the last dimensions are no such blocks.
    """
    if tensor.format != FRACTAL_NZ or len(tensor.shape) < 4:
        return tensor.shape
    *batch, columns, rows, block_rows, block_columns = tensor.shape
    expected = _BLOCK_BYTES // torch_dtype(tensor.dtype).itemsize
    if block_rows == _BLOCK_ROWS and block_columns == expected:
        return (*batch, rows * block_rows, columns * block_columns)
    raise RowError(
        f"FRACTAL_NZ shape {','.join(map(str, tensor.shape))} does not end in 16,{expected}, "
        f"the block of {tensor.dtype}."
    )


def size_bytes(tensor: Tensor) -> int:
    """Bytes that an operand takes."""
    return math.prod(tensor.shape) * torch_dtype(tensor.dtype).itemsize
