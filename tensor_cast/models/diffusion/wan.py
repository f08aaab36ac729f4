"""Wan 2.1 and 2.2 (arXiv 2503.20314): video tokens in self-attention, text and image by cross-attention.

Structure after diffusers' WanTransformer3DModel.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.layers.dit import (
    DenoiserBuild,
    Tokens,
    activate,
    add,
    feed_forward,
    gated_add,
    layer_norm,
    modulated_norm,
    plain_linear,
    table_modulation,
    timestep_embedding,
    two_layer_mlp,
)
from tensor_cast.layers.dit_attention import Projection, attend, self_attention
from tensor_cast.layers.linear import linear
from tensor_cast.models.config import Config
from tensor_cast.models.diffusion.denoiser import BlockRunner, DenoiserInput, Patch, gather_output
from tensor_cast.ops import Tensor
from tensor_cast.quantity import Quantity

# CLIP ViT-H/14 at 224 pixels: 16 x 16 patches and the class token.
CLIP_TOKENS = 257


@dataclass(frozen=True)
class WanBlock:
    """Self-attention, cross-attention and feed-forward; time modulates the first and the last."""

    hidden: int
    heads: int
    head_dim: int
    inner: int
    cross_norm: bool

    def forward(
        self, b: DenoiserBuild, x: Tensor, text: Tensor, image: Tensor | None, time: Tensor, video: Tokens
    ) -> Tensor:
        """(batch x video.local, hidden) -> the same; ``time`` has a row a sample, or a row a token."""
        vectors = table_modulation(b, time, "modulation", width=self.hidden, count=6)
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = vectors
        normed = modulated_norm(b, x, shift, scale, "norm1", float32=True)
        q, k, v = self._projection(rope=True).qkv(b, normed, "attention")
        out = self_attention(b, q, k, v, streams=(video,), heads=self.heads, head_dim=self.head_dim, part="attention")
        x = gated_add(b, x, self._out(b, out, "attention"), gate, "attention.residual", float32=True)
        normed = layer_norm(b, x, "norm2", affine=True, float32=True) if self.cross_norm else x
        x = add(b, x, self._cross_attention(b, normed, text, image, video), "cross_attention.residual")
        normed = modulated_norm(b, x, mlp_shift, mlp_scale, "norm3", float32=True)
        fed = feed_forward(b, normed, hidden=self.hidden, inner=self.inner, part="mlp")
        return gated_add(b, x, fed, mlp_gate, "mlp.residual", float32=True)

    def _cross_attention(
        self, b: DenoiserBuild, x: Tensor, text: Tensor, image: Tensor | None, video: Tokens
    ) -> Tensor:
        """Local tokens over all text tokens, and over the image's; nothing is exchanged."""
        part = "cross_attention"
        projection = self._projection(rope=False)
        q = projection.normalise(b, projection.project(b, x, part, "q"), part, "q")
        out = self._attend(b, q, text, video, part, "k", "v")
        if image is not None:
            out = add(b, out, self._attend(b, q, image, video, part, "image_k", "image_v"), part)
        return self._out(b, out, part)

    def _attend(
        self, b: DenoiserBuild, q: Tensor, context: Tensor, video: Tokens, part: str, key: str, value: str
    ) -> Tensor:
        projection = self._projection(rope=False)
        k = projection.normalise(b, projection.project(b, context, part, key), part, key)
        v = projection.project(b, context, part, value)
        keys = context.shape[0] / b.batch
        return attend(
            b,
            q,
            k,
            v,
            query_tokens=video.local,
            key_tokens=keys,
            heads=self.heads,
            head_dim=self.head_dim,
            part=part,
        )

    def _projection(self, *, rope: bool) -> Projection:
        return Projection(self.hidden, self.heads, self.head_dim, "full", rope=rope)

    def _out(self, b: DenoiserBuild, x: Tensor, part: str) -> Tensor:
        width = self.heads * self.head_dim
        return linear(b, x, k=width, n=self.hidden, part=f"{part}.output", scheme=b.scheme, bias=True)


