"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1; V3, arXiv 2412.19437)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensor_cast.layers.build import Build, shard
from tensor_cast.layers.cache import LayerCache
from tensor_cast.layers.indexer import TokenIndexer
from tensor_cast.layers.linear import linear, row_parallel_linear
from tensor_cast.layers.norm import RMS_NORM_FLOPS, rms_norm
from tensor_cast.layers.output_projection import wide_output_projection
from tensor_cast.layers.softmax_attention import ROPE_FLOPS, attend, causal_pairs, require_dcp_fits, write_cache
from tensor_cast.ops import MatMul, Tensor
from tensor_cast.quantity import Quantity
from tensor_cast.quantization import LinearScheme


@dataclass(frozen=True)
class LatentAttention:
    """Keys and values are kept as one latent of ``kv_lora_rank`` beside a shared rotary key of ``rope_dim``.

    A prefill expands the latent into ``heads`` keys and values. A decode absorbs the expansion into the query and
    output projections and attends over the latent itself, as one KV head. The expansion stays in the model's dtype
    under every scheme, as serving engines keep it for absorption.
    """

    hidden: int
    heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    bias: bool = False
    rotary: bool = True
    top_k: int | None = None
    indexer: TokenIndexer | None = None

    @property
    def latent_dim(self) -> int:
        """Elements that the cache keeps of a token."""
        return self.kv_lora_rank + self.rope_dim

    def cache(self, tp: int, dcp: int = 1) -> LayerCache:
        """The latent has no heads to share out: every rank of the TP group keeps it whole."""
        require_dcp_fits(dcp, tp, f"one latent over tensor parallel {tp}", sparse=self.top_k is not None)
        return LayerCache(
            kind="latent",
            elements_per_token=float(self.latent_dim),
            token_share=1.0 / dcp,
            beside=() if self.indexer is None else (self.indexer.cache(),),
            formula=f"{self.kv_lora_rank} of the latent + {self.rope_dim} of the rotary key",
        )

    def flops_per_context_token(self) -> float:
        """Score and value FLOPs of one new token for each token that it attends to, in the absorbed (decode) form.

        An indexer's scores, which see every token of context, are not among them.
        """
        return 2.0 * self.heads * (self.latent_dim + self.kv_lora_rank)

    def flops_beyond_window(self) -> float:
        """FLOPs for a token beyond ``top_k``, which only an indexer scores."""
        if self.top_k is None:
            return self.flops_per_context_token()
        return 0.0 if self.indexer is None else self.indexer.flops_per_context_token()

    def forward(self, build: Build, x: Tensor, scheme: LinearScheme) -> Tensor:
        """(tokens, hidden) -> residual rows of hidden, reduced over the TP group."""
        heads = shard(self.heads, build.tp, "attention heads", "--tp-size")
        q, latent, q_latent = self._project(build, x, heads, scheme)
        if self.indexer is not None:
            assert q_latent is not None
            self.indexer.forward(build, x, q_latent, scheme)
        q = self._rotate(build, q, heads)
        self._store(build, latent)
        absorbed = build.decode or self.top_k is not None
        out = self._absorbed(build, q, heads) if absorbed else self._expanded(build, q, heads)
        width = heads * self.v_dim
        output = build.schemes.of_output(scheme)
        if build.parallel.o_proj_tp != build.tp:
            return wide_output_projection(build, out, width=width, hidden=self.hidden, scheme=output)
        return row_parallel_linear(
            build, out, k=width, n=self.hidden, part="attention.output", scheme=output, bias=self.bias
        )

    def _project(
        self, build: Build, x: Tensor, heads: int, scheme: LinearScheme
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries (tokens, heads x (nope + rope)), latents (tokens, kv_lora_rank + rope) and, where queries have one,
        their own latent (tokens, q_lora_rank).
        """
        rows = x.shape[0]
        q_width = heads * (self.nope_dim + self.rope_dim)
        if self.q_lora_rank is None:
            q = linear(build, x, k=self.hidden, n=q_width, part="attention.q", scheme=scheme)
            kv = linear(
                build, x, k=self.hidden, n=self.latent_dim, part="attention.kv_a", scheme=scheme, bias=self.bias
            )
            return q, kv, None
        if build.compile:
            joint = linear(
                build,
                x,
                k=self.hidden,
                n=self.q_lora_rank + self.latent_dim,
                part="attention.qkv_a",
                scheme=scheme,
                bias=self.bias,
            )
            q_a, kv = (joint.view(rows, width) for width in (self.q_lora_rank, self.latent_dim))
        else:
            q_a = linear(
                build, x, k=self.hidden, n=self.q_lora_rank, part="attention.q_a", scheme=scheme, bias=self.bias
            )
            kv = linear(
                build, x, k=self.hidden, n=self.latent_dim, part="attention.kv_a", scheme=scheme, bias=self.bias
            )
        q_a = rms_norm(build, q_a, "attention.q_a_norm", width=self.q_lora_rank)
        q = linear(build, q_a, k=self.q_lora_rank, n=q_width, part="attention.q_b", scheme=scheme)
        return q, kv, q_a

    def _rotate(self, build: Build, q: Tensor, heads: int) -> Tensor:
        """The rotary part of every query head, rotated in place."""
        if not self.rotary:
            return q
        part = q.view(q.shape[0], heads * self.rope_dim)
        build.elementwise("interleave_rope", "attention.rope", (part,), (part,), flops_per_element=ROPE_FLOPS)
        return q

    def _store(self, build: Build, latent: Tensor) -> None:
        """Normalise the latent, rotate its key, and write both to the cache: one kernel when compiled."""
        rows = latent.shape[0]
        gamma = build.weight("attention.kv_a_norm.weight", (self.kv_lora_rank,))
        flops = rows * (RMS_NORM_FLOPS * self.kv_lora_rank + ROPE_FLOPS * self.rope_dim)
        if build.compile:
            slots = Tensor(latent.shape, build.deployment.attention_dtype or build.dtype, "cache")
            build.elementwise(
                "kv_rms_norm_rope_cache",
                "attention.cache",
                (latent, gamma),
                (slots,),
                flops_per_element=1.0,
                elements=flops,
            )
            return
        normed, ready = build.activation(rows, self.kv_lora_rank), build.activation(rows, self.latent_dim)
        build.elementwise(
            "rms_norm",
            "attention.kv_a_norm",
            (latent, gamma),
            (normed,),
            flops_per_element=RMS_NORM_FLOPS,
            elements=normed.elements,
        )
        key = latent.view(rows, self.rope_dim)
        build.elementwise("rope", "attention.k_rope", (key,), (key,), flops_per_element=ROPE_FLOPS)
        build.elementwise("concat", "attention.latent", (normed, key), (ready,), flops_per_element=0.0)
        write_cache(build, (ready,))

    def _absorbed(self, build: Build, q: Tensor, heads: int) -> Tensor:
        """Decode: attention over the latents as one KV head shared by all query heads."""
        dcp = build.parallel.dcp if build.decode else 1
        keys = build.cached_length + build.query_length
        if self.top_k is not None:
            keys = np.minimum(keys, build.query_length * float(self.top_k))
        absorbed = self._per_head(build, q, heads, self.nope_dim, self.kv_lora_rank, "attention.k_up")
        query = build.activation(q.shape[0], heads * self.latent_dim)
        build.elementwise(
            "concat",
            "attention.query",
            (absorbed, q.view(q.shape[0], heads * self.rope_dim)),
            (query,),
            flops_per_element=0.0,
        )
        dtype = build.deployment.attention_dtype or build.dtype
        out = attend(
            build,
            query,
            Tensor((build.queries, keys / dcp, self.latent_dim), dtype, "cache"),
            heads=heads,
            kv_heads=1,
            qk_dim=self.latent_dim,
            v_dim=self.kv_lora_rank,
            keys=keys,
            pairs=causal_pairs(build.query_length, build.cached_length, window=self.top_k),
            dcp=dcp,
        )
        return self._per_head(build, out, heads, self.kv_lora_rank, self.v_dim, "attention.v_up")

    def _expanded(self, build: Build, q: Tensor, heads: int) -> Tensor:
        """Prefill: keys and values of every head, expanded from the latents of all tokens, cached ones included."""
        keys = build.cached_length + build.query_length
        rows: Quantity = build.queries * keys
        cached = Tensor((rows, self.kv_lora_rank), build.deployment.attention_dtype or build.dtype, "cache")
        expanded = []
        for part, width in (("attention.k_up", self.nope_dim), ("attention.v_up", self.v_dim)):
            out = build.activation(rows, heads * width)
            build.emit(
                MatMul(
                    name="matmul",
                    part=part,
                    inputs=(cached, build.weight(part, (heads, self.kv_lora_rank, width))),
                    outputs=(out,),
                    m=rows,
                    k=self.kv_lora_rank,
                    n=heads * width,
                    matrix_dtype=build.dtype,
                )
            )
            expanded.append(out)
        return attend(
            build,
            q,
            Tensor((build.queries, keys, self.rope_dim), build.dtype, "cache"),
            extra=tuple(expanded),
            heads=heads,
            kv_heads=heads,
            qk_dim=self.nope_dim + self.rope_dim,
            v_dim=self.v_dim,
            keys=keys,
            pairs=causal_pairs(build.query_length, build.cached_length),
        )

    def _per_head(self, build: Build, x: Tensor, heads: int, k: int, n: int, part: str) -> Tensor:
        """One (tokens, k) x (k, n) product a head."""
        rows = x.shape[0]
        out = build.activation(rows, heads * n)
        build.emit(
            MatMul(
                name="batch_matmul",
                part=part,
                inputs=(x.view(rows, heads * k), build.weight(part, (heads, k, n))),
                outputs=(out,),
                m=rows,
                k=k,
                n=n,
                batch=float(heads),
                matrix_dtype=build.dtype,
            )
        )
        return out
