"""Grouped-query attention over a paged KV cache: full, windowed or chunked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tensor_cast.deployment import RankGroup
from tensor_cast.errors import ModelingError
from tensor_cast.layers.build import Build, shard, shard_or_replicate
from tensor_cast.layers.cache import LayerCache
from tensor_cast.layers.linear import linear, row_parallel_linear
from tensor_cast.layers.norm import RMS_NORM_FLOPS
from tensor_cast.layers.output_projection import wide_output_projection
from tensor_cast.ops import Attention, Tensor
from tensor_cast.quantity import Quantity
from tensor_cast.quantization import LinearScheme

# Two multiplications and an addition for each of the rotated elements.
ROPE_FLOPS = 3.0
# Sigmoid (exponential, add, divide) and product of a gated attention output.
OUTPUT_GATE_FLOPS = 4.0

QKNorm = Literal["none", "head", "full"]


def causal_pairs(
    query_length: Quantity, cached: Quantity, *, window: int | None = None, chunk: int | None = None
) -> Quantity:
    """(query, key) pairs that causal attention computes for one sequence and head.

    ``query_length`` tokens follow ``cached`` ones, and each sees all tokens up to itself: the sum of ``p + 1`` over
    positions ``p`` in [cached, cached + query_length). A sliding ``window`` caps each term at the window; a ``chunk``
    replaces ``p`` by its position inside its chunk (Llama 4).
    """
    if chunk is not None:
        return _chunk_prefix(cached + query_length, chunk) - _chunk_prefix(cached, chunk)
    if window is None:
        return query_length * cached + query_length * (query_length + 1.0) / 2.0
    below = np.clip(window - cached, 0.0, query_length)
    return below * cached + below * (below + 1.0) / 2.0 + (query_length - below) * window


def _chunk_prefix(length: Quantity, chunk: int) -> Quantity:
    whole = np.floor(np.divide(length, chunk))
    rest = length - whole * chunk
    return whole * (chunk * (chunk + 1.0) / 2.0) + rest * (rest + 1.0) / 2.0


def visible_keys(
    query_length: Quantity, cached: Quantity, *, window: int | None = None, chunk: int | None = None
) -> Quantity:
    """Distinct keys of one sequence that its new tokens attend to."""
    length = cached + query_length
    if chunk is not None:
        return length - np.floor(np.divide(cached, chunk)) * chunk
    if window is None:
        return length
    return np.minimum(length, window + query_length - 1.0)


@dataclass(frozen=True)
class GroupedQueryAttention:
    """``heads`` query heads share ``kv_heads`` key and value heads of ``head_dim``.

    ``qk_norm`` is an RMSNorm of each query and key head (``head``) or of the whole projection (``full``). ``window``
    keeps that many last tokens, ``chunk`` attends within chunks. ``sinks`` are a learned logit a head (gpt-oss).
    ``output_gate`` doubles the query projection for a sigmoid gate on the output.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: QKNorm = "none"
    rope_dim: int | None = None
    window: int | None = None
    chunk: int | None = None
    sinks: bool = False
    output_gate: bool = False

    def cache(self, tp: int, dcp: int = 1) -> LayerCache:
        """What one rank keeps: keys and values of its KV heads."""
        local = shard_or_replicate(self.kv_heads, tp, "KV heads", "--tp-size")
        return LayerCache(
            kind="window" if self.window or self.chunk else "full",
            elements_per_token=2.0 * local * self.head_dim,
            window=self.window or self.chunk,
            token_share=1.0 / dcp,
        )

    def flops_per_context_token(self) -> float:
        """Score and value FLOPs of one new token for each token that it attends to."""
        return 4.0 * self.heads * self.head_dim

    def forward(self, build: Build, x: Tensor, scheme: LinearScheme) -> Tensor:
        """(tokens, hidden) -> residual rows of hidden, reduced over the TP group."""
        heads = shard(self.heads, build.tp, "attention heads", "--tp-size")
        kv_heads = shard_or_replicate(self.kv_heads, build.tp, "KV heads", "--tp-size")
        q_width, kv_width = heads * self.head_dim, kv_heads * self.head_dim
        gate_width = q_width if self.output_gate else 0
        qkv = linear(
            build,
            x,
            k=self.hidden,
            n=q_width + gate_width + 2 * kv_width,
            part="attention.qkv",
            scheme=scheme,
            bias=self.qkv_bias,
        )
        q, k, v = self._split_norm_rope(build, qkv, q_width, kv_width)
        write_cache(build, (k, v))
        out = self._attend(build, q, heads, kv_heads)
        if self.output_gate:
            gated = build.activation(*out.shape)
            build.elementwise("sigmoid_mul", "attention.gate", (out,), (gated,), flops_per_element=OUTPUT_GATE_FLOPS)
            out = gated
        if build.parallel.o_proj_tp != build.tp:
            return wide_output_projection(build, out, width=q_width, hidden=self.hidden, scheme=scheme)
        return row_parallel_linear(
            build, out, k=q_width, n=self.hidden, part="attention.output", scheme=scheme, bias=self.output_bias
        )

    def _split_norm_rope(self, build: Build, qkv: Tensor, q_width: int, kv_width: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values out of the joint projection, normalised and rotated."""
        rows = qkv.shape[0]
        q, k, v = (build.activation(rows, width) for width in (q_width, kv_width, kv_width))
        gammas = self._norm_weights(build, q_width, kv_width)
        rotated = (q_width + kv_width) * (self.rope_dim or self.head_dim) / self.head_dim
        norm_flops = RMS_NORM_FLOPS * (q_width + kv_width) if gammas else 0.0
        if build.compile:
            name = "split_qkv_rmsnorm_rope" if gammas else "split_qkv_rope"
            flops = rows * (norm_flops + ROPE_FLOPS * rotated)
            build.elementwise(name, "attention.rope", (qkv, *gammas), (q, k, v), flops_per_element=1.0, elements=flops)
            return q, k, v
        split = tuple(build.activation(*t.shape) for t in (q, k, v))
        build.elementwise("split_qkv", "attention.split", (qkv,), split, flops_per_element=0.0)
        before_rope = [split[0], split[1]]
        for index, gamma in enumerate(gammas):
            normed = build.activation(*split[index].shape)
            build.elementwise(
                "rms_norm",
                gamma.name.removesuffix(".weight"),
                (split[index], gamma),
                (normed,),
                flops_per_element=RMS_NORM_FLOPS,
            )
            before_rope[index] = normed
        build.elementwise(
            "rope",
            "attention.rope",
            tuple(before_rope),
            (q, k),
            flops_per_element=ROPE_FLOPS,
            elements=rows * rotated,
        )
        return q, k, split[2]

    def _norm_weights(self, build: Build, q_width: int, kv_width: int) -> tuple[Tensor, ...]:
        if self.qk_norm == "none":
            return ()
        widths = (self.head_dim, self.head_dim) if self.qk_norm == "head" else (q_width, kv_width)
        names = ("attention.q_norm.weight", "attention.k_norm.weight")
        return tuple(build.weight(name, (width,)) for name, width in zip(names, widths, strict=True))

    def _attend(self, build: Build, q: Tensor, heads: int, kv_heads: int) -> Tensor:
        """Softmax attention, over this rank's share of the cached tokens under decode context parallelism."""
        dcp = build.parallel.dcp if build.decode else 1
        replicas = build.tp * kv_heads // self.kv_heads
        require_dcp_fits(dcp, replicas, f"{self.kv_heads} KV heads over tensor parallel {build.tp}")
        keys = visible_keys(build.query_length, build.cached_length, window=self.window, chunk=self.chunk)
        pairs = causal_pairs(build.query_length, build.cached_length, window=self.window, chunk=self.chunk)
        dtype = build.deployment.attention_dtype or build.dtype
        sinks = (build.weight("attention.sinks", (heads,)),) if self.sinks else ()
        cache = Tensor((build.queries, keys / dcp, 2 * kv_heads * self.head_dim), dtype, "cache")
        return attend(
            build,
            q,
            cache,
            extra=sinks,
            heads=heads,
            kv_heads=kv_heads,
            qk_dim=self.head_dim,
            v_dim=self.head_dim,
            keys=keys,
            pairs=pairs,
            dcp=dcp,
        )


def attend(
    build: Build,
    q: Tensor,
    cache: Tensor,
    *,
    extra: tuple[Tensor, ...] = (),
    heads: int,
    kv_heads: int,
    qk_dim: int,
    v_dim: int,
    keys: Quantity,
    pairs: Quantity,
    dcp: int = 1,
) -> Tensor:
    """(tokens, heads x qk_dim) -> (tokens, heads x v_dim).

    ``keys`` are the keys that one sequence's tokens see and ``pairs`` its (query, key) pairs, over all ranks. With
    ``dcp`` ranks sharing out the cached tokens, queries of all their heads are gathered, each rank attends over its
    tokens, and partial outputs are exchanged and merged by their log-sum-exp (whose 4 bytes a head are not counted).
    """
    rows = q.shape[0]
    group = RankGroup(dcp)
    q = build.communicate("all_gather", "attention.dcp", q, group, (rows, dcp * heads * qk_dim))
    out = build.activation(rows, dcp * heads * v_dim)
    build.emit(
        Attention(
            name="flash_attention",
            part="attention.core",
            inputs=(q, cache, *extra),
            outputs=(out,),
            matrix_dtype=cache.dtype,
            batch=build.queries,
            query_length=build.query_length,
            kv_length=keys / dcp,
            heads=heads * dcp,
            kv_heads=kv_heads,
            qk_dim=qk_dim,
            v_dim=v_dim,
            pairs=build.queries * pairs / dcp,
            cache_bytes=cache.bytes,
            decode=build.decode,
        )
    )
    if dcp == 1:
        return out
    exchanged = build.communicate("all_to_all", "attention.dcp", out, group, out.shape)
    merged = build.activation(rows, heads * v_dim)
    build.elementwise("merge_attention", "attention.dcp", (exchanged,), (merged,), flops_per_element=3.0)
    return merged


def write_cache(build: Build, tensors: tuple[Tensor, ...], *, part: str = "attention.cache") -> None:
    """Store new keys and values in their cache slots, quantised if the cache is."""
    dtype = build.deployment.attention_dtype or build.dtype
    slots = tuple(Tensor(t.shape, dtype, "cache") for t in tensors)
    quantized = dtype != build.dtype
    build.elementwise("reshape_and_cache", part, tensors, slots, flops_per_element=2.0 if quantized else 0.0)


def require_dcp_fits(dcp: int, replicas: int, what: str) -> None:
    """Refuse ``dcp`` unless that many ranks hold the same heads, which is what lets them share out tokens."""
    if dcp > 1 and replicas % dcp:
        raise ModelingError(
            f"--dcp-size {dcp} shares the cache among ranks that hold the same KV heads, but {what} leave "
            f"{replicas} such ranks: choose a divisor of {replicas}."
        )
