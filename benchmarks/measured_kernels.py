"""Measured kernels of NVIDIA devices as the product's own ops: ``kernels_nvidia.csv``, one row or many at once.

Every function takes columns as floats or arrays, so that a fit prices all rows of a table in one call.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensor_cast.ops import Attention, Collective, CollectiveKind, Elementwise, GroupedMatMul, MatMul, Op, Tensor
from tensor_cast.quantity import Quantity, ceil_div

SYSTEMS = {
    "a100_sxm": "A100_SXM_80GB",
    "h100_sxm": "H100_SXM_80GB",
    "h200_sxm": "H200_SXM_141GB",
    "b200_sxm": "B200_SXM",
    "b300_sxm": "B300_SXM",
    "gb200": "GB200",
    "gb300": "GB300",
    "l40s": "L40S",
}
"""Systems of the tables as profiles."""

HOST_TIMED = "the table times the host's launch: 57 to 350 us whatever the size"
SET_ASIDE = {
    "DeepGemmFp8BlockScaledMMKernel": HOST_TIMED,
    "FlashInferFp8BlockScaledMMKernel": HOST_TIMED,
    "TritonFp8BlockScaledMMKernel": HOST_TIMED,
    "vLLM_custom_eager/vllm_eager": "the host's launch is in the time: 20 to 55 us whatever the size",
    "vllm_modeloptfp8moe_flashinfer_cutlass_flashinferexperts": (
        "a path of the engine that handles all experts' weights anew in each call: 5 to 8 times the time of other "
        "engines on the same shapes"
    ),
}
"""Kernel sources whose rows say nothing of the device, and why."""


PLAIN = ("system", "kernel", "op", "dtype", "kv_dtype", "backend", "num_gpus")
_MOE_COLUMNS = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "tp", "ep")
_ATTENTION_COLUMNS = ("batch", "seq_q", "kv_len", "num_heads", "num_kv_heads", "head_dim")
_IDENTIFYING = (
    *("system", "kernel", "op", "backend", "kernel_source", "dtype", "kv_dtype", "m", "n", "k"),
    *_ATTENTION_COLUMNS,
    *_MOE_COLUMNS,
    *("distribution", "num_gpus", "message_bytes"),
)


@dataclass(frozen=True)
class Format:
    """A quantised product: dtype of operands and of the matrix unit, elements that share a scale, bytes of a scale."""

    dtype: str
    scale_group: int = 0
    scale_dtype: str = "float32"


FORMATS = {
    "bfloat16": Format("bfloat16"),
    "fp8": Format("fp8"),
    "fp8_block": Format("fp8", 128),
    "nvfp4": Format("fp4", 16, "e8m0"),
}


def is_fitted(key: str) -> bool:
    """Whether the row of this key is one that constants may be fitted on; all published errors are on the others."""
    return zlib.crc32(key.encode()) % 2 == 0


def row_key(row: Mapping[str, Any]) -> str:
    """What tells a row of ``kernels_nvidia.csv`` from all others: its identifying columns, in their order."""
    return "|".join(str(row[name]) for name in _IDENTIFYING if row[name] is not None)


def gemm_ops(m: Quantity, n: Quantity, k: Quantity, dtype: str, *, quantizes: bool) -> tuple[Op, ...]:
    """A linear layer's product; ``quantizes``: with the two kernels that first find the maximum and then scale."""
    form = FORMATS[dtype]
    x, weight = Tensor((m, k), form.dtype), Tensor((k, n), form.dtype, "weight")
    scales: tuple[Tensor, ...] = ()
    if form.scale_group:
        groups = ceil_div(k, form.scale_group)
        columns = ceil_div(n, form.scale_group) if form.dtype == "fp8" else n
        scales = (Tensor((m, groups), form.scale_dtype), Tensor((groups, columns), form.scale_dtype, "weight"))
    product = MatMul(
        name="matmul" if dtype == "bfloat16" else "quant_matmul",
        part="gemm",
        inputs=(x, weight, *scales),
        outputs=(Tensor((m, n), "bfloat16"),),
        m=m,
        k=k,
        n=n,
        matrix_dtype=form.dtype,
    )
    if not quantizes:
        return (product,)
    raw = Tensor((m, k), "bfloat16")
    maximum = Elementwise(name="amax", part="gemm", inputs=(raw,), outputs=(), flops=2.0 * m * k)
    scale = Elementwise(name="quantize", part="gemm", inputs=(raw,), outputs=(x,), flops=2.0 * m * k)
    return (maximum, scale, product)


def attention_op(
    batch: Quantity,
    queries: Quantity,
    keys: Quantity,
    heads: Any,
    kv_heads: Any,
    head_dim: Any,
    dtype: str,
    kv_dtype: str,
    *,
    decode: bool,
) -> Attention:
    """Causal attention of one layer: ``queries`` new tokens of each sequence, the last of ``keys`` in all."""
    q = Tensor((batch * queries, heads * head_dim), "bfloat16")
    cache = Tensor((batch, keys, 2 * kv_heads * head_dim), kv_dtype, "cache")
    pairs = batch * (queries * (keys - queries) + queries * (queries + 1.0) / 2.0)
    return Attention(
        name="flash_attention",
        part="attention.core",
        inputs=(q, cache),
        outputs=(Tensor((batch * queries, heads * head_dim), "bfloat16"),),
        matrix_dtype=dtype,
        batch=batch,
        query_length=queries,
        kv_length=keys,
        heads=heads,
        kv_heads=kv_heads,
        qk_dim=head_dim,
        v_dim=head_dim,
        pairs=pairs,
        cache_bytes=cache.bytes,
        decode=decode,
    )


