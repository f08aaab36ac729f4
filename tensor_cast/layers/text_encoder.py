"""Layers of bidirectional and causal text encoders: T5's and CLIP's."""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.layers.conv import ComponentBuild
from tensor_cast.layers.dit import UNQUANTIZED, activate, add, layer_norm
from tensor_cast.layers.linear import linear
from tensor_cast.ops import Attention, Gather, Tensor
from tensor_cast.quantity import Quantity

# Square, accumulate, scale by the root, scale by gamma.
RMS_NORM_FLOPS = 4.0


def embed(b: ComponentBuild, rows: Quantity, vocabulary: int, width: int, part: str = "embedding") -> Tensor:
    """Rows of a table by index."""
    table, out = b.weight(part, (vocabulary, width)), b.activation(rows, width)
    ids = Tensor((rows,), "int32", "index")
    b.emit(Gather(name="embedding", part=part, inputs=(ids, table), outputs=(out,)))
    return out


def rms_norm(b: ComponentBuild, x: Tensor, part: str) -> Tensor:
    """RMSNorm of rows."""
    out = b.activation(*x.shape)
    gamma = b.weight(f"{part}.weight", (x.shape[1],))
    b.elementwise("rms_norm", part, (x, gamma), (out,), flops_per_element=RMS_NORM_FLOPS)
    return out


@dataclass(frozen=True)
class EncoderAttention:
    """Self-attention of ``heads`` over all tokens of a prompt, or, ``causal``, over those up to each."""

    hidden: int
    heads: int
    head_dim: int
    bias: bool
    causal: bool

    def forward(self, b: ComponentBuild, x: Tensor, tokens: Quantity, *, scores: tuple[Tensor, ...] = ()) -> Tensor:
        """(batch x tokens, hidden) -> the same; ``scores`` are added to the attention scores."""
        width = self.heads * self.head_dim
        q, k, v = (
            linear(b, x, k=self.hidden, n=width, part=f"attention.{name}", scheme=UNQUANTIZED, bias=self.bias)
            for name in ("q", "k", "v")
        )
        out = b.activation(x.shape[0], width)
        b.emit(
            Attention(
                name="flash_attention",
                part="attention.core",
                inputs=(q, k, v, *scores),
                outputs=(out,),
                matrix_dtype=b.dtype,
                batch=b.batch,
                query_length=tokens,
                kv_length=tokens,
                heads=self.heads,
                kv_heads=self.heads,
                qk_dim=self.head_dim,
                v_dim=self.head_dim,
                pairs=b.batch * tokens * ((tokens + 1.0) / 2.0 if self.causal else tokens),
                cache_bytes=0.0,
                decode=False,
                causal=self.causal,
                diffusion=True,
            )
        )
        return linear(b, out, k=width, n=self.hidden, part="attention.output", scheme=UNQUANTIZED, bias=self.bias)


@dataclass(frozen=True)
class T5Layer:
    """Bidirectional, without biases; positions enter as biases of the attention scores, ``buckets`` of distances."""

    attention: EncoderAttention
    inner: int
    gated: bool
    buckets: int

    def bias_table(self, b: ComponentBuild, tokens: Quantity) -> Tensor:
        """Biases of all pairs of positions, looked up by their distance's bucket."""
        table = b.weight("attention.relative_bias", (self.buckets, self.attention.heads))
        scores = b.activation(self.attention.heads, tokens, tokens)
        b.emit(Gather(name="relative_bias", part="attention.relative_bias", inputs=(table,), outputs=(scores,)))
        return scores

    def forward(self, b: ComponentBuild, x: Tensor, tokens: Quantity, scores: Tensor) -> Tensor:
        """(batch x tokens, hidden) -> the same."""
        hidden = self.attention.hidden
        attended = self.attention.forward(b, rms_norm(b, x, "norm1"), tokens, scores=(scores,))
        x = add(b, x, attended, "attention.residual")
        normed = rms_norm(b, x, "norm2")
        up = linear(b, normed, k=hidden, n=self.inner, part="mlp.up", scheme=UNQUANTIZED)
        activated = activate(b, up, "gelu", "mlp.activation")
        if self.gated:
            other = linear(b, normed, k=hidden, n=self.inner, part="mlp.gate", scheme=UNQUANTIZED)
            gated = b.activation(*up.shape)
            b.elementwise("mul", "mlp.gate", (activated, other), (gated,), flops_per_element=1.0)
            activated = gated
        down = linear(b, activated, k=self.inner, n=hidden, part="mlp.down", scheme=UNQUANTIZED)
        return add(b, x, down, "mlp.residual")


@dataclass(frozen=True)
class ClipLayer:
    """LayerNorms before attention and feed-forward, biases everywhere."""

    attention: EncoderAttention
    inner: int

    def forward(self, b: ComponentBuild, x: Tensor, tokens: Quantity) -> Tensor:
        """(batch x tokens, hidden) -> the same."""
        hidden = self.attention.hidden
        attended = self.attention.forward(b, layer_norm(b, x, "norm1", affine=True), tokens)
        x = add(b, x, attended, "attention.residual")
        normed = layer_norm(b, x, "norm2", affine=True)
        up = linear(b, normed, k=hidden, n=self.inner, part="mlp.up", scheme=UNQUANTIZED, bias=True)
        activated = activate(b, up, "gelu", "mlp.activation")
        down = linear(b, activated, k=self.inner, n=hidden, part="mlp.down", scheme=UNQUANTIZED, bias=True)
        return add(b, x, down, "mlp.residual")
