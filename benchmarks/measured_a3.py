"""Measured kernels of one Ascend A3 die as the product's own ops: ``kernels_a3.csv``, one row at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from tensor_cast.ops import Collective, CollectiveKind, Elementwise, MatMul, Op, Tensor

DEVICE = "ATLAS_800_A3_752T_128G_DIE"
DTYPES = {
    "DT_BF16": "bfloat16",
    "FLOAT16": "float16",
    "DT_FLOAT16": "float16",
    "FLOAT": "float32",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}

MATMULS = ("MatMulV2", "MatMulV3", "QuantBatchMatmulV3", "BatchMatMulV2", "TransposeBatchMatMul")


@dataclass(frozen=True)
class VectorKernel:
    """How a vector kernel's operands follow from its inputs, which are all that a profile names.

    ``written`` is the output in elements of the first input, in ``dtype`` or the first input's. ``operands`` is how
    many inputs are streamed, all by default: caches are only named. ``flops`` are those of one element, as the
    product's layers count them. A ``flat`` kernel does not see rows.
    """

    written: float
    dtype: str | None = None
    operands: int | None = None
    flops: float = 1.0
    flat: bool = False


VECTORS = {
    "Add": VectorKernel(1.0, flat=True),
    "Mul": VectorKernel(1.0, flat=True),
    "Muls": VectorKernel(1.0, flat=True),
    "RealDiv": VectorKernel(1.0, flat=True),
    "TensorMove": VectorKernel(1.0, flops=0.0, flat=True),
    "Transpose": VectorKernel(1.0, operands=1, flops=0.0),
    "MaskedFill": VectorKernel(1.0, flat=True),
    "GreaterEqual": VectorKernel(1.0, "bool", flat=True),
    "RmsNorm": VectorKernel(1.0, flops=4.0),
    "AddRmsNormBias": VectorKernel(2.0, flops=5.0),
    "SwiGlu": VectorKernel(0.5, flops=2.5),
    "DynamicQuant": VectorKernel(1.0, "int8", flops=4.0),
    "AscendQuantV2": VectorKernel(1.0, "int8", flops=2.0),
    "InterleaveRope": VectorKernel(1.0, flops=3.0),
    "KvRmsNormRopeCache": VectorKernel(1.0, operands=2, flops=4.0),
    "ReshapeAndCacheNdKernel": VectorKernel(2.0, operands=2, flops=0.0),
    "SoftmaxV2": VectorKernel(1.0, flops=5.0),
}

UNUSABLE = {
    "Neg": "2.4 ms of an integer kernel that runs on the host-side AI CPU",
    "DispatchFFNCombine": "its time includes waiting for other dies",
    "Cast": "the profile does not name the output's dtype",
    "Slice": "the profile does not name the output's shape",
    "AsStrided": "the profile does not name the output's shape",
    "BroadcastTo": "the profile does not name the output's shape",
    "Tile": "the profile does not name the output's shape",
    "Index": "the profile does not name how many rows are picked",
}


def row_key(row: Mapping[str, Any]) -> str:
    """What tells a row of ``kernels_a3.csv`` from all others."""
    return "|".join(str(row[name]) for name in ("kernel", "variant", "input_shapes", "input_dtypes", "model", "mode"))


def ops_of_row(row: Mapping[str, Any]) -> tuple[Op, ...] | str:
    """The op of a row, or why it has none."""
    kernel = row["kernel"]
    if row["device"] is None or not row["device"].startswith(DEVICE):
        return "not measured on the die of the profile"
    if kernel in UNUSABLE:
        return UNUSABLE[kernel]
    if row["input_shapes"] is None or "(all shapes" in row["input_shapes"]:
        return "a mean over the shapes of a whole scenario"
    if kernel in MATMULS:
        return _matmul(row)
    if kernel in VECTORS:
        return _vector(row, VECTORS[kernel])
    if kernel == "FusedInferAttentionScore":
        return "K and V are named as the whole pool of blocks: the context length is not recorded"
    return "a kernel that the product's models do not launch as such"


def _shapes(row: Mapping[str, Any]) -> list[tuple[int, ...]]:
    texts = row["input_shapes"].split(";")
    return [tuple(int(n) for n in text.split(",")) if text.replace(",", "").isdigit() else () for text in texts]


def _matmul(row: Mapping[str, Any]) -> tuple[Op, ...] | str:
    if row["gemm_m"] is None:
        return "the layout of its operands does not give m, k and n"
    batch, m, k, n = (float(row[f"gemm_{name}"]) for name in ("batch", "m", "k", "n"))
    dtype = "int8" if row["input_dtypes"].startswith("INT8") else "bfloat16"
    return (
        MatMul(
            name="quant_matmul" if dtype == "int8" else "matmul",
            part="gemm",
            inputs=(Tensor((batch, m, k), dtype), Tensor((batch, k, n), dtype, "weight")),
            outputs=(Tensor((batch, m, n), "bfloat16"),),
            matrix_dtype=dtype,
            m=m,
            k=k,
            n=n,
            batch=batch,
        ),
    )


def _vector(row: Mapping[str, Any], kernel: VectorKernel) -> tuple[Op, ...] | str:
    shapes, dtypes = _shapes(row), (row["input_dtypes"] or "").split(";")
    if not shapes[0] or dtypes[0] not in DTYPES:
        return "the profile does not name its operands"
    count = kernel.operands or len(dtypes)
    inputs = tuple(
        Tensor(tuple(map(float, shape or (1,))), DTYPES.get(dtype, "int32"))
        for shape, dtype in list(zip(shapes, dtypes, strict=False))[:count]
    )
    elements = float(prod(shapes[0]))
    out = Tensor((kernel.written * elements,), kernel.dtype or inputs[0].dtype)
    flops = kernel.flops * elements
    return (
        Elementwise(name=row["kernel"], part="vector", inputs=inputs, outputs=(out,), flops=flops, flat=kernel.flat),
    )


COLLECTIVES: dict[str, CollectiveKind] = {
    "allReduce": "all_reduce",
    "allGather": "all_gather",
    "reduceScatter": "reduce_scatter",
}


def collective_key(row: Mapping[str, Any]) -> str:
    """What tells a row of ``comm_a3.csv`` from others: repeated measurements of one size fall into the same half."""
    return "|".join(str(row[name]) for name in ("op", "message_bytes", "num_devices"))


def collective_of_row(row: Mapping[str, Any]) -> tuple[Op, ...] | str:
    """The collective of a row of ``comm_a3.csv``, or why it has none.

    The file counts the input of one rank for a gather and the output of one rank for a reduce-scatter.
    """
    if row["op"] not in COLLECTIVES:
        return "a mean over different collectives"
    if not row["measurement"].startswith("in-model"):
        return "measured alone; inside a model the same collective takes 1 to 15 us longer, or half as long"
    if row["message_bytes"] is None:
        return "its size is not recorded, or it waits for the host of another rank"
    kind, size, ranks = COLLECTIVES[row["op"]], float(row["message_bytes"]), int(row["num_devices"])
    whole = size if kind == "all_reduce" else size * ranks
    return (
        Collective(name=kind, part="comm", inputs=(), outputs=(), kind=kind, message_bytes=whole, group_size=ranks),
    )
