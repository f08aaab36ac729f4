"""Bidirectional attention of diffusion transformers: projections, norms of queries and keys, Ulysses, sparsity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tensor_cast.layers import eager
from tensor_cast.layers.dit import DenoiserBuild, Tokens
from tensor_cast.layers.linear import DYNAMIC_QUANT_FLOPS, linear
from tensor_cast.ops import Attention, Tensor
from tensor_cast.parallelism import RankGroup
from tensor_cast.quantity import Quantity, ceil_div

# Square, accumulate, scale by the root, scale by gamma; a LayerNorm also takes the mean and adds beta.
QK_NORM_FLOPS = {"none": 0.0, "full": 4.0, "head": 4.0, "head_layer": 7.0}
# Two products and a sum for each element.
ROPE_FLOPS = 3.0

QKNorm = Literal["none", "full", "head", "head_layer"]


@dataclass(frozen=True)
class Projection:
    """Queries, keys and values of one stream of tokens.

    ``qk_norm``: RMSNorm of the whole projection (``full``) or of each head (``head``), LayerNorm of each head with
    bias (``head_layer``). ``rope`` rotates queries and keys.
    """

    hidden: int
    heads: int
    head_dim: int
    qk_norm: QKNorm
    rope: bool = True
    bias: bool = True

    @property
    def width(self) -> int:
        """Elements of a token's queries."""
        return self.heads * self.head_dim

    def qkv(self, b: DenoiserBuild, x: Tensor, part: str) -> tuple[Tensor, Tensor, Tensor]:
        """(rows, hidden) -> queries, keys, values: one product compiled, three in eager mode."""
        rows, width = x.shape[0], self.width
        if b.compile:
            joint = linear(b, x, k=self.hidden, n=3 * width, part=f"{part}.qkv", scheme=b.scheme, bias=self.bias)
            q, k, v = (b.activation(rows, width) for _ in range(3))
            gammas = self._norm_weights(b, part)
            flops = 2 * width * rows * (QK_NORM_FLOPS[self.qk_norm] + (ROPE_FLOPS if self.rope else 0.0))
            name = f"split_qkv{'_norm' if gammas else ''}{'_rope' if self.rope else ''}"
            inputs = (joint, *gammas)
            b.elementwise(name, f"{part}.rope", inputs, (q, k, v), flops_per_element=1.0, elements=flops)
            return q, k, v
        q, k, v = (self.project(b, x, part, name) for name in ("q", "k", "v"))
        return (
            self.rotate(b, self.normalise(b, q, part, "q"), part),
            self.rotate(b, self.normalise(b, k, part, "k"), part),
            v,
        )

    def project(self, b: DenoiserBuild, x: Tensor, part: str, name: str) -> Tensor:
        """One of the three projections."""
        return linear(b, x, k=self.hidden, n=self.width, part=f"{part}.{name}", scheme=b.scheme, bias=self.bias)

    def normalise(self, b: DenoiserBuild, x: Tensor, part: str, name: str) -> Tensor:
        """Norm of queries or keys."""
        if self.qk_norm == "none":
            return x
        weights = self._norm_weight(b, part, name)
        where = f"{part}.{name}_norm"
        if not b.compile and self.qk_norm != "head_layer":
            return eager.rms_norm(b, x, weights[0], where)
        kernel = "layer_norm" if self.qk_norm == "head_layer" else "rms_norm"
        return eager.pointwise(b, kernel, where, (x, *weights), b.dtype, flops=QK_NORM_FLOPS[self.qk_norm])

    def rotate(self, b: DenoiserBuild, x: Tensor, part: str) -> Tensor:
        """Rotary embedding of queries or keys in eager mode."""
        return eager.rotate(b, x, f"{part}.rope") if self.rope else x

    def _norm_weights(self, b: DenoiserBuild, part: str) -> tuple[Tensor, ...]:
        return self._norm_weight(b, part, "q") + self._norm_weight(b, part, "k")

    def _norm_weight(self, b: DenoiserBuild, part: str, name: str) -> tuple[Tensor, ...]:
        match self.qk_norm:
            case "none":
                return ()
            case "full":
                return (b.weight(f"{part}.{name}_norm.weight", (self.width,)),)
            case "head":
                return (b.weight(f"{part}.{name}_norm.weight", (self.head_dim,)),)
            case "head_layer":
                weight = b.weight(f"{part}.{name}_norm.weight", (self.head_dim,))
                return (weight, b.weight(f"{part}.{name}_norm.bias", (self.head_dim,)))


