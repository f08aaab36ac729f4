"""HunyuanVideo (arXiv 2412.03603) and HunyuanVideo-1.5. Structure after diffusers' classes of these names."""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.layers.dit import (
    DenoiserBuild,
    Tokens,
    activate,
    add,
    layer_norm,
    plain_linear,
    timestep_embedding,
    two_layer_mlp,
)
from tensor_cast.layers.dit_blocks import DoubleStreamBlock, RefinerBlock, SingleStreamBlock, concat
from tensor_cast.models.config import Config
from tensor_cast.models.diffusion.denoiser import Patch
from tensor_cast.models.diffusion.mmdit import MMDiT, embedding_sum
from tensor_cast.ops import Gather, Tensor
from tensor_cast.quantity import Quantity

TIME_FREQUENCIES = 256
# Hidden width of the projection of byT5's glyph tokens, fixed in HunyuanVideo15Transformer3DModel.
GLYPH_HIDDEN = 2048
# Tokens that HunyuanVideo15Pipeline always adds: byT5's 256, padded, and SigLIP's 729, zeros without a given image.
GLYPH_TOKENS = 256
IMAGE_TOKENS = 729


@dataclass(frozen=True, kw_only=True)
class _Refined(MMDiT):
    """Text goes through a refiner of its own, gated by time and the mean of the text, before the blocks."""

    refiner: RefinerBlock
    refiner_layers: int

    def refine(self, b: DenoiserBuild, count: Quantity) -> Tensor:
        """Language-model states -> rows of ``hidden``, refined; every rank does all of it."""
        text = Tokens(count)
        states = b.hidden(count, self.text_width)
        pooled = b.activation(b.batch, self.text_width)
        b.elementwise("mean", "refiner.pool", (states,), (pooled,), flops_per_element=1.0)
        time = timestep_embedding(b, b.batch, frequencies=TIME_FREQUENCIES, n=self.hidden, part="refiner.time")
        projected = two_layer_mlp(b, pooled, k=self.text_width, n=self.hidden, part="refiner.pooled_text")
        embedding = add(b, time, projected, "refiner.time")
        x = plain_linear(b, states, k=self.text_width, n=self.hidden, part="refiner.input")
        with b.graph.block("refiner", count=self.refiner_layers), b.scope("refiner"):
            return self.refiner.forward(b, x, embedding, text)


@dataclass(frozen=True, kw_only=True)
class HunyuanVideo(_Refined):
    """20 two-stream and 40 one-stream blocks; pooled CLIP text and, distilled, the guidance scale join the time."""

    pooled_width: int
    guidance: bool

    def time_embedding(self, b: DenoiserBuild) -> Tensor:
        n, part = self.hidden, "time_embedding"
        parts = [timestep_embedding(b, b.batch, frequencies=TIME_FREQUENCIES, n=n, part=part)]
        parts.append(
            two_layer_mlp(b, b.activation(b.batch, self.pooled_width), k=self.pooled_width, n=n, part="pooled_text")
        )
        if self.guidance:
            parts.append(timestep_embedding(b, b.batch, frequencies=TIME_FREQUENCIES, n=n, part="guidance_embedding"))
        return embedding_sum(b, parts)

    def embed_text(self, b: DenoiserBuild, text: Quantity) -> Tensor:
        return self.refine(b, text)


