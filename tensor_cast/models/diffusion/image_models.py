"""FLUX.1, Qwen-Image and Stable Diffusion 3. Structure after diffusers' classes of these names."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from tensor_cast.layers.dit import DenoiserBuild, plain_linear, timestep_embedding, two_layer_mlp
from tensor_cast.layers.dit_blocks import DoubleStreamBlock, SingleStreamBlock
from tensor_cast.models.config import Config
from tensor_cast.models.diffusion.denoiser import Patch
from tensor_cast.models.diffusion.mmdit import MMDiT, embedding_sum
from tensor_cast.ops import Tensor
from tensor_cast.quantity import Quantity

TIME_FREQUENCIES = 256
MLP_RATIO = 4
# FluxPipeline and QwenImagePipeline pack 2 x 2 latent positions into a token's channels before the transformer.
PACKED = Patch(1, 2, 2)
RMS_NORM_FLOPS = 4.0
# StableDiffusion3Pipeline puts CLIP's tokens, always padded, before T5's.
CLIP_TOKENS = 77


@dataclass(frozen=True, kw_only=True)
class ImageMMDiT(MMDiT):
    """Time, and where given pooled text and guidance, modulate; text enters by one projection.

    ``text_norm``: an RMSNorm before that projection (Qwen-Image). ``clip_tokens`` stand before the text's.
    """

    pooled_width: int | None = None
    guidance: bool = False
    text_norm: bool = False
    clip_tokens: int = 0

    def condition_tokens(self, text: Quantity) -> Quantity:
        return text + float(self.clip_tokens)

    def time_embedding(self, b: DenoiserBuild) -> Tensor:
        n = self.hidden
        parts = [timestep_embedding(b, b.batch, frequencies=TIME_FREQUENCIES, n=n, part="time_embedding")]
        if self.guidance:
            parts.append(timestep_embedding(b, b.batch, frequencies=TIME_FREQUENCIES, n=n, part="guidance_embedding"))
        if self.pooled_width is not None:
            pooled = b.activation(b.batch, self.pooled_width)
            parts.append(two_layer_mlp(b, pooled, k=self.pooled_width, n=n, part="pooled_text"))
        return embedding_sum(b, parts)

    def embed_text(self, b: DenoiserBuild, text: Quantity) -> Tensor:
        states = b.hidden(b.tokens(self.condition_tokens(text)).local, self.text_width)
        if self.text_norm:
            normed = b.activation(*states.shape)
            gamma = b.weight("text_norm.weight", (self.text_width,))
            b.elementwise("rms_norm", "text_norm", (states, gamma), (normed,), flops_per_element=RMS_NORM_FLOPS)
            states = normed
        return plain_linear(b, states, k=self.text_width, n=self.hidden, part="text_embedding")


def flux(config: Config) -> ImageMMDiT:
    """A FluxTransformer2DModel of its config."""
    heads, head_dim = config.integer("num_attention_heads", 24), config.integer("attention_head_dim", 128)
    hidden = heads * head_dim
    inner = MLP_RATIO * hidden
    channels = _unpacked(config, config.integer("in_channels", 64))
    single_layers = config.integer("num_single_layers", 38, minimum=0)
    double = DoubleStreamBlock(hidden, heads, head_dim, inner, text_rope=True)
    return ImageMMDiT(
        doubles=((double, config.integer("num_layers", 19)),),
        single=SingleStreamBlock(hidden, heads, head_dim, inner) if single_layers else None,
        single_layers=single_layers,
        in_channels=channels,
        out_channels=_unpacked(config, config.integer("out_channels", channels * PACKED.volume)),
        text_width=config.integer("joint_attention_dim", 4096),
        patch=PACKED,
        pooled_width=config.integer("pooled_projection_dim", 768),
        guidance=config.boolean("guidance_embeds", False),
    )


def qwen_image(config: Config) -> ImageMMDiT:
    """A QwenImageTransformer2DModel of its config."""
    heads, head_dim = config.integer("num_attention_heads", 24), config.integer("attention_head_dim", 128)
    hidden = heads * head_dim
    # zero_cond_t (Qwen-Image-Edit-2511) modulates tokens of given images as at time 0: two rows a sample.
    rows = 2 if config.boolean("zero_cond_t", False) else 1
    for key in ("guidance_embeds", "use_additional_t_cond", "use_layer3d_rope"):
        if config.boolean(key, False):
            config.fail(key, "false: nothing published uses it")
    double = DoubleStreamBlock(hidden, heads, head_dim, MLP_RATIO * hidden, text_rope=True, modulation_rows=rows)
    return ImageMMDiT(
        doubles=((double, config.integer("num_layers", 60)),),
        in_channels=_unpacked(config, config.integer("in_channels", 64)),
        out_channels=config.integer("out_channels", 16),
        text_width=config.integer("joint_attention_dim", 3584),
        patch=PACKED,
        text_norm=True,
    )


def _unpacked(config: Config, channels: int) -> int:
    share, rest = divmod(channels, PACKED.volume)
    if rest:
        raise config.error(f"{channels} channels are not {PACKED.volume} packed latent positions of equal channels.")
    return share


def sd3(config: Config) -> ImageMMDiT:
    """An SD3Transformer2DModel of its config: Stable Diffusion 3 and 3.5."""
    heads, head_dim = config.integer("num_attention_heads", 18), config.integer("attention_head_dim", 64)
    hidden, layers = heads * head_dim, config.integer("num_layers", 18)
    if config.integer("caption_projection_dim", 1152) != hidden:
        config.fail("caption_projection_dim", f"{hidden}, the width of the blocks")
    twice = frozenset(config.indices("dual_attention_layers", layers) or ())
    normed = config.text("qk_norm", "") == "rms_norm"
    kinds = [
        DoubleStreamBlock(
            hidden,
            heads,
            head_dim,
            MLP_RATIO * hidden,
            qk_norm=normed,
            rope=False,
            last=index == layers - 1,
            second_attention=index in twice,
        )
        for index in range(layers)
    ]
    side, channels = config.integer("patch_size", 2), config.integer("in_channels", 16)
    return ImageMMDiT(
        doubles=tuple((block, len(list(group))) for block, group in groupby(kinds)),
        in_channels=channels,
        out_channels=config.integer("out_channels", channels),
        text_width=config.integer("joint_attention_dim", 4096),
        patch=Patch(1, side, side),
        pooled_width=config.integer("pooled_projection_dim", 2048),
        clip_tokens=CLIP_TOKENS,
    )
