"""Softmax attention over a paged KV cache: what it computes and reads, whatever projects its queries and keys."""

from __future__ import annotations

import numpy as np

from tensor_cast.errors import ModelingError
from tensor_cast.layers.build import Build
from tensor_cast.ops import Attention, Tensor
from tensor_cast.parallelism import RankGroup
from tensor_cast.quantity import Quantity

# Two multiplications and an addition for each of the rotated elements.
ROPE_FLOPS = 3.0


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


def compressed_pairs(query_length: Quantity, cached: Quantity, ratio: int, *, top_k: int | None = None) -> Quantity:
    """(query, entry) pairs of one sequence and head when ``ratio`` tokens make an entry.

    A token at position ``p`` sees the ``floor((p + 1) / ratio)`` entries that are complete, or ``top_k`` of them. With
    ``F(n)`` the sum of ``min(floor(m / ratio), top_k)`` over m = 1 .. n, the answer is F(end) - F(start).
    """
    return _entry_prefix(cached + query_length, ratio, top_k) - _entry_prefix(cached, ratio, top_k)


def _entry_prefix(length: Quantity, ratio: int, top_k: int | None) -> Quantity:
    whole = np.floor(np.divide(length, ratio))
    rest = length - whole * ratio
    if top_k is None:
        return ratio * whole * (whole - 1.0) / 2.0 + whole * (rest + 1.0)
    rising = np.minimum(whole, top_k)
    # Positions whose count is still below top_k contribute floor(m / ratio); all later ones contribute top_k.
    below = ratio * rising * (rising - 1.0) / 2.0
    after = np.where(whole >= top_k, (length - ratio * top_k + 1.0) * top_k, whole * (rest + 1.0))
    return below + after


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


def require_dcp_fits(dcp: int, replicas: int, what: str, *, sparse: bool = False) -> None:
    """Refuse ``dcp`` unless that many ranks hold the same heads, which is what lets them share out tokens.

    ``sparse`` attention picks its tokens among all of them.
    """
    if sparse and dcp > 1:
        raise ModelingError("--dcp-size shares out a whole KV cache; sparse attention picks its tokens: leave it 1.")
    if dcp > 1 and replicas % dcp:
        held = f"{replicas} ranks: choose a divisor of that" if replicas > 1 else "one rank: leave it out"
        raise ModelingError(
            f"--dcp-size {dcp} shares the cache among ranks that hold the same KV heads, but with {what} each is on "
            f"{held}."
        )
