"""Sizes that a row has beside those that its time depends on: pools, block tables, metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

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
from tensor_cast.performance_model.profiling_database.kernels_moe import DISPATCH_FFN_COMBINE
from tensor_cast.performance_model.profiling_database.kernels_vector import (
    INDEX,
    INTERLEAVE_ROPE,
    KV_RMS_NORM_ROPE_CACHE,
    PAD,
    RESHAPE_AND_CACHE,
    SCATTER_UPDATE,
    SLICE,
    SPLIT_QKV_NORM_ROPE,
)
from tensor_cast.quantity import ceil_div
from tools.perf_data_collection.fia_common import BLOCK_SIZE, FUSED_MASK, RING_MASK, pool_blocks
from tools.perf_data_collection.grid_generator.candidates import FloatArray

Sizes: TypeAlias = Mapping[str, FloatArray]

TOP_K = 2048.0
"""Keys that an indexer picks where no model says otherwise (DeepSeek-V3.2)."""


def completed(kernel: Kernel, sizes: Sizes) -> dict[str, FloatArray]:
    """``sizes`` (widths, axes and hints, one a row) with all that a layout names."""
    found = dict(sizes)
    if kernel in _FILLS:
        # A hint, such as a model's width of a head, counts before what is filled in.
        found = {**_FILLS[kernel](sizes), **found}
    if kernel.expand is not None:
        found = {**kernel.expand(found), **found}  # type: ignore[dict-item]
    rows = max(np.size(values) for values in found.values())
    return {name: np.broadcast_to(np.asarray(values, dtype=np.float64), (rows,)) for name, values in found.items()}


def _packed_attention(c: Sizes) -> dict[str, FloatArray]:
    return {"t": c["b"] * c["q"], "keys": c["b"] * c["kv"], "mask": np.full(1, float(FUSED_MASK))}


def _paged(c: Sizes) -> dict[str, FloatArray]:
    blocks = ceil_div(c["kv"], BLOCK_SIZE)
    pool = pool_blocks(c["b"], c["kv"])
    return {"nb": pool, "bs": np.full(1, float(BLOCK_SIZE)), "mb": np.asarray(blocks), "s": c["q"]}


def _paged_attention(c: Sizes) -> dict[str, FloatArray]:
    return {**_packed_attention(c), **_paged(c), "wk": c["g"] * c["d"], "wv": c["g"] * c["v"]}


def _latent(c: Sizes) -> dict[str, FloatArray]:
    return {**_paged(c), "mask": np.full(1, float(FUSED_MASK))}


def _indexer(c: Sizes) -> dict[str, FloatArray]:
    return {**_paged(c), "t": c["b"] * c["q"], "k": np.full(1, TOP_K)}


def _sparse(c: Sizes) -> dict[str, FloatArray]:
    """A request a token up to a decode's largest batch, each with twice the keys that it picks."""
    requests = np.minimum(c["t"], 256.0)
    lengths = np.maximum(2.0 * c["k"], ceil_div(c["t"], requests))
    blocks = ceil_div(lengths, BLOCK_SIZE)
    return {"b": requests, "nb": requests * blocks, "bs": np.full(1, float(BLOCK_SIZE)), "mb": np.asarray(blocks)}


def _cache(c: Sizes) -> dict[str, FloatArray]:
    """Slots for every token, and no fewer than sixteen blocks."""
    blocks = np.maximum(16.0, ceil_div(2.0 * c["t"], BLOCK_SIZE))
    return {"nb": np.asarray(blocks), "bs": np.full(1, float(BLOCK_SIZE))}


def _head_dim(c: Sizes) -> FloatArray:
    """The usual width of a head that divides the row."""
    width = c["w"]
    return np.where(width % 128.0 == 0.0, 128.0, np.where(width % 64.0 == 0.0, 64.0, width))


_FILLS: dict[Kernel, Callable[[Sizes], dict[str, FloatArray]]] = {
    PREFILL_ATTENTION: _packed_attention,
    DECODE_ATTENTION: _paged_attention,
    EXPANDED_ATTENTION: _packed_attention,
    RING_ATTENTION: lambda c: {**_packed_attention(c), "mask": np.full(1, float(RING_MASK))},
    LATENT_ATTENTION: _latent,
    LIGHTNING_INDEXER: _indexer,
    SPARSE_ATTENTION: _sparse,
    KV_RMS_NORM_ROPE_CACHE: _cache,
    RESHAPE_AND_CACHE: lambda c: {**_cache(c), "d": _head_dim(c)},
    INTERLEAVE_ROPE: lambda c: {"d": np.full(1, 64.0)},
    SPLIT_QKV_NORM_ROPE: lambda c: {"r": np.full(1, 128.0), "rows": np.maximum(c["t"], 2048.0)},
    INDEX: lambda c: {"s": c["t"]},
    SLICE: lambda c: {"s": 2.0 * c["t"]},
    PAD: lambda c: {"s": c["t"] - 1.0},
    SCATTER_UPDATE: lambda c: {"s": np.maximum(1024.0, 2.0 * c["t"])},
    DISPATCH_FFN_COMBINE: lambda c: {"s": c["e"] * 2.0 * c["i"], "z": c["e"] * c["h"]},
}
