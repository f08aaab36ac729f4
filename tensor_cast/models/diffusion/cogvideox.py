"""CogVideoX (arXiv 2408.06072): text and video in one sequence with shared weights and modulation of each kind.

Structure after diffusers' CogVideoXTransformer3DModel.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.layers.dit import (
    DenoiserBuild,
    Tokens,
    feed_forward,
    gated_add,
    layer_norm,
    modulated_norm,
    modulation,
    plain_linear,
    timestep_embedding,
)
from tensor_cast.layers.dit_attention import Projection, self_attention
from tensor_cast.layers.dit_blocks import concat
from tensor_cast.layers.linear import linear
from tensor_cast.models.config import Config
from tensor_cast.models.diffusion.denoiser import BlockRunner, DenoiserInput, Patch, gather_output
from tensor_cast.ops import Tensor
from tensor_cast.quantity import Quantity


@dataclass(frozen=True)
class CogBlock:
    """Attention and feed-forward over all tokens; video and text rows are modulated by vectors of their own."""

    hidden: int
    heads: int
    head_dim: int
    inner: int
    rope: bool
    bias: bool
    affine: bool

    def forward(self, b: DenoiserBuild, x: Tensor, time: Tensor, streams: tuple[Tokens, Tokens]) -> Tensor:
        """(batch x local tokens of both, hidden) -> the same."""
        shift, scale, gate, *_ = modulation(b, time, "norm1", width=self.hidden, count=6)
        normed = modulated_norm(b, x, shift, scale, "norm1", affine=self.affine)
        projection = Projection(self.hidden, self.heads, self.head_dim, "head_layer", rope=self.rope, bias=self.bias)
        q, k, v = projection.qkv(b, normed, "attention")
        out = self_attention(b, q, k, v, streams=streams, heads=self.heads, head_dim=self.head_dim, part="attention")
        attended = linear(
            b, out, k=projection.width, n=self.hidden, part="attention.output", scheme=b.scheme, bias=True
        )
        x = gated_add(b, x, attended, gate, "attention.residual")
        shift, scale, gate, *_ = modulation(b, time, "norm2", width=self.hidden, count=6)
        normed = modulated_norm(b, x, shift, scale, "norm2", affine=self.affine)
        fed = feed_forward(b, normed, hidden=self.hidden, inner=self.inner, part="mlp")
        return gated_add(b, x, fed, gate, "mlp.residual")


@dataclass(frozen=True)
class CogVideoX:
    """CogVideoX 1.0 (a convolution makes patches) and 1.5 (``patch.frames`` 2)."""

    block: CogBlock
    layers: int
    in_channels: int
    out_channels: int
    text_width: int
    time_width: int
    offset_width: int | None
    patch: Patch
    patch_bias: bool

    @property
    def heads(self) -> int:
        return self.block.heads

    @property
    def blocks(self) -> int:
        return self.layers

    def condition_tokens(self, text: Quantity) -> Quantity:
        return text

    def forward(self, b: DenoiserBuild, x: DenoiserInput) -> None:
        hidden = self.block.hidden
        video, text = b.tokens(self.patch.tokens(x.latent)), b.tokens(x.text)
        rows = b.batch * (video.local + text.local)
        with b.graph.block("embedding"), b.scope("embedding"):
            time = timestep_embedding(b, b.batch, frequencies=hidden, n=self.time_width, part="time_embedding")
            if self.offset_width:
                timestep_embedding(
                    b, b.batch, frequencies=self.offset_width, n=self.offset_width, part="offset_embedding"
                )
            width = self.in_channels * self.patch.volume
            patches = b.hidden(video.local, width)
            embedded = plain_linear(b, patches, k=width, n=hidden, part="patch_embedding", bias=self.patch_bias)
            states = b.hidden(text.local, self.text_width)
            prompt = plain_linear(b, states, k=self.text_width, n=hidden, part="text_embedding")
            tokens = concat(b, (prompt, embedded), "join", rows, hidden)
        (tokens,) = BlockRunner(b, x.cache).run(
            "blocks",
            self.layers,
            (tokens,),
            lambda state: (self.block.forward(b, state[0], time, (video, text)),),
        )
        with b.graph.block("head"), b.scope("head"):
            tokens = layer_norm(b, tokens, "final_norm", affine=self.block.affine).view(b.batch * video.local, hidden)
            shift, scale = modulation(b, time, "output.norm", width=hidden, count=2)
            normed = modulated_norm(b, tokens, shift, scale, "output.norm", affine=self.block.affine)
            out = plain_linear(b, normed, k=hidden, n=self.out_channels * self.patch.volume, part="output")
            gather_output(b, out, video)


def cogvideox(config: Config) -> CogVideoX:
    """A CogVideoXTransformer3DModel of its config."""
    heads, head_dim = config.integer("num_attention_heads", 30), config.integer("attention_head_dim", 64)
    hidden = heads * head_dim
    in_channels, side = config.integer("in_channels", 16), config.integer("patch_size", 2)
    block = CogBlock(
        hidden=hidden,
        heads=heads,
        head_dim=head_dim,
        inner=4 * hidden,
        rope=config.boolean("use_rotary_positional_embeddings", False),
        bias=config.boolean("attention_bias", True),
        affine=config.boolean("norm_elementwise_affine", True),
    )
    return CogVideoX(
        block=block,
        layers=config.integer("num_layers", 30),
        in_channels=in_channels,
        out_channels=config.integer("out_channels", 16),
        text_width=config.integer("text_embed_dim", 4096),
        time_width=config.integer("time_embed_dim", 512),
        offset_width=config.optional_integer("ofs_embed_dim"),
        patch=Patch(config.integer("patch_size_t", 1), side, side),
        patch_bias=config.boolean("patch_bias", True),
    )
