"""AscendQuantV2: round(x * scale + offset) to a whole-number dtype."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import numpy as np
import torch

from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host.float64 import Array, float64
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main

LIMITS = {"INT8": (-128, 127), "UINT8": (0, 255), "INT32": (-(2**31), 2**31 - 1), "INT4": (-8, 7)}
TYPES = {"INT8": torch.qint8, "UINT8": torch.quint8, "INT32": torch.qint32, "INT4": torch.quint4x2}
HOST_TYPES = {"INT8": torch.int8, "UINT8": torch.uint8, "INT32": torch.int32, "INT4": torch.int8}
INT4_IN_INT32 = 8


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, str, bool]:
    """x, scale and offset by column, the output dtype, and whether eight 4-bit numbers share an int32."""
    x, result = row.input(0, "x"), row.output(0, "y")
    if result.dtype not in TYPES:
        raise RowError(f"Output dtype {result.dtype} is not one that the kernel quantises to: {', '.join(TYPES)}.")
    is_packed = result.dtype in ("INT4", "INT32") and result.shape[-1] * INT4_IN_INT32 == x.shape[-1]
    dtype = "INT4" if is_packed else result.dtype
    return make(x), make(row.input(1, "scale")), make.optional(row.optional_input(2)), dtype, is_packed


def launch(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor | None, dtype: str, is_packed: bool) -> object:
    """With div_mode false the API launches AscendQuantV2, which multiplies by the scale."""
    result = torch.int32 if dtype == "INT32" else TYPES[dtype]
    return npu_function("npu_quantize")(x, scale, offset, result, -1, False)


def host(
    x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor | None, dtype: str, is_packed: bool
) -> torch.Tensor:
    """The same in float32."""
    scaled = x.float() * scale.float()
    if offset is not None:
        scaled += offset.float()
    whole: torch.Tensor = torch.round(scaled).clamp_(*LIMITS[dtype]).to(HOST_TYPES[dtype])
    if not is_packed:
        return whole
    nibbles = (whole.to(torch.int32) & 0xF).reshape(*whole.shape[:-1], -1, INT4_IN_INT32)
    words: torch.Tensor = (nibbles << torch.arange(0, 32, 4, dtype=torch.int32, device=x.device)).sum(-1)
    return words.to(torch.int32)


def reference(x: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor | None, dtype: str, is_packed: bool) -> Array:
    """The same in float64; packed numbers are added up as their bits lie."""
    scaled = float64(x) * float64(scale) + (0.0 if offset is None else float64(offset))
    whole = np.clip(np.rint(scaled), *LIMITS[dtype])
    if not is_packed:
        return whole
    words = (whole.astype(np.int64) % 16).reshape(*whole.shape[:-1], -1, INT4_IN_INT32) @ (16 ** np.arange(8))
    return np.where(words >= 2**31, words - 2**32, words)


KERNEL = Kernel("AscendQuantV2", operands, launch=launch, host=host, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
