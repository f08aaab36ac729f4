"""Lightning indexers: a cheap score of every cached token (or block) that picks the few that attention reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensor_cast.layers.build import Build
from tensor_cast.layers.cache import LayerCache
from tensor_cast.layers.linear import linear
from tensor_cast.layers.norm import rms_norm
from tensor_cast.layers.softmax_attention import ROPE_FLOPS, causal_pairs, write_cache
from tensor_cast.ops import Attention, Tensor
from tensor_cast.quantity import Quantity
from tensor_cast.quantization import LinearScheme


def score(
    build: Build, q: Tensor, *, heads: int, dim: int, keys: Quantity, pairs: Quantity, kept: int, extra: Tensor | None
) -> Tensor:
    """Scores of ``heads`` index heads over ``keys`` cached index keys of ``dim``, and the choice of ``kept`` of them.

    ``sum over heads of w_h relu(q_h . k)`` (DeepSeek-V3.2-Exp report, equation 1): 2 x dim matrix FLOPs a pair and
    head; ReLU, product, sum and the comparisons of the selection are counted like a softmax's five vector FLOPs.
    """
    rows = q.shape[0]
    dtype = build.deployment.attention_dtype or build.dtype
    cache = Tensor((build.queries, keys, dim), dtype, "cache")
    chosen = build.activation(rows, kept, dtype="int32")
    build.emit(
        Attention(
            name="lightning_indexer",
            part="attention.indexer",
            inputs=(q, cache) if extra is None else (q, cache, extra),
            outputs=(chosen,),
            matrix_dtype=dtype,
            batch=build.queries,
            query_length=build.query_length,
            kv_length=keys,
            heads=heads,
            kv_heads=1,
            qk_dim=dim,
            v_dim=0,
            pairs=build.queries * pairs,
            cache_bytes=cache.bytes,
            decode=build.decode,
        )
    )
    return chosen


@dataclass(frozen=True)
class TokenIndexer:
    """DeepSeek sparse attention's indexer (DeepSeek-V3.2-Exp report, section 2.1): ``heads`` queries of ``dim`` from
    the query latent, one key a token with a LayerNorm, a weight a head.

    Every tensor-parallel rank runs it whole (``Indexer`` of vLLM and of SGLang: ``ReplicatedLinear``): all heads attend
    to the same tokens, so that index heads shared out would need the scores of every cached token summed first.
    """

    hidden: int
    q_lora_rank: int
    heads: int
    dim: int
    rope_dim: int
    top_k: int

    def cache(self) -> LayerCache:
        """One index key a token on every rank."""
        return LayerCache("index", elements_per_token=float(self.dim), formula=f"an index key of {self.dim}")

    def flops_per_context_token(self) -> float:
        """Score FLOPs of one new token for each token of context."""
        return 2.0 * self.heads * self.dim

    def forward(self, build: Build, x: Tensor, q_latent: Tensor, scheme: LinearScheme) -> None:
        """Index queries and keys of the new tokens, and the choice of ``top_k`` cached tokens for each."""
        q = linear(
            build, q_latent, k=self.q_lora_rank, n=self.heads * self.dim, part="attention.indexer_q", scheme=scheme
        )
        k = linear(build, x, k=self.hidden, n=self.dim, part="attention.indexer_k", scheme=scheme)
        weights = linear(
            build,
            x,
            k=self.hidden,
            n=self.heads,
            part="attention.indexer_weights",
            scheme=build.schemes.unquantized,
        )
        k = rms_norm(build, k, "attention.indexer_k_norm", width=self.dim, kind="layer")
        rotated = x.shape[0] * (self.heads + 1) * self.rope_dim
        build.elementwise(
            "rope", "attention.indexer_rope", (q, k), (q, k), flops_per_element=ROPE_FLOPS, elements=rotated
        )
        write_cache(build, (k,), part="attention.indexer_cache")
        score(
            build,
            q,
            heads=self.heads,
            dim=self.dim,
            keys=build.cached_length + build.query_length,
            pairs=causal_pairs(build.query_length, build.cached_length),
            kept=self.top_k,
            extra=weights,
        )


@dataclass(frozen=True)
class BlockIndexer:
    """MiniMax-M3's indexer: ``heads`` queries and one key of ``dim``, each with an RMSNorm; the best ``top_k`` blocks
    of ``block`` keys, the query's own block always among them.
    """

    hidden: int
    heads: int
    dim: int
    block: int
    top_k: int

    def cache(self) -> LayerCache:
        """One index key a token on every rank."""
        return LayerCache("index", elements_per_token=float(self.dim), formula=f"an index key of {self.dim}")

    def flops_per_context_token(self) -> float:
        """Score FLOPs of one new token for each token of context."""
        return 2.0 * self.heads * self.dim

    def selected(self, query_length: Quantity, cached: Quantity) -> tuple[Quantity, Quantity]:
        """(Distinct keys that one sequence's new tokens read, its (query, key) pairs).

        The last of at most ``top_k`` blocks holds the query and is causal: a token at position p sees
        min(p + 1, (top_k - 1) x block + p mod block + 1) keys.
        """
        keys = np.minimum(cached + query_length, query_length * float(self.top_k * self.block))
        return keys, self._prefix(cached + query_length) - self._prefix(cached)

    def _prefix(self, length: Quantity) -> Quantity:
        """Pairs of the first ``length`` positions."""
        full = float(self.top_k * self.block)
        dense = np.minimum(length, full)
        later = length - dense
        whole = np.floor(later / self.block)
        rest = later - whole * self.block
        in_block = whole * (self.block * (self.block + 1.0) / 2.0) + rest * (rest + 1.0) / 2.0
        pairs: Quantity = dense * (dense + 1.0) / 2.0 + later * (full - self.block) + in_block
        return pairs

    def forward(self, build: Build, x: Tensor, scheme: LinearScheme) -> None:
        """Index queries and keys of the new tokens, and the choice of blocks."""
        rows = x.shape[0]
        width = self.heads * self.dim
        joint = linear(build, x, k=self.hidden, n=width + self.dim, part="attention.indexer_qk", scheme=scheme)
        q, k = joint.view(rows, width), joint.view(rows, self.dim)
        q = rms_norm(build, q, "attention.indexer_q_norm", width=self.dim)
        k = rms_norm(build, k, "attention.indexer_k_norm", width=self.dim)
        build.elementwise("rope", "attention.indexer_rope", (q, k), (q, k), flops_per_element=ROPE_FLOPS)
        write_cache(build, (k,), part="attention.indexer_cache")
        score(
            build,
            q,
            heads=self.heads,
            dim=self.dim,
            keys=build.cached_length + build.query_length,
            pairs=causal_pairs(build.query_length, build.cached_length),
            kept=self.top_k,
            extra=None,
        )
