"""DeepSeek-V4's attention: a window of tokens beside compressed entries of everything before, one key-value head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensor_cast.dtypes import dtype_bytes
from tensor_cast.errors import ModelingError
from tensor_cast.layers.build import Build, shard
from tensor_cast.layers.cache import LayerCache
from tensor_cast.layers.indexer import score
from tensor_cast.layers.linear import linear, row_parallel_linear, scale_weights
from tensor_cast.layers.norm import RMS_NORM_FLOPS, rms_norm
from tensor_cast.layers.softmax_attention import (
    ROPE_FLOPS,
    attend,
    causal_pairs,
    compressed_pairs,
    visible_keys,
    write_cache,
)
from tensor_cast.ops import MatMul, Tensor
from tensor_cast.quantity import Quantity
from tensor_cast.quantization import LinearScheme

# Add the position's bias, softmax over the tokens of an entry (5), weigh and sum.
POOLING_FLOPS = 8.0


@dataclass(frozen=True)
class Compressor:
    """``ratio`` tokens become one entry of ``dim``: values and gates are projected from the hidden state, gates get a
    learned bias a position, and their softmax weighs the values (DeepSeek-V4, sections 2.3.1 and 2.3.2).

    ``overlap`` (ratio 4) pools over this and the previous group, so values and gates are twice as wide.
    """

    hidden: int
    dim: int
    ratio: int
    overlap: bool

    @property
    def width(self) -> int:
        """Columns of the values, and of the gates."""
        return 2 * self.dim if self.overlap else self.dim

    @property
    def state_elements(self) -> int:
        """Values and gates of tokens that still wait for their group, and of the group before where they overlap."""
        waiting = 2 * self.ratio * self.width
        return waiting + (2 * self.ratio * self.dim if self.overlap else 0)

    def cache(self) -> LayerCache:
        """One entry for every ``ratio`` tokens."""
        formula = f"an entry of {self.dim} for {self.ratio} tokens"
        return LayerCache("compressed", float(self.dim), tokens_per_entry=self.ratio, formula=formula)

    def forward(self, build: Build, x: Tensor, part: str) -> None:
        """Write the entries that the new tokens complete: on average a ``ratio``-th of them."""
        rows = x.shape[0]
        joint = linear(
            build, x, k=self.hidden, n=2 * self.width, part=f"{part}_kv_gate", scheme=build.schemes.unquantized
        )
        bias = build.weight(f"{part}.position_bias", (self.ratio, self.width), "float32")
        gamma = build.weight(f"{part}_norm.weight", (self.dim,))
        entries = build.activation(rows / self.ratio, self.dim)
        build.elementwise(
            "compress_kv", f"{part}_pooling", (joint, bias, gamma), (entries,), flops_per_element=POOLING_FLOPS
        )
        write_cache(build, (entries,), part=f"{part}_cache")


@dataclass(frozen=True)
class EntryIndexer:
    """Chooses ``top_k`` compressed entries for each token by the scores of ``heads`` index heads over entries of their
    own, compressed alike to ``dim``.
    """

    q_lora_rank: int
    heads: int
    top_k: int
    compressor: Compressor

    def forward(self, build: Build, x: Tensor, q_latent: Tensor, scheme: LinearScheme) -> None:
        """Compress index keys, project index queries, score, select."""
        dim, ratio = self.compressor.dim, self.compressor.ratio
        self.compressor.forward(build, x, "attention.indexer_compressor")
        q = linear(build, q_latent, k=self.q_lora_rank, n=self.heads * dim, part="attention.indexer_q", scheme=scheme)
        weights = linear(
            build,
            x,
            k=self.compressor.hidden,
            n=self.heads,
            part="attention.indexer_weights",
            scheme=build.schemes.unquantized,
        )
        build.elementwise("rope", "attention.indexer_rope", (q,), (q,), flops_per_element=ROPE_FLOPS)
        score(
            build,
            q,
            heads=self.heads,
            dim=dim,
            keys=np.floor((build.cached_length + build.query_length) / ratio),
            pairs=compressed_pairs(build.query_length, build.cached_length, ratio),
            kept=self.top_k,
            extra=weights,
        )


@dataclass(frozen=True)
class CompressedAttention:
    """``heads`` query heads over one key that is its own value, of ``head_dim``.

    A token sees the last ``window`` tokens and, with a ``compressor``, all complete entries or those that its
    ``indexer`` chose. The output of each of ``o_groups`` groups of heads goes through ``o_lora_rank`` channels.
    Tensor-parallel ranks share heads and groups; the single key-value head and the indexer are on every rank.
    """

    hidden: int
    heads: int
    head_dim: int
    rope_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    window: int
    compressor: Compressor | None = None
    indexer: EntryIndexer | None = None

    def cache(self, tp: int, dcp: int = 1) -> LayerCache:
        """The window, the entries, and the indexer's entries; tokens that wait to be compressed are state.

        Raises:
            ModelingError: ``dcp`` is over 1.
        """
        if dcp > 1:
            raise ModelingError("--dcp-size shares out a whole KV cache; compressed attention keeps none: leave it 1.")
        parts, waiting = [], 0
        if self.compressor is not None:
            parts.append(self.compressor.cache())
            waiting += self.compressor.state_elements
        if self.indexer is not None:
            parts.append(self.indexer.compressor.cache())
            waiting += self.indexer.compressor.state_elements
        return LayerCache(
            "window",
            elements_per_token=float(self.head_dim),
            window=self.window,
            state_bytes=waiting * dtype_bytes("bfloat16"),
            beside=tuple(parts),
            formula=f"a key of {self.head_dim} that is its own value, of the last {self.window} tokens",
        )

    def flops_per_context_token(self) -> float:
        """Score and value FLOPs of one new token for each key that it attends to."""
        return 4.0 * self.heads * self.head_dim

    def flops_beyond_window(self) -> float:
        """FLOPs for a token beyond the window: a share of an entry that is attended to, or only scored."""
        if self.indexer is not None:
            return 2.0 * self.indexer.heads * self.indexer.compressor.dim / self.indexer.compressor.ratio
        return 0.0 if self.compressor is None else self.flops_per_context_token() / self.compressor.ratio

    def forward(self, build: Build, x: Tensor, scheme: LinearScheme) -> Tensor:
        """(tokens, hidden) -> residual rows of hidden, reduced over the TP group."""
        if build.parallel.o_proj_tp != build.tp:
            raise ModelingError("--o-proj-tp-size does not apply to a grouped output projection: leave it out.")
        heads = shard(self.heads, build.tp, "attention heads", "--tp-size")
        groups = shard(self.o_groups, build.tp, "groups of the output projection", "--tp-size")
        q, q_latent = self._queries(build, x, heads, scheme)
        self._store(build, x, scheme)
        if self.compressor is not None:
            self.compressor.forward(build, x, "attention.compressor")
        if self.indexer is not None:
            self.indexer.forward(build, x, q_latent, scheme)
        out = self._attend(build, q, heads)
        build.elementwise(
            "rope",
            "attention.unrotate",
            (out.view(out.shape[0], heads * self.rope_dim),),
            (out,),
            flops_per_element=ROPE_FLOPS,
        )
        return self._project_out(build, out, heads, groups, build.schemes.of_output(scheme))

    def _queries(self, build: Build, x: Tensor, heads: int, scheme: LinearScheme) -> tuple[Tensor, Tensor]:
        latent = linear(build, x, k=self.hidden, n=self.q_lora_rank, part="attention.q_a", scheme=scheme)
        latent = rms_norm(build, latent, "attention.q_a_norm", width=self.q_lora_rank)
        width = heads * self.head_dim
        q = linear(build, latent, k=self.q_lora_rank, n=width, part="attention.q_b", scheme=scheme)
        flops = RMS_NORM_FLOPS + ROPE_FLOPS * self.rope_dim / self.head_dim
        build.elementwise("rms_norm_rope", "attention.rope", (q,), (q,), flops_per_element=flops)
        return q, latent

    def _store(self, build: Build, x: Tensor, scheme: LinearScheme) -> None:
        kv = linear(build, x, k=self.hidden, n=self.head_dim, part="attention.kv", scheme=scheme)
        gamma = build.weight("attention.kv_norm.weight", (self.head_dim,))
        slots = Tensor(kv.shape, build.deployment.attention_dtype or build.dtype, "cache")
        flops = RMS_NORM_FLOPS + ROPE_FLOPS * self.rope_dim / self.head_dim
        build.elementwise("kv_rms_norm_rope_cache", "attention.cache", (kv, gamma), (slots,), flops_per_element=flops)

    def _attend(self, build: Build, q: Tensor, heads: int) -> Tensor:
        new, cached = build.query_length, build.cached_length
        keys: Quantity = visible_keys(new, cached, window=self.window)
        pairs: Quantity = causal_pairs(new, cached, window=self.window)
        if self.compressor is not None:
            ratio = self.compressor.ratio
            top_k = None if self.indexer is None else self.indexer.top_k
            entries = np.floor((cached + new) / ratio)
            keys = keys + (entries if top_k is None else np.minimum(entries, new * float(top_k)))
            pairs = pairs + compressed_pairs(new, cached, ratio, top_k=top_k)
        dtype = build.deployment.attention_dtype or build.dtype
        return attend(
            build,
            q,
            Tensor((build.queries, keys, self.head_dim), dtype, "cache"),
            extra=(build.weight("attention.sinks", (heads,), "float32"),),
            heads=heads,
            kv_heads=1,
            qk_dim=self.head_dim,
            v_dim=self.head_dim,
            keys=keys,
            pairs=pairs,
        )

    def _project_out(self, build: Build, x: Tensor, heads: int, groups: int, scheme: LinearScheme) -> Tensor:
        rows = x.shape[0]
        k = self.heads * self.head_dim // self.o_groups
        latent = build.activation(rows, groups * self.o_lora_rank)
        part = "attention.output_a"
        # Stored in the scheme's format and expanded to the model's dtype for the product of each group.
        weight = build.weight(part, (groups, k, self.o_lora_rank), scheme.weight_dtype)
        scales = scale_weights(build, part, k, self.o_lora_rank, scheme, copies=(groups,))
        build.emit(
            MatMul(
                name="batch_matmul",
                part=part,
                inputs=(x, weight, *scales),
                outputs=(latent,),
                m=rows,
                k=k,
                n=self.o_lora_rank,
                batch=float(groups),
                matrix_dtype=build.dtype,
            )
        )
        return row_parallel_linear(
            build, latent, k=groups * self.o_lora_rank, n=self.hidden, part="attention.output", scheme=scheme
        )
