"""Blocks of multimodal diffusion transformers (MM-DiT, arXiv 2403.03206): two streams of tokens, or one."""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.layers.dit import (
    DenoiserBuild,
    Tokens,
    activate,
    feed_forward,
    gated_add,
    layer_norm,
    modulated_norm,
    modulation,
)
from tensor_cast.layers.dit_attention import Projection, attend, self_attention
from tensor_cast.layers.linear import linear
from tensor_cast.ops import Tensor
from tensor_cast.quantity import Quantity


def concat(b: DenoiserBuild, parts: tuple[Tensor, ...], part: str, *shape: Quantity) -> Tensor:
    """``parts`` as one tensor of ``shape``. Compiled, their writers fill one buffer, so that nothing is copied."""
    out = b.activation(*shape)
    if not b.compile:
        b.elementwise("concat", part, parts, (out,), flops_per_element=0.0)
    return out


@dataclass(frozen=True)
class DoubleStreamBlock:
    """Video (or image) and text tokens with weights of their own, which meet in attention.

    ``text_rope`` rotates text tokens too. ``last`` blocks drop the text after attention. ``second_attention`` is
    SD 3.5 medium's self-attention of the image alone.
    """

    hidden: int
    heads: int
    head_dim: int
    inner: int
    qk_norm: bool = True
    rope: bool = True
    text_rope: bool = False
    last: bool = False
    second_attention: bool = False
    modulation_rows: int = 1

    def forward(
        self, b: DenoiserBuild, x: Tensor, context: Tensor, embedding: Tensor, video: Tokens, text: Tokens
    ) -> tuple[Tensor, Tensor]:
        """(batch x video.local, hidden), (batch x text.local, hidden) -> the same."""
        wide = embedding if self.modulation_rows == 1 else _repeated(b, embedding, self.modulation_rows)
        vectors = modulation(b, wide, "norm1", width=self.hidden, count=9 if self.second_attention else 6)
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = vectors[:6]
        context_vectors = modulation(b, embedding, "context_norm1", width=self.hidden, count=2 if self.last else 6)
        image_projection = self._projection(self.rope)
        text_projection = self._projection(self.text_rope)
        normed = modulated_norm(b, x, shift, scale, "norm1")
        q, k, v = image_projection.qkv(b, normed, "attention")
        context_normed = modulated_norm(b, context, context_vectors[0], context_vectors[1], "context_norm1")
        cq, ck, cv = text_projection.qkv(b, context_normed, "context_attention")
        rows = x.shape[0] + context.shape[0]
        jq, jk, jv = (concat(b, pair, "attention.join", rows, q.shape[1]) for pair in ((q, cq), (k, ck), (v, cv)))
        out = self_attention(
            b, jq, jk, jv, streams=(video, text), heads=self.heads, head_dim=self.head_dim, part="attention"
        )
        width = self.heads * self.head_dim
        attended = self._out(b, out.view(x.shape[0], width), "attention")
        total = gated_add(b, x, attended, gate, "attention.residual")
        if self.second_attention:
            total = self._attend_again(b, x, total, vectors[6:], video)
        normed = modulated_norm(b, total, mlp_shift, mlp_scale, "norm2")
        fed = feed_forward(b, normed, hidden=self.hidden, inner=self.inner, part="mlp")
        total = gated_add(b, total, fed, mlp_gate, "mlp.residual")
        if self.last:
            return total, context
        return total, self._context_rest(b, context, out.view(context.shape[0], width), context_vectors[2:])

    def _context_rest(self, b: DenoiserBuild, context: Tensor, attended: Tensor, vectors: list[Tensor]) -> Tensor:
        gate, mlp_shift, mlp_scale, mlp_gate = vectors
        projected = self._out(b, attended, "context_attention")
        total = gated_add(b, context, projected, gate, "context_attention.residual")
        normed = modulated_norm(b, total, mlp_shift, mlp_scale, "context_norm2")
        fed = feed_forward(b, normed, hidden=self.hidden, inner=self.inner, part="context_mlp")
        return gated_add(b, total, fed, mlp_gate, "context_mlp.residual")

    def _attend_again(self, b: DenoiserBuild, x: Tensor, total: Tensor, vectors: list[Tensor], video: Tokens) -> Tensor:
        shift, scale, gate = vectors
        normed = modulated_norm(b, x, shift, scale, "norm1.second")
        q, k, v = self._projection(self.rope).qkv(b, normed, "attention_2")
        out = self_attention(b, q, k, v, streams=(video,), heads=self.heads, head_dim=self.head_dim, part="attention_2")
        return gated_add(b, total, self._out(b, out, "attention_2"), gate, "attention_2.residual")

    def _projection(self, rope: bool) -> Projection:
        return Projection(self.hidden, self.heads, self.head_dim, "head" if self.qk_norm else "none", rope=rope)

    def _out(self, b: DenoiserBuild, x: Tensor, part: str) -> Tensor:
        width = self.heads * self.head_dim
        return linear(b, x, k=width, n=self.hidden, part=f"{part}.output", scheme=b.scheme, bias=True)