@dataclass(frozen=True, kw_only=True)
class HunyuanVideo15(_Refined):
    """54 two-stream blocks; glyph tokens of byT5 and image tokens of SigLIP stand beside the text."""

    glyph_width: int
    image_width: int

    def condition_tokens(self, text: Quantity) -> Quantity:
        return text + float(GLYPH_TOKENS + IMAGE_TOKENS)

    def time_embedding(self, b: DenoiserBuild) -> Tensor:
        return timestep_embedding(b, b.batch, frequencies=TIME_FREQUENCIES, n=self.hidden, part="time_embedding")

    def embed_text(self, b: DenoiserBuild, text: Quantity) -> Tensor:
        parts = (self._image(b), self._glyphs(b), self.refine(b, text))
        with b.graph.block("condition_types"), b.scope("condition_types"):
            rows = b.batch * self.condition_tokens(text)
            joint = concat(b, parts, "condition_types", rows, self.hidden)
            table = b.weight("condition_types", (3, self.hidden))
            kinds = Tensor((rows,), "int32", "index")
            picked = b.activation(rows, self.hidden)
            b.emit(Gather(name="embedding", part="condition_types", inputs=(kinds, table), outputs=(picked,)))
            return add(b, joint, picked, "condition_types")

    def _glyphs(self, b: DenoiserBuild) -> Tensor:
        part = "glyph_embedding"
        x = layer_norm(b, b.hidden(float(GLYPH_TOKENS), self.glyph_width), f"{part}.norm", affine=True)
        x = activate(b, plain_linear(b, x, k=self.glyph_width, n=GLYPH_HIDDEN, part=f"{part}.linear_1"), "gelu", part)
        x = activate(b, plain_linear(b, x, k=GLYPH_HIDDEN, n=GLYPH_HIDDEN, part=f"{part}.linear_2"), "gelu", part)
        return plain_linear(b, x, k=GLYPH_HIDDEN, n=self.hidden, part=f"{part}.linear_3")

    def _image(self, b: DenoiserBuild) -> Tensor:
        part, width = "image_embedding", self.image_width
        x = layer_norm(b, b.hidden(float(IMAGE_TOKENS), width), f"{part}.norm_in", affine=True)
        x = activate(b, plain_linear(b, x, k=width, n=width, part=f"{part}.linear_1"), "gelu", part)
        x = plain_linear(b, x, k=width, n=self.hidden, part=f"{part}.linear_2")
        return layer_norm(b, x, f"{part}.norm_out", affine=True)


def _sizes(config: Config, heads: int, *, patch: int) -> tuple[int, int, int, Patch]:
    """Heads, head size, feed-forward width, patch."""
    heads, head_dim = config.integer("num_attention_heads", heads), config.integer("attention_head_dim", 128)
    if config.text("qk_norm", "rms_norm") != "rms_norm":
        config.fail("qk_norm", "rms_norm")
    inner = int(heads * head_dim * config.number("mlp_ratio", 4.0))
    side = config.integer("patch_size", patch)
    return heads, head_dim, inner, Patch(config.integer("patch_size_t", 1), side, side)


def hunyuan_video(config: Config) -> HunyuanVideo:
    """A HunyuanVideoTransformer3DModel of its config."""
    heads, head_dim, inner, patch = _sizes(config, 24, patch=2)
    hidden = heads * head_dim
    if config.has("image_condition_type"):
        config.fail("image_condition_type", "null: image-conditioned HunyuanVideo is not modelled")
    in_channels = config.integer("in_channels", 16)
    return HunyuanVideo(
        doubles=((DoubleStreamBlock(hidden, heads, head_dim, inner), config.integer("num_layers", 20)),),
        single=SingleStreamBlock(hidden, heads, head_dim, inner),
        single_layers=config.integer("num_single_layers", 40),
        in_channels=in_channels,
        out_channels=config.integer("out_channels", in_channels),
        text_width=config.integer("text_embed_dim", 4096),
        patch=patch,
        refiner=RefinerBlock(hidden, heads, head_dim, 4 * hidden),
        refiner_layers=config.integer("num_refiner_layers", 2),
        pooled_width=config.integer("pooled_projection_dim", 768),
        guidance=config.boolean("guidance_embeds", True),
    )


def hunyuan_video_15(config: Config) -> HunyuanVideo15:
    """A HunyuanVideo15Transformer3DModel of its config."""
    heads, head_dim, inner, patch = _sizes(config, 16, patch=1)
    hidden = heads * head_dim
    if config.boolean("use_meanflow", False):
        config.fail("use_meanflow", "false: the super-resolution models are not modelled")
    return HunyuanVideo15(
        doubles=((DoubleStreamBlock(hidden, heads, head_dim, inner), config.integer("num_layers", 54)),),
        in_channels=config.integer("in_channels", 65),
        out_channels=config.integer("out_channels", 32),
        text_width=config.integer("text_embed_dim", 3584),
        patch=patch,
        refiner=RefinerBlock(hidden, heads, head_dim, 4 * hidden),
        refiner_layers=config.integer("num_refiner_layers", 2),
        glyph_width=config.integer("text_embed_2_dim", 1472),
        image_width=config.integer("image_embed_dim", 1152),
    )
