"""Wan's causal video autoencoder, 2.1 and 2.2, which Qwen-Image shares. Structure after diffusers' AutoencoderKLWan.

A video runs through it latent frame by latent frame: one frame first, then four at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.layers.conv import (
    PLANE,
    POINT,
    ComponentBuild,
    Grid,
    add_grids,
    conv,
    grid,
    norm,
    position_attention,
    residual_block,
    resize,
)
from tensor_cast.models.config import Config
from tensor_cast.models.diffusion.denoiser import Latent
from tensor_cast.models.diffusion.vae import Pass, Tiling

TIME = (3, 1, 1)


@dataclass(frozen=True)
class WanVae:
    """``multipliers`` of the base widths a level; ``temporal_levels`` says which halve frames on the way down.

    ``residual`` (2.2) levels keep a shortcut around themselves; ``patch`` pixels a side are folded into channels.
    """

    encoder_width: int
    decoder_width: int
    latent_channels: int
    in_channels: int
    out_channels: int
    multipliers: tuple[int, ...]
    temporal_levels: tuple[bool, ...]
    residual_blocks: int
    residual: bool
    patch: int
    tiling: Tiling | None = None

    @property
    def temporal(self) -> int:
        return int(2 ** sum(self.temporal_levels))

    @property
    def spatial(self) -> int:
        return int(2 ** len(self.temporal_levels)) * self.patch

    def passes(self, latent: Latent) -> list[Pass]:
        one = Latent(1.0, latent.height, latent.width)
        return [Pass(one, 1.0, first=True), Pass(one, latent.frames - 1.0, first=False)]

    def decode(self, b: ComponentBuild, run: Pass) -> None:
        widths = [self.decoder_width * m for m in (self.multipliers[-1], *reversed(self.multipliers))]
        levels = tuple(reversed(self.temporal_levels))
        x = grid(b, self.latent_channels, run.latent.frames, run.latent.height, run.latent.width)
        x = conv(b, x, self.latent_channels, "post_quant", kernel=POINT)
        x = self._middle(b, conv(b, x, widths[0], "decoder.input"), "decoder.middle")
        for level, width in enumerate(widths[1:]):
            x = self._up(b, x, width, f"decoder.{level}", levels[level] if level < len(levels) else None, run.first)
        x = norm(b, x, "rms", "decoder.output.norm")
        x = conv(b, x, self.out_channels, "decoder.output")
        if self.patch > 1:
            resize(b, x, "decoder.unpatchify", grow=self.patch, channels=self.out_channels // self.patch**2)

    def encode(self, b: ComponentBuild, run: Pass) -> None:
        widths = [self.encoder_width * m for m in (1, *self.multipliers)]
        frames = run.latent.frames if run.first else run.latent.frames * self.temporal
        side = self.spatial // self.patch
        x = grid(b, self.in_channels, frames, run.latent.height * side, run.latent.width * side)
        x = conv(b, x, widths[0], "encoder.input")
        levels = self.temporal_levels
        for level, width in enumerate(widths[1:]):
            x = self._down(b, x, width, f"encoder.{level}", levels[level] if level < len(levels) else None, run.first)
        x = norm(b, self._middle(b, x, "encoder.middle"), "rms", "encoder.output.norm")
        x = conv(b, x, 2 * self.latent_channels, "encoder.output")
        conv(b, x, 2 * self.latent_channels, "quant", kernel=POINT)

    def _middle(self, b: ComponentBuild, x: Grid, part: str) -> Grid:
        x = residual_block(b, x, x.channels, f"{part}.0", kind="rms")
        area = x.height * x.width
        pairs = x.frames * area * area
        x = position_attention(b, x, f"{part}.attention", kind="rms", pairs_per_sample=pairs, sequence=area)
        return residual_block(b, x, x.channels, f"{part}.1", kind="rms")

    def _up(self, b: ComponentBuild, x: Grid, width: int, part: str, doubles: bool | None, first: bool) -> Grid:
        """Residual blocks, then twice the size unless ``doubles`` is ``None``, and twice the frames if it is true."""
        start = x
        for index in range(self.residual_blocks + 1):
            x = residual_block(b, x, width, f"{part}.{index}", kind="rms")
        if doubles is None:
            return x
        if doubles and not first:
            x = resize(
                b,
                conv(b, x, 2 * width, f"{part}.time", kernel=TIME),
                f"{part}.time",
                grow=1,
                frames=x.frames * 2.0,
                channels=width,
            )
        x = conv(b, resize(b, x, part), width if self.residual else width // 2, f"{part}.resample", kernel=PLANE)
        if self.residual:
            x = add_grids(b, x, resize(b, start, f"{part}.shortcut", frames=x.frames, channels=width), part)
        return x

    def _down(self, b: ComponentBuild, x: Grid, width: int, part: str, halves: bool | None, first: bool) -> Grid:
        """Residual blocks, then half the size unless ``halves`` is ``None``, and half the frames if it is true."""
        start = x
        for index in range(self.residual_blocks):
            x = residual_block(b, x, width, f"{part}.{index}", kind="rms")
        if halves is not None:
            x = conv(b, x, width, f"{part}.resample", kernel=PLANE, shrink=2)
            if halves and not first:
                x = conv(b, x, width, f"{part}.time", kernel=TIME, frames=x.frames / 2.0)
        if self.residual:
            shortcut = Grid(b.activation(x.tensor.shape[0], width), x.frames, x.height, x.width)
            b.elementwise("mean", f"{part}.shortcut", (start.tensor,), (shortcut.tensor,), flops_per_element=1.0)
            x = add_grids(b, x, shortcut, part)
        return x


def wan_vae(config: Config) -> WanVae:
    """An AutoencoderKLWan or AutoencoderKLQwenImage of its config."""
    if config.items("attn_scales"):
        config.fail("attn_scales", "an empty list: nothing published has attention there")
    base = config.integer("base_dim", 96)
    patch = config.integer("patch_size", 1)
    multipliers = config.integers("dim_mult", [1, 2, 4, 4])
    levels = _levels(config, len(multipliers) - 1)
    vae = WanVae(
        encoder_width=base,
        decoder_width=config.integer("decoder_base_dim", base),
        latent_channels=config.integer("z_dim", 16),
        in_channels=config.integer("in_channels", config.integer("input_channels", 3)),
        out_channels=config.integer("out_channels", 3),
        multipliers=multipliers,
        temporal_levels=levels,
        residual_blocks=config.integer("num_res_blocks", 2),
        residual=config.boolean("is_residual", False),
        patch=patch,
    )
    for key, ratio in (("scale_factor_spatial", vae.spatial), ("scale_factor_temporal", vae.temporal)):
        if config.integer(key, ratio) != ratio:
            config.fail(key, f"{ratio}, which follows from temperal_downsample and patch_size")
    return vae


def _levels(config: Config, count: int) -> tuple[bool, ...]:
    levels = config.items("temperal_downsample") or [False, True, True]
    if len(levels) != count or not all(isinstance(level, bool) for level in levels):
        config.fail("temperal_downsample", f"{count} times true or false, one less than dim_mult")
    return tuple(levels)
