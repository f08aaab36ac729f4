"""Structures of general axes, for kernels of any model."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from tensor_cast.performance_model.profiling_database.kernels import Kernel
from tensor_cast.performance_model.profiling_database.kernels_attention import (
    DECODE_ATTENTION,
    EXPANDED_ATTENTION,
    LATENT_ATTENTION,
    LIGHTNING_INDEXER,
    PREFILL_ATTENTION,
    RING_ATTENTION,
    SPARSE_ATTENTION,
)
from tensor_cast.performance_model.profiling_database.kernels_matmul import (
    BATCH_MATMUL,
    DYNAMIC_QUANT_MATMUL,
    GROUPED_MATMUL,
    GROUPED_MATMUL_SWIGLU_QUANT,
    MATMUL,
    QUANT_GROUPED_MATMUL,
    STATIC_QUANT_MATMUL,
    TRANSPOSE_BATCH_MATMUL,
)
from tensor_cast.performance_model.profiling_database.kernels_moe import (
    DISPATCH_FFN_COMBINE,
    TOKEN_PERMUTE,
    TOKEN_UNPERMUTE,
)
from tensor_cast.performance_model.profiling_database.kernels_vector import (
    ARG_MAX,
    EMBEDDING,
    INTERLEAVE_ROPE,
    KV_RMS_NORM_ROPE_CACHE,
    MASKED_FILL,
    RESHAPE_AND_CACHE,
    RMS_NORM,
    SORT,
    SPLIT_QKV_NORM_ROPE,
    TENSOR_MOVE,
    TRANSPOSE,
)
from tools.perf_data_collection.grid_generator import axes
from tools.perf_data_collection.grid_generator.candidates import Structure

LARGEST_EP = 64
LARGEST_LOCAL_EXPERTS = 17


def general_structures(kernel: Kernel) -> list[Structure]:
    """Widths of ``kernel`` over the general axes."""
    return [Structure(kernel, tuple(map(float, widths))) for widths in _widths(kernel)]


def _widths(kernel: Kernel) -> Iterable[tuple[float, ...]]:
    heads_and_groups = [(h, g) for h, g in product(axes.HEADS, axes.KV_HEADS) if h % g == 0]
    if kernel in (MATMUL, DYNAMIC_QUANT_MATMUL, STATIC_QUANT_MATMUL):
        return product(axes.WIDTHS, axes.WIDTHS)
    if kernel is BATCH_MATMUL:
        return product(axes.HEADS, (64, 128, 192, 512), (64, 128, 512))
    if kernel is TRANSPOSE_BATCH_MATMUL:
        return product(axes.HEADS, (128, 256, 512), (128, 256, 512, 1024))
    if kernel in (GROUPED_MATMUL, QUANT_GROUPED_MATMUL):
        experts = product(axes.LOCAL_EXPERTS, axes.HIDDEN_SIZES, axes.EXPERT_WIDTHS)
        return [sizes for e, h, i in experts for sizes in ((e, h, 2 * i), (e, i, h))]
    if kernel is GROUPED_MATMUL_SWIGLU_QUANT:
        return product(axes.LOCAL_EXPERTS, axes.HIDDEN_SIZES, axes.EXPERT_WIDTHS)
    if kernel in (PREFILL_ATTENTION, DECODE_ATTENTION):
        return [(h, g, d, d) for (h, g), d in product(heads_and_groups, (64, 128)) if h // g <= 16]
    if kernel is LATENT_ATTENTION:
        return [(h, 512, 64) for h in axes.HEADS if h >= 8]
    if kernel in (EXPANDED_ATTENTION, RING_ATTENTION):
        return [(h, 128, 64, 128) for h in axes.HEADS if h >= 8]
    if kernel is LIGHTNING_INDEXER:
        return [(h, 128) for h in (32, 64)]
    if kernel is SPARSE_ATTENTION:
        return [(h, 512, 64, 2048) for h in axes.HEADS if h >= 8]
    if kernel in (TOKEN_PERMUTE, TOKEN_UNPERMUTE):
        return product(axes.HIDDEN_SIZES, axes.EXPERTS_PER_TOKEN)
    if kernel is DISPATCH_FFN_COMBINE:
        sizes = product(axes.HIDDEN_SIZES, axes.EXPERT_WIDTHS, (64, 128, 160, 256), (8, 16, 32, 64))
        return [
            (h, i, experts // ep, 8, ep)
            for h, i, experts, ep in sizes
            if experts % ep == 0 and experts // ep <= LARGEST_LOCAL_EXPERTS
        ]
    return _vector_widths(kernel)


def _vector_widths(kernel: Kernel) -> Iterable[tuple[float, ...]]:
    if kernel in (RMS_NORM, TENSOR_MOVE):
        heads = [(h, d) for h, d in product(axes.HEADS, axes.HEAD_DIMS) if h > 1]
        return [*((1, d) for d in axes.WIDTHS), *heads]
    if kernel is TRANSPOSE:
        return [(h, d) for h in axes.HEADS for d in (128, 512)]
    if kernel is INTERLEAVE_ROPE:
        return [(h * 64,) for h in axes.HEADS]
    if kernel is RESHAPE_AND_CACHE:
        return [(h * d,) for h, d in product(axes.KV_HEADS, axes.HEAD_DIMS)]
    if kernel is KV_RMS_NORM_ROPE_CACHE:
        return [(512, 64)]
    if kernel is SPLIT_QKV_NORM_ROPE:
        return [(q * 128, kv * 128) for q, kv in product(axes.HEADS, axes.KV_HEADS) if q % kv == 0 and q // kv <= 16]
    if kernel is EMBEDDING:
        return product((8192, *axes.VOCABULARIES, 152064), axes.WIDTHS)
    if kernel is ARG_MAX:
        return [(width,) for width in (1024, 4096, 16384, *axes.VOCABULARIES)]
    if kernel is SORT:
        return [(width,) for width in axes.SORTED_WIDTHS]
    if kernel is MASKED_FILL or kernel.widths == ("d",):
        return [(width,) for width in axes.WIDTHS]
    return []