@dataclass(frozen=True)
class WanDenoiser:
    """``image_width`` is that of CLIP's image tokens, ``None`` where there are none; ``learned_positions`` of them.

    ``token_timesteps``: the time embedding has a row a token (Wan2.2-TI2V-5B: tokens of a given image stay at time 0).
    ``replicated_time``: every rank embeds the times of all tokens, in this dtype, and takes its share afterwards.
    """

    block: WanBlock
    layers: int
    in_channels: int
    out_channels: int
    text_width: int
    frequencies: int
    patch: Patch
    image_width: int | None = None
    learned_positions: int | None = None
    token_timesteps: bool = False
    replicated_time: str | None = None

    @property
    def heads(self) -> int:
        return self.block.heads

    @property
    def blocks(self) -> int:
        return self.layers

    @property
    def image_tokens(self) -> int:
        """Tokens of the given image, or images (FLF2V: the first and the last frame)."""
        if self.image_width is None:
            return 0
        return self.learned_positions or CLIP_TOKENS

    def condition_tokens(self, text: Quantity) -> Quantity:
        return text + float(self.image_tokens)

    def forward(self, b: DenoiserBuild, x: DenoiserInput) -> None:
        hidden = self.block.hidden
        video = b.tokens(self.patch.tokens(x.latent))
        with b.graph.block("embedding"), b.scope("embedding"):
            patches = b.hidden(video.local, self.in_channels * self.patch.volume)
            tokens = plain_linear(b, patches, k=int(patches.shape[1]), n=hidden, part="patch_embedding")
            time, projected = self._embed_time(b, video)
            prompt = b.hidden(x.text, self.text_width)
            text = two_layer_mlp(b, prompt, k=self.text_width, n=hidden, part="text_embedding", activation="gelu")
            image = self._embed_image(b)

        def block(state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (self.block.forward(b, state[0], text, image, projected, video),)

        (tokens,) = BlockRunner(b, x.cache).run("blocks", self.layers, (tokens,), block)
        with b.graph.block("head"), b.scope("head"):
            shift, scale = table_modulation(b, time, "output", width=hidden, count=2)
            normed = modulated_norm(b, tokens, shift, scale, "output.norm", float32=True)
            out = plain_linear(b, normed, k=hidden, n=self.out_channels * self.patch.volume, part="output")
            gather_output(b, out, video)

    def _embed_time(self, b: DenoiserBuild, video: Tokens) -> tuple[Tensor, Tensor]:
        """The embedding of time, and what modulates the blocks: a row a sample, or a row a token of this rank."""
        hidden = self.block.hidden
        tokens = video.padded if self.replicated_time else video.local
        with b.computing_in(self.replicated_time or b.dtype):
            rows = b.batch * (tokens if self.token_timesteps else 1.0)
            time = timestep_embedding(b, rows, frequencies=self.frequencies, n=hidden, part="time_embedding")
            activated = activate(b, time, "silu", "time_projection")
            projected = plain_linear(b, activated, k=hidden, n=6 * hidden, part="time_projection")
        if not (self.replicated_time and self.token_timesteps):
            return time, projected
        kept = b.batch * video.local
        return time.view(kept, hidden), projected.view(kept, 6 * hidden)

    def _embed_image(self, b: DenoiserBuild) -> Tensor | None:
        if self.image_width is None:
            return None
        width, hidden, part = self.image_width, self.block.hidden, "image_embedding"
        x = b.hidden(float(self.image_tokens), width)
        if self.learned_positions:
            positions = b.weight(f"{part}.positions", (self.learned_positions, width))
            moved = b.activation(*x.shape)
            b.elementwise("add", part, (x, positions), (moved,), flops_per_element=1.0)
            x = moved
        x = layer_norm(b, x, f"{part}.norm1", affine=True)
        x = activate(b, plain_linear(b, x, k=width, n=width, part=f"{part}.linear_1"), "gelu", part)
        x = plain_linear(b, x, k=width, n=hidden, part=f"{part}.linear_2")
        return layer_norm(b, x, f"{part}.norm2", affine=True)


def wan(config: Config, *, token_timesteps: bool = False) -> WanDenoiser:
    """A WanTransformer3DModel of its config."""
    heads, head_dim = config.integer("num_attention_heads", 40), config.integer("attention_head_dim", 128)
    frames, height, width = config.integers("patch_size", [1, 2, 2], length=3)
    added = config.optional_integer("added_kv_proj_dim")
    image_width = config.optional_integer("image_dim")
    hidden = heads * head_dim
    if (added is None) != (image_width is None) or added not in (None, hidden):
        raise config.error(
            f"added_kv_proj_dim {added} and image_dim {image_width} contradict each other: "
            f"an image-conditioned Wan has both, the former equal to the {hidden} columns of its blocks."
        )
    qk_norm = config.text("qk_norm", "rms_norm_across_heads")
    if qk_norm != "rms_norm_across_heads":
        config.fail("qk_norm", "rms_norm_across_heads")
    in_channels = config.integer("in_channels", 16)
    block = WanBlock(
        hidden=hidden,
        heads=heads,
        head_dim=head_dim,
        inner=config.integer("ffn_dim", 13824),
        cross_norm=config.boolean("cross_attn_norm", True),
    )
    return WanDenoiser(
        block=block,
        layers=config.integer("num_layers", 40),
        in_channels=in_channels,
        out_channels=config.integer("out_channels", in_channels),
        text_width=config.integer("text_dim", 4096),
        frequencies=config.integer("freq_dim", 256),
        patch=Patch(frames, height, width),
        image_width=image_width,
        learned_positions=config.optional_integer("pos_embed_seq_len"),
        token_timesteps=token_timesteps,
    )