def _repeated(b: DenoiserBuild, embedding: Tensor, times: int) -> Tensor:
    return b.activation(embedding.shape[0] * times, embedding.shape[1])


@dataclass(frozen=True)
class SingleStreamBlock:
    """All tokens in one stream; attention and the feed-forward block side by side, one output projection for both."""

    hidden: int
    heads: int
    head_dim: int
    inner: int

    def forward(self, b: DenoiserBuild, x: Tensor, embedding: Tensor, streams: tuple[Tokens, ...]) -> Tensor:
        """(batch x local tokens of all streams, hidden) -> the same."""
        shift, scale, gate = modulation(b, embedding, "norm", width=self.hidden, count=3)
        normed = modulated_norm(b, x, shift, scale, "norm")
        up = linear(b, normed, k=self.hidden, n=self.inner, part="mlp.up", scheme=b.scheme, bias=True)
        activated = activate(b, up, "gelu", "mlp.activation")
        q, k, v = Projection(self.hidden, self.heads, self.head_dim, "head").qkv(b, normed, "attention")
        out = self_attention(b, q, k, v, streams=streams, heads=self.heads, head_dim=self.head_dim, part="attention")
        both = concat(b, (out, activated), "output.join", x.shape[0], self.heads * self.head_dim + self.inner)
        projected = linear(b, both, k=int(both.shape[1]), n=self.hidden, part="output", scheme=b.scheme, bias=True)
        return gated_add(b, x, projected, gate, "residual")


@dataclass(frozen=True)
class RefinerBlock:
    """A block of HunyuanVideo's token refiner: text tokens among themselves, gated by time."""

    hidden: int
    heads: int
    head_dim: int
    inner: int

    def forward(self, b: DenoiserBuild, x: Tensor, embedding: Tensor, text: Tokens) -> Tensor:
        """(batch x text.count, hidden) -> the same; every rank refines all text tokens."""
        normed = layer_norm(b, x, "refiner.norm1", affine=True)
        projection = Projection(self.hidden, self.heads, self.head_dim, "none", rope=False)
        q, k, v = projection.qkv(b, normed, "refiner.attention")
        out = attend(
            b,
            q,
            k,
            v,
            query_tokens=text.count,
            key_tokens=text.count,
            heads=self.heads,
            head_dim=self.head_dim,
            part="refiner.attention",
        )
        attended = linear(
            b, out, k=projection.width, n=self.hidden, part="refiner.attention.output", scheme=b.scheme, bias=True
        )
        attention_gate, mlp_gate = modulation(b, embedding, "refiner.norm_out", width=self.hidden, count=2)
        total = gated_add(b, x, attended, attention_gate, "refiner.attention.residual")
        normed = layer_norm(b, total, "refiner.norm2", affine=True)
        fed = feed_forward(b, normed, hidden=self.hidden, inner=self.inner, part="refiner.mlp", activation="silu")
        return gated_add(b, total, fed, mlp_gate, "refiner.mlp.residual")