def rotate_and_cache_op(attention: Attention) -> Elementwise:
    """The kernel that rotates queries and keys before an attention and writes keys and values into its cache."""
    q, cache = attention.inputs
    queries = Tensor(q.shape, attention.matrix_dtype)
    raw = Tensor((*q.shape[:-1], q.shape[-1] + cache.shape[-1]), "bfloat16")
    return Elementwise(
        name="rope",
        part="attention.rope",
        inputs=(raw,),
        outputs=(queries, Tensor((*q.shape[:-1], cache.shape[-1]), cache.dtype)),
        flops=3.0 * raw.elements,
    )


def moe_ops(
    tokens: Quantity,
    hidden: Quantity,
    intermediate: Quantity,
    topk: Quantity,
    experts: Any,
    tp: Any,
    ep: Any,
    dtype: str,
    *,
    balanced: Any,
    gated: Any = True,
) -> tuple[Op, ...]:
    """One rank's routed experts: permute, gate and up, activation, down, unpermute."""
    form = FORMATS[dtype]
    rows = np.maximum(tokens * topk / ep, 1.0)
    local = experts / ep
    distinct = np.where(
        balanced, np.minimum(tokens * topk, experts), experts * (1.0 - np.power(1.0 - topk / experts, tokens))
    )
    active = np.clip(distinct / ep, 1.0, local)
    width = intermediate / tp
    up = width * np.where(gated, 2.0, 1.0)
    x, permuted = Tensor((tokens, hidden), "bfloat16"), Tensor((rows, hidden), form.dtype)
    joint, activated = Tensor((rows, up), "bfloat16"), Tensor((rows, width), form.dtype)
    down, out = Tensor((rows, hidden), "bfloat16"), Tensor((tokens, hidden), "bfloat16")
    return (
        Elementwise(name="moe_token_permute", part="moe", inputs=(x,), outputs=(permuted,)),
        _grouped(permuted, joint, rows, hidden, up, local, active, form),
        Elementwise(name="swiglu", part="moe", inputs=(joint,), outputs=(activated,), flops=5.0 * rows * width),
        _grouped(activated, down, rows, width, hidden, local, active, form),
        Elementwise(name="moe_token_unpermute", part="moe", inputs=(down,), outputs=(out,), flops=2.0 * rows * hidden),
    )


def _grouped(
    x: Tensor, out: Tensor, m: Quantity, k: Quantity, n: Quantity, groups: Any, active: Quantity, form: Format
) -> GroupedMatMul:
    weight = Tensor((groups, k, n), form.dtype, "weight")
    scales: tuple[Tensor, ...] = ()
    if form.scale_group:
        columns = ceil_div(n, form.scale_group) if form.dtype == "fp8" else n
        scales = (Tensor((groups, ceil_div(k, form.scale_group), columns), form.scale_dtype, "weight"),)
    return GroupedMatMul(
        name="grouped_matmul",
        part="moe",
        inputs=(x, weight, *scales),
        outputs=(out,),
        matrix_dtype=form.dtype,
        m=m,
        k=k,
        n=n,
        groups=groups,
        active_groups=active,
    )


COLLECTIVES: dict[str, CollectiveKind] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
}


def collective_op(kind: CollectiveKind, message_bytes: Quantity, group_size: int) -> Collective:
    """A collective of neighbouring ranks."""
    return Collective(
        name=kind, part="comm", inputs=(), outputs=(), kind=kind, message_bytes=message_bytes, group_size=group_size
    )


def is_one_token(rows: Mapping[str, Any]) -> bool:
    """Whether the prompts are of one token, which vLLM's attention takes for a decode: query heads share a block."""
    return rows["backend"] == "vllm" and bool(np.all(np.equal(rows["seq_q"], 1)))


def ops_of_table(rows: Mapping[str, Any]) -> tuple[Op, ...]:
    """Ops of many rows at once: ``PLAIN`` columns are plain values on which all rows agree, the others arrays."""
    match rows["kernel"]:
        case "gemm":
            quantizes = rows["dtype"] == "fp8" and rows["backend"] == "trtllm"
            return gemm_ops(rows["m"], rows["n"], rows["k"], rows["dtype"], quantizes=quantizes)
        case "moe":
            return moe_ops(
                *(rows[name] for name in _MOE_COLUMNS),
                rows["dtype"],
                balanced=np.asarray(rows["distribution"]) == "balanced",
                gated=np.char.find(np.asarray(rows["kernel_source"], dtype=str), "nongated") < 0,
            )
        case "context_attention" | "generation_attention" as kernel:
            attention = attention_op(
                *(rows[name] for name in _ATTENTION_COLUMNS),
                FORMATS[rows["dtype"]].dtype,
                rows["kv_dtype"],
                decode=kernel == "generation_attention" or is_one_token(rows),
            )
            # TensorRT-LLM's attention takes the joint projection as it is.
            fused = kernel == "context_attention" and rows["backend"] == "trtllm"
            return (rotate_and_cache_op(attention), attention) if fused else (attention,)
        case "nccl" | "custom_allreduce":
            return (collective_op(COLLECTIVES[rows["op"]], rows["message_bytes"], int(rows["num_gpus"])),)
        case other:
            raise ValueError(f"{other} is no kernel of the tables")
