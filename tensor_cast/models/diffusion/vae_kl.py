"""Autoencoders of GroupNorm and residual blocks: Stable Diffusion 3 and FLUX (images), HunyuanVideo.

Structure after diffusers' AutoencoderKL and AutoencoderKLHunyuanVideo.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.layers.conv import (
    CUBE,
    PLANE,
    POINT,
    ComponentBuild,
    Grid,
    Kernel,
    conv,
    grid,
    norm,
    position_attention,
    residual_block,
    resize,
)
from tensor_cast.models.config import Config
from tensor_cast.models.diffusion.denoiser import Latent
from tensor_cast.models.diffusion.vae import Pass, TileAxis, Tiling, halvings
from tensor_cast.quantity import Quantity


def longer(frames: Quantity) -> Quantity:
    """Frames after a causal doubling: the first stays one."""
    return 2.0 * frames - 1.0


@dataclass(frozen=True)
class KlVae:
    """``widths`` a level, the finest first. A level may change the size (``spatial_levels``) and the frames.

    ``kernel`` is that of residual blocks. ``quant`` convolutions stand between encoder, latent and decoder.
    """

    in_channels: int
    out_channels: int
    latent_channels: int
    widths: tuple[int, ...]
    layers: int
    down_spatial: tuple[bool, ...]
    down_temporal: tuple[bool, ...]
    up_spatial: tuple[bool, ...]
    up_temporal: tuple[bool, ...]
    kernel: Kernel
    resample_kernel: Kernel
    attention: bool
    quant: bool
    tiling: Tiling | None = None

    @property
    def temporal(self) -> int:
        return int(2 ** sum(self.down_temporal))

    @property
    def spatial(self) -> int:
        return int(2 ** sum(self.down_spatial))

    def passes(self, latent: Latent) -> list[Pass]:
        return [Pass(latent, 1.0, first=True)]

    def decode(self, b: ComponentBuild, run: Pass) -> None:
        x = grid(b, self.latent_channels, run.latent.frames, run.latent.height, run.latent.width)
        if self.quant:
            x = conv(b, x, self.latent_channels, "post_quant", kernel=POINT)
        x = conv(b, x, self.widths[-1], "decoder.input", kernel=self.kernel)
        x = self._middle(b, x, "decoder.middle")
        for level, width in enumerate(reversed(self.widths)):
            part = f"decoder.{level}"
            for index in range(self.layers + 1):
                x = residual_block(b, x, width, f"{part}.{index}", kind="group", kernel=self.kernel)
            if self.up_spatial[level] or self.up_temporal[level]:
                frames = longer(x.frames) if self.up_temporal[level] else x.frames
                x = resize(b, x, part, grow=2 if self.up_spatial[level] else 1, frames=frames)
                x = conv(b, x, width, f"{part}.resample", kernel=self.resample_kernel)
        x = norm(b, x, "group", "decoder.output.norm")
        conv(b, x, self.out_channels, "decoder.output", kernel=self.kernel)

    def encode(self, b: ComponentBuild, run: Pass) -> None:
        latent, channels = run.latent, 2 * self.latent_channels
        frames = self.temporal * (latent.frames - 1.0) + 1.0
        x = grid(b, self.in_channels, frames, latent.height * self.spatial, latent.width * self.spatial)
        x = conv(b, x, self.widths[0], "encoder.input", kernel=self.kernel)
        for level, width in enumerate(self.widths):
            part = f"encoder.{level}"
            for index in range(self.layers):
                x = residual_block(b, x, width, f"{part}.{index}", kind="group", kernel=self.kernel)
            if self.down_spatial[level] or self.down_temporal[level]:
                frames = (x.frames + 1.0) / 2.0 if self.down_temporal[level] else x.frames
                shrink = 2 if self.down_spatial[level] else 1
                x = conv(b, x, width, f"{part}.resample", kernel=self.resample_kernel, frames=frames, shrink=shrink)
        x = norm(b, self._middle(b, x, "encoder.middle"), "group", "encoder.output.norm")
        x = conv(b, x, channels, "encoder.output", kernel=self.kernel)
        if self.quant:
            conv(b, x, channels, "quant", kernel=POINT)

    def _middle(self, b: ComponentBuild, x: Grid, part: str) -> Grid:
        x = residual_block(b, x, x.channels, f"{part}.0", kind="group", kernel=self.kernel)
        if self.attention:
            sequence = x.frames * x.height * x.width
            # A mask hides later frames, but the kernel computes all pairs.
            pairs = sequence * sequence
            x = position_attention(b, x, f"{part}.attention", kind="group", pairs_per_sample=pairs, sequence=sequence)
        return residual_block(b, x, x.channels, f"{part}.1", kind="group", kernel=self.kernel)


def image_vae(config: Config) -> KlVae:
    """An AutoencoderKL of its config."""
    widths = config.integers("block_out_channels", [64])
    inner = tuple(level < len(widths) - 1 for level in range(len(widths)))
    none = (False,) * len(widths)
    return KlVae(
        in_channels=config.integer("in_channels", 3),
        out_channels=config.integer("out_channels", 3),
        latent_channels=config.integer("latent_channels", 4),
        widths=widths,
        layers=config.integer("layers_per_block", 1),
        down_spatial=inner,
        down_temporal=none,
        up_spatial=inner,
        up_temporal=none,
        kernel=PLANE,
        resample_kernel=PLANE,
        attention=config.boolean("mid_block_add_attention", True),
        quant=_both(config, "use_quant_conv", "use_post_quant_conv"),
    )


def hunyuan_vae(config: Config) -> KlVae:
    """An AutoencoderKLHunyuanVideo of its config."""
    widths = config.integers("block_out_channels", [128, 256, 512, 512])
    levels = range(len(widths))
    spatial = halvings(config, "spatial_compression_ratio", 8, most=len(widths) - 1)
    temporal = halvings(config, "temporal_compression_ratio", 4, most=len(widths) - 1)
    # Frames are halved at the last levels before the innermost, sizes at the first ones.
    halves_frames = tuple(len(widths) - 1 - temporal <= level < len(widths) - 1 for level in levels)
    halves_size = tuple(level < spatial for level in levels)
    side = 2**spatial
    return KlVae(
        in_channels=config.integer("in_channels", 3),
        out_channels=config.integer("out_channels", 3),
        latent_channels=config.integer("latent_channels", 16),
        widths=widths,
        layers=config.integer("layers_per_block", 2),
        down_spatial=halves_size,
        down_temporal=halves_frames,
        up_spatial=halves_size,
        up_temporal=halves_frames,
        kernel=CUBE,
        resample_kernel=CUBE,
        attention=config.boolean("mid_block_add_attention", True),
        quant=True,
        # Tiles of 256 pixels every 192, and of 16 frames (and the one before) every 12: the class's defaults.
        tiling=Tiling(
            TileAxis(256 // side, 192 // side),
            TileAxis(256 // side, 192 // side),
            TileAxis(16 // 2**temporal + 1, 12 // 2**temporal),
        ),
    )


def _both(config: Config, first: str, second: str) -> bool:
    values = config.boolean(first, True), config.boolean(second, True)
    if values[0] != values[1]:
        config.fail(second, f"{values[0]}, as {first}")
    return values[0]
