"""Grouped-query attention over a paged KV cache: full, windowed, chunked or block-sparse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensor_cast.layers.build import Build, shard, shard_or_replicate
from tensor_cast.layers.cache import LayerCache
from tensor_cast.layers.indexer import BlockIndexer
from tensor_cast.layers.linear import linear, row_parallel_linear
from tensor_cast.layers.norm import RMS_NORM_FLOPS
from tensor_cast.layers.output_projection import wide_output_projection
from tensor_cast.layers.softmax_attention import (
    ROPE_FLOPS,
    attend,
    causal_pairs,
    require_dcp_fits,
    visible_keys,
    write_cache,
)
from tensor_cast.ops import Tensor
from tensor_cast.quantization import LinearScheme

# Sigmoid (exponential, add, divide) and product of a gated attention output.
OUTPUT_GATE_FLOPS = 4.0

QKNorm = Literal["none", "head", "full"]
OutputGate = Literal["none", "element", "head"]


@dataclass(frozen=True)
class GroupedQueryAttention:
    """``heads`` query heads share ``kv_heads`` key and value heads of ``head_dim`` (values: ``v_dim``).

    ``qk_norm`` is an RMSNorm of each query and key head (``head``) or of the whole projection (``full``). ``window``
    keeps that many last tokens, ``chunk`` attends within chunks, ``indexer`` picks blocks of keys. ``sinks`` are a
    learned logit a head (gpt-oss). ``output_gate`` is a projected sigmoid on each output element (Qwen3-Next) or head
    (Step-3). ``keys_are_values`` projects keys and values at once (Gemma 4); both are still cached, as norms and rotary
    embedding tell them apart.
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
    output_gate: OutputGate = "none"
    v_head_dim: int | None = None
    keys_are_values: bool = False
    indexer: BlockIndexer | None = None

    @property
    def v_dim(self) -> int:
        """Width of a value head."""
        return self.v_head_dim or self.head_dim

    def cache(self, tp: int, dcp: int = 1) -> LayerCache:
        """What one rank keeps: keys and values of its KV heads."""
        local = shard_or_replicate(self.kv_heads, tp, "KV heads", "--tp-size")
        require_dcp_fits(
            dcp,
            tp * local // self.kv_heads,
            f"{self.kv_heads} KV heads over tensor parallel {tp}",
            sparse=self.indexer is not None,
        )
        return LayerCache(
            kind="window" if self.window or self.chunk else "full",
            elements_per_token=float(local * (self.head_dim + self.v_dim)),
            window=self.window or self.chunk,
            token_share=1.0 / dcp,
            beside=() if self.indexer is None else (self.indexer.cache(),),
            formula=f"{local} KV heads x ({self.head_dim} of keys + {self.v_dim} of values)",
        )

    def flops_per_context_token(self) -> float:
        """Score and value FLOPs of one new token for each token that it attends to."""
        return 2.0 * self.heads * (self.head_dim + self.v_dim)

    def flops_beyond_window(self) -> float:
        """The part of it that is still done for a token beyond the window: an indexer scores all tokens."""
        if self.indexer is not None:
            return self.indexer.flops_per_context_token()
        return 0.0 if self.window or self.chunk else self.flops_per_context_token()

    def forward(self, build: Build, x: Tensor, scheme: LinearScheme) -> Tensor:
        """(tokens, hidden) -> residual rows of hidden, reduced over the TP group."""
        heads = shard(self.heads, build.tp, "attention heads", "--tp-size")
        kv_heads = shard_or_replicate(self.kv_heads, build.tp, "KV heads", "--tp-size")
        q_width, k_width, v_width = heads * self.head_dim, kv_heads * self.head_dim, kv_heads * self.v_dim
        out_width = heads * self.v_dim
        gate_width = out_width if self.output_gate == "element" else 0
        qkv = linear(
            build,
            x,
            k=self.hidden,
            n=q_width + gate_width + k_width + (0 if self.keys_are_values else v_width),
            part="attention.qkv",
            scheme=scheme,
            bias=self.qkv_bias,
        )
        q, k, v = self._split_norm_rope(build, qkv, (q_width, k_width, v_width))
        write_cache(build, (k, v))
        if self.indexer is not None:
            self.indexer.forward(build, x, scheme)
        out = self._attend(build, q, heads, kv_heads)
        if self.output_gate != "none":
            out = self._gate(build, x, out, heads)
        output = build.schemes.of_output(scheme)
        if build.parallel.o_proj_tp != build.tp:
            return wide_output_projection(build, out, width=out_width, hidden=self.hidden, scheme=output)
        return row_parallel_linear(
            build, out, k=out_width, n=self.hidden, part="attention.output", scheme=output, bias=self.output_bias
        )

    def _gate(self, build: Build, x: Tensor, out: Tensor, heads: int) -> Tensor:
        """The output times its sigmoid gate, which the joint projection holds, or one projected to a scalar a head."""
        if self.output_gate == "head":
            gate = linear(build, x, k=self.hidden, n=heads, part="attention.gate", scheme=build.schemes.unquantized)
        else:
            gate = build.activation(*out.shape)
        gated = build.activation(*out.shape)
        build.elementwise("sigmoid_mul", "attention.gate", (out, gate), (gated,), flops_per_element=OUTPUT_GATE_FLOPS)
        return gated

    def _split_norm_rope(
        self, build: Build, qkv: Tensor, widths: tuple[int, int, int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values out of the joint projection, normalised and rotated."""
        rows = qkv.shape[0]
        q, k, v = (build.activation(rows, width) for width in widths)
        normed_width = widths[0] + widths[1]
        gammas = self._norm_weights(build, widths[0], widths[1])
        rope_dim = self.head_dim if self.rope_dim is None else self.rope_dim
        rotated = normed_width * rope_dim / self.head_dim
        norm_flops = RMS_NORM_FLOPS * normed_width if gammas else 0.0
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

    def _norm_weights(self, build: Build, q_width: int, k_width: int) -> tuple[Tensor, ...]:
        if self.qk_norm == "none":
            return ()
        widths = (self.head_dim, self.head_dim) if self.qk_norm == "head" else (q_width, k_width)
        names = ("attention.q_norm.weight", "attention.k_norm.weight")
        return tuple(build.weight(name, (width,)) for name, width in zip(names, widths, strict=True))

    def _attend(self, build: Build, q: Tensor, heads: int, kv_heads: int) -> Tensor:
        """Softmax attention, over this rank's share of the cached tokens under decode context parallelism."""
        dcp = build.parallel.dcp if build.decode else 1
        keys = visible_keys(build.query_length, build.cached_length, window=self.window, chunk=self.chunk)
        pairs = causal_pairs(build.query_length, build.cached_length, window=self.window, chunk=self.chunk)
        if self.indexer is not None:
            keys, pairs = self.indexer.selected(build.query_length, build.cached_length)
        dtype = build.deployment.attention_dtype or build.dtype
        sinks = (build.weight("attention.sinks", (heads,)),) if self.sinks else ()
        cache = Tensor((build.queries, keys / dcp, kv_heads * (self.head_dim + self.v_dim)), dtype, "cache")
        return attend(
            build,
            q,
            cache,
            extra=sinks,
            heads=heads,
            kv_heads=kv_heads,
            qk_dim=self.head_dim,
            v_dim=self.v_dim,
            keys=keys,
            pairs=pairs,
            dcp=dcp,
        )
