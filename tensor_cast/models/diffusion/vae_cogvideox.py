"""CogVideoX's autoencoder: decoder norms take scale and shift from the latent. After AutoencoderKLCogVideoX.

A video, or a tile of it, runs through it two latent frames at a time; an odd one goes with the first two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tensor_cast.layers.conv import (
    PLANE,
    POINT,
    ComponentBuild,
    Grid,
    add_grids,
    apply_silu,
    conv,
    grid,
    norm,
    residual_block,
    resize,
)
from tensor_cast.models.config import Config
from tensor_cast.models.diffusion.denoiser import Latent
from tensor_cast.models.diffusion.vae import Pass, TileAxis, Tiling, halvings
from tensor_cast.models.diffusion.vae_kl import longer

# num_latent_frames_batch_size; num_sample_frames_batch_size is the same number of latent frames in frames.
BATCH_FRAMES = 2.0


@dataclass(frozen=True)
class CogVae:
    """``widths`` a level, the finest first; the coarsest ``temporal_levels`` change the frames too."""

    in_channels: int
    out_channels: int
    latent_channels: int
    widths: tuple[int, ...]
    layers: int
    temporal_levels: int
    tiling: Tiling | None

    @property
    def temporal(self) -> int:
        return int(2**self.temporal_levels)

    @property
    def spatial(self) -> int:
        return int(2 ** (len(self.widths) - 1))

    def passes(self, latent: Latent) -> list[Pass]:
        batches = np.maximum(np.floor(latent.frames / BATCH_FRAMES), 1.0)
        first = replace(latent, frames=latent.frames - (batches - 1.0) * BATCH_FRAMES)
        rest = replace(latent, frames=BATCH_FRAMES)
        return [Pass(first, 1.0, first=True), Pass(rest, batches - 1.0, first=False)]

    def decode(self, b: ComponentBuild, run: Pass) -> None:
        latent = grid(b, self.latent_channels, run.latent.frames, run.latent.height, run.latent.width)
        x = conv(b, latent, self.widths[-1], "decoder.input")
        for index in range(2):
            x = self._conditioned_block(b, x, latent, x.channels, f"decoder.middle.{index}")
        for level, width in enumerate(reversed(self.widths)):
            part = f"decoder.{level}"
            for index in range(self.layers + 1):
                x = self._conditioned_block(b, x, latent, width, f"{part}.{index}")
            if level < len(self.widths) - 1:
                frames = x.frames
                if level < self.temporal_levels:
                    frames = longer(frames) if run.first else 2.0 * frames
                x = conv(b, resize(b, x, part, frames=frames), width, f"{part}.resample", kernel=PLANE)
        x = apply_silu(b, self._conditioned_norm(b, x, latent, "decoder.output.norm"), "decoder.output")
        conv(b, x, self.out_channels, "decoder.output")

    def encode(self, b: ComponentBuild, run: Pass) -> None:
        latent = run.latent
        frames = self.temporal * (latent.frames - 1.0) + 1.0 if run.first else self.temporal * latent.frames
        x = grid(b, self.in_channels, frames, latent.height * self.spatial, latent.width * self.spatial)
        x = conv(b, x, self.widths[0], "encoder.input")
        for level, width in enumerate(self.widths):
            part = f"encoder.{level}"
            for index in range(self.layers):
                x = residual_block(b, x, width, f"{part}.{index}", kind="group")
            if level < len(self.widths) - 1:
                # Frames are averaged in pairs, then a convolution halves each frame's sides.
                if level < self.temporal_levels:
                    frames = (x.frames + 1.0 if run.first else x.frames) / 2.0
                    pooled = grid(b, width, frames, x.height, x.width)
                    b.elementwise("mean", f"{part}.pool", (x.tensor,), (pooled.tensor,), flops_per_element=1.0)
                    x = pooled
                x = conv(b, x, width, f"{part}.resample", kernel=PLANE, shrink=2)
        for index in range(2):
            x = residual_block(b, x, x.channels, f"encoder.middle.{index}", kind="group")
        conv(b, norm(b, x, "group", "encoder.output.norm"), 2 * self.latent_channels, "encoder.output")

    def _conditioned_block(self, b: ComponentBuild, x: Grid, latent: Grid, channels: int, part: str) -> Grid:
        y = apply_silu(b, self._conditioned_norm(b, x, latent, f"{part}.norm1"), f"{part}.norm1")
        y = conv(b, y, channels, f"{part}.conv1")
        y = apply_silu(b, self._conditioned_norm(b, y, latent, f"{part}.norm2"), f"{part}.norm2")
        y = conv(b, y, channels, f"{part}.conv2")
        if x.channels != channels:
            x = conv(b, x, channels, f"{part}.shortcut", kernel=POINT)
        return add_grids(b, y, x, part)

    def _conditioned_norm(self, b: ComponentBuild, x: Grid, latent: Grid, part: str) -> Grid:
        """GroupNorm(x) conv_y(z) + conv_b(z), z being the latent resized to x."""
        sized = grid(b, latent.channels, x.frames, x.height, x.width)
        b.elementwise("upsample", part, (latent.tensor,), (sized.tensor,), flops_per_element=0.0)
        scale = conv(b, sized, x.channels, f"{part}.scale", kernel=POINT)
        shift = conv(b, sized, x.channels, f"{part}.shift", kernel=POINT)
        normed = norm(b, x, "group", part, silu=False)
        out = b.activation(*x.tensor.shape)
        b.elementwise("modulate", part, (normed.tensor, scale.tensor, shift.tensor), (out,), flops_per_element=2.0)
        return x.like(out)


def cogvideox_vae(config: Config) -> CogVae:
    """An AutoencoderKLCogVideoX of its config."""
    widths = config.integers("block_out_channels", [128, 256, 256, 512])
    for key in ("use_quant_conv", "use_post_quant_conv"):
        if config.boolean(key, False):
            config.fail(key, "false: nothing published has it")
    side = 2 ** (len(widths) - 1)
    # Half a sample is at least two latents, so that tiles overlap.
    height, width = (
        config.integer(key, default, minimum=4 * side) // 2
        for key, default in (("sample_height", 480), ("sample_width", 720))
    )
    return CogVae(
        in_channels=config.integer("in_channels", 3),
        out_channels=config.integer("out_channels", 3),
        latent_channels=config.integer("latent_channels", 16),
        widths=widths,
        layers=config.integer("layers_per_block", 3),
        temporal_levels=halvings(config, "temporal_compression_ratio", 4, most=len(widths) - 1),
        # Tiles of half the sample's sides, overlapping by 1/6 and 1/5: the class's defaults.
        tiling=Tiling(
            TileAxis(height // side, int(height // side * (1 - 1 / 6))),
            TileAxis(width // side, int(width // side * (1 - 1 / 5))),
        ),
    )
