"""HunyuanVideo-1.5's autoencoder: resampling folds positions into channels. After AutoencoderKLHunyuanVideo15."""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.layers.conv import (
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
from tensor_cast.models.diffusion.vae import Pass, TileAxis, Tiling, halvings
from tensor_cast.models.diffusion.vae_kl import longer


@dataclass(frozen=True)
class Hunyuan15Vae:
    """``widths`` a level, the finest first; all but the last halve the size, the last of those the frames too."""

    in_channels: int
    out_channels: int
    latent_channels: int
    widths: tuple[int, ...]
    layers: int
    spatial_levels: int
    temporal_levels: int
    tiling: Tiling | None

    @property
    def temporal(self) -> int:
        return int(2**self.temporal_levels)

    @property
    def spatial(self) -> int:
        return int(2**self.spatial_levels)

    def passes(self, latent: Latent) -> list[Pass]:
        return [Pass(latent, 1.0, first=True)]

    def decode(self, b: ComponentBuild, run: Pass) -> None:
        widths = tuple(reversed(self.widths))
        latent = grid(b, self.latent_channels, run.latent.frames, run.latent.height, run.latent.width)
        x = conv(b, latent, widths[0], "decoder.input")
        x = add_grids(b, x, resize(b, latent, "decoder.input", grow=1, channels=widths[0]), "decoder.input")
        x = self._middle(b, x, "decoder.middle")
        for level, width in enumerate(widths):
            part = f"decoder.{level}"
            for index in range(self.layers + 1):
                x = residual_block(b, x, width, f"{part}.{index}", kind="rms")
            if level < self.spatial_levels:
                x = self._up(b, x, widths[level + 1], f"{part}.resample", level < self.temporal_levels)
        conv(b, norm(b, x, "rms", "decoder.output.norm"), self.out_channels, "decoder.output")

    def encode(self, b: ComponentBuild, run: Pass) -> None:
        latent, channels = run.latent, 2 * self.latent_channels
        frames = self.temporal * (latent.frames - 1.0) + 1.0
        x = grid(b, self.in_channels, frames, latent.height * self.spatial, latent.width * self.spatial)
        x = conv(b, x, self.widths[0], "encoder.input")
        for level, width in enumerate(self.widths):
            part = f"encoder.{level}"
            for index in range(self.layers):
                x = residual_block(b, x, width, f"{part}.{index}", kind="rms")
            if level < self.spatial_levels:
                halves = level >= self.spatial_levels - self.temporal_levels
                x = self._down(b, x, self.widths[level + 1], f"{part}.resample", halves)
        x = self._middle(b, x, "encoder.middle")
        shortcut = grid(b, channels, x.frames, x.height, x.width)
        b.elementwise("mean", "encoder.output", (x.tensor,), (shortcut.tensor,), flops_per_element=1.0)
        out = conv(b, norm(b, x, "rms", "encoder.output.norm"), channels, "encoder.output")
        add_grids(b, out, shortcut, "encoder.output")

    def _middle(self, b: ComponentBuild, x: Grid, part: str) -> Grid:
        x = residual_block(b, x, x.channels, f"{part}.0", kind="rms")
        sequence = x.frames * x.height * x.width
        # A mask hides later frames, but the kernel computes all pairs.
        x = position_attention(
            b, x, f"{part}.attention", kind="rms", pairs_per_sample=sequence * sequence, sequence=sequence
        )
        return residual_block(b, x, x.channels, f"{part}.1", kind="rms")

    def _up(self, b: ComponentBuild, x: Grid, width: int, part: str, doubles: bool) -> Grid:
        factor = 8 if doubles else 4
        frames = longer(x.frames) if doubles else x.frames
        unfolded = resize(b, conv(b, x, width * factor, part), part, frames=frames, channels=width)
        return add_grids(b, unfolded, resize(b, x, part, frames=frames, channels=width), part)

    def _down(self, b: ComponentBuild, x: Grid, width: int, part: str, halves: bool) -> Grid:
        factor = 8 if halves else 4
        folded = conv(b, x, width // factor, part)
        frames = (x.frames + 1.0) / 2.0 if halves else x.frames
        out, shortcut = (grid(b, width, frames, x.height / 2.0, x.width / 2.0) for _ in range(2))
        b.elementwise("downsample", part, (folded.tensor,), (out.tensor,), flops_per_element=0.0)
        b.elementwise("mean", part, (x.tensor,), (shortcut.tensor,), flops_per_element=1.0)
        return add_grids(b, out, shortcut, part)


def hunyuan15_vae(config: Config) -> Hunyuan15Vae:
    """An AutoencoderKLHunyuanVideo15 of its config."""
    for key in ("downsample_match_channel", "upsample_match_channel"):
        if not config.boolean(key, True):
            config.fail(key, "true: nothing published differs")
    widths = config.integers("block_out_channels", [128, 256, 512, 1024, 1024])
    spatial = halvings(config, "spatial_compression_ratio", 16, most=len(widths) - 1)
    temporal = halvings(config, "temporal_compression_ratio", 4, most=len(widths) - 1)
    if spatial != len(widths) - 1:
        config.fail("spatial_compression_ratio", f"{2 ** (len(widths) - 1)}: one halving between levels")
    # Tiles of 256 pixels, overlapping by a quarter: the class's defaults.
    axis = TileAxis(256 // 2**spatial, int(256 // 2**spatial * 0.75))
    return Hunyuan15Vae(
        in_channels=config.integer("in_channels", 3),
        out_channels=config.integer("out_channels", 3),
        latent_channels=config.integer("latent_channels", 32),
        widths=widths,
        layers=config.integer("layers_per_block", 2),
        spatial_levels=spatial,
        temporal_levels=temporal,
        tiling=Tiling(axis, axis),
    )