def self_attention(
    b: DenoiserBuild,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    streams: tuple[Tokens, ...],
    heads: int,
    head_dim: int,
    part: str,
) -> Tensor:
    """(batch x local tokens, width) -> the same rows, each having attended to all tokens of its sample.

    Ulysses (arXiv 2309.14509): an all-to-all each of queries, keys and values turns a share of the tokens with all
    heads into all tokens with a share of the heads, one of the result turns back. ``streams`` are the kinds of tokens
    that attend jointly; each is padded to the ranks.
    """
    local: Quantity = sum((tokens.local for tokens in streams), start=0.0)
    total: Quantity = sum((tokens.padded for tokens in streams), start=0.0)
    group = RankGroup(b.ranks)
    share = heads // b.ranks
    q, k, v = (_exchange(b, x, f"{part}.before", group, (b.batch * total, share * head_dim)) for x in (q, k, v))
    out = attend(
        b, q, k, v, query_tokens=total, key_tokens=total, heads=share, head_dim=head_dim, part=part, self_=True
    )
    return _exchange(b, out, f"{part}.after", group, (b.batch * local, heads * head_dim))


def _exchange(b: DenoiserBuild, x: Tensor, part: str, group: RankGroup, shape: tuple[Quantity, Quantity]) -> Tensor:
    """An all-to-all of tokens and heads. What goes to one rank is laid out together before, and in order after it."""
    if group.size == 1:
        return x
    packed = eager.pointwise(b, "transpose", part, (x,), x.dtype, flops=0.0)
    received = b.communicate("all_to_all", part, packed, group, shape)
    return eager.pointwise(b, "transpose", part, (received,), x.dtype, flops=0.0)


def attend(
    b: DenoiserBuild,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    query_tokens: Quantity,
    key_tokens: Quantity,
    heads: int,
    head_dim: int,
    part: str,
    self_: bool = False,
) -> Tensor:
    """Every query of a sample over all its keys; self-attention skips blocks where the deployment says so."""
    sparse = b.deployment.sparse and self_
    keys = kept_keys(key_tokens, b.deployment.attention_block_size, b.deployment.attention_sparsity)
    seen = keys if sparse else key_tokens
    out = b.activation(b.batch * query_tokens, heads * head_dim)
    b.emit(
        Attention(
            name="block_sparse_attention" if sparse else b.deployment.dense_attention,
            part=f"{part}.core",
            inputs=tuple(operand for x in (q, k, v) for operand in _quantized(b, x, heads, part)),
            outputs=(out,),
            matrix_dtype=b.deployment.attention_dtype or b.dtype,
            batch=b.batch,
            query_length=query_tokens,
            kv_length=key_tokens,
            heads=heads,
            kv_heads=heads,
            qk_dim=head_dim,
            v_dim=head_dim,
            pairs=b.batch * query_tokens * seen,
            cache_bytes=0.0,
            decode=False,
            causal=False,
            diffusion=True,
        )
    )
    return out


def kept_keys(key_tokens: Quantity, block: int, sparsity: float) -> Quantity:
    """Keys that a query sees when the share ``sparsity`` of blocks of ``block`` keys is skipped, in whole blocks."""
    blocks: Quantity = np.ceil((1.0 - sparsity) * ceil_div(key_tokens, block))
    kept: Quantity = np.minimum(blocks * block, key_tokens)
    return kept


def _quantized(b: DenoiserBuild, x: Tensor, heads: int, part: str) -> tuple[Tensor, ...]:
    """An operand as quantised attention takes it, with a scale a token and head."""
    dtype = b.deployment.attention_dtype
    if dtype is None:
        return (x,)
    outputs = (Tensor(x.shape, dtype), Tensor((x.shape[0], heads), "float32"))
    b.elementwise("dynamic_quant", f"{part}.quantize", (x,), outputs, flops_per_element=DYNAMIC_QUANT_FLOPS)
    return outputs
