"""Autoencoders of diffusion pipelines: what all have in common, and tiling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tensor_cast.layers.conv import ComponentBuild
from tensor_cast.models.config import Config
from tensor_cast.models.diffusion.denoiser import Latent
from tensor_cast.quantity import Quantity, ceil_div


@dataclass(frozen=True)
class Pass:
    """One kind of run of an encoder or decoder: over latents of this size, ``count`` times.

    ``first`` passes start a video: layers that merge or split frames leave its first frame alone.
    """

    latent: Latent
    count: Quantity
    first: bool


@dataclass(frozen=True)
class TileAxis:
    """Tiles of ``size`` latents, each ``stride`` after the one before."""

    size: int
    stride: int

    def extent(self, length: Quantity) -> Quantity:
        """Length of one tile."""
        cut: Quantity = np.minimum(length, self.size)
        return cut

    def covered(self, length: Quantity) -> Quantity:
        """Sum of all tiles' lengths along an axis of ``length``; tiles at the end are shorter."""
        tiles = ceil_div(length, self.stride)
        whole: Quantity = np.clip(np.floor((length - self.size) / self.stride) + 1.0, 0.0, tiles)
        rest = tiles - whole
        cut_short = rest * length - self.stride * (tiles * (tiles - 1.0) - whole * (whole - 1.0)) / 2.0
        total: Quantity = np.where(length <= self.size, length, whole * self.size + cut_short)
        return total


@dataclass(frozen=True)
class Tiling:
    """Tiles of a latent; ``frames`` is ``None`` where all frames stay together."""

    height: TileAxis
    width: TileAxis
    frames: TileAxis | None = None

    def passes(self, latent: Latent) -> list[Pass]:
        """The runs of a tiled decode: tiles of full size, as many as have the same area as all tiles."""
        axes = ((self.frames, latent.frames), (self.height, latent.height), (self.width, latent.width))
        count: Quantity = 1.0
        size = []
        for axis, length in axes:
            extent = length if axis is None else axis.extent(length)
            count = count * ((length if axis is None else axis.covered(length)) / extent)
            size.append(extent)
        return [Pass(Latent(*size), count, first=True)]


class Vae(Protocol):
    """An autoencoder as structure. Latents are ``temporal`` x ``spatial`` x ``spatial`` smaller than the video."""

    @property
    def temporal(self) -> int:
        """Frames of a latent frame, but for the first, which is one."""

    @property
    def spatial(self) -> int:
        """Pixels of a latent position, along each side."""

    @property
    def latent_channels(self) -> int:
        """Channels of the latent."""

    @property
    def tiling(self) -> Tiling | None:
        """Tiles that the reference implementation decodes in; ``None`` where it has no need of them."""

    def passes(self, latent: Latent) -> list[Pass]:
        """The runs of an untiled decode, or encode."""

    def decode(self, b: ComponentBuild, run: Pass) -> None:
        """Write the kernels of one run of the decoder."""

    def encode(self, b: ComponentBuild, run: Pass) -> None:
        """Write the kernels of one run of the encoder."""


def halvings(config: Config, key: str, default: int, *, most: int) -> int:
    """How often a ratio of compression halves: a power of two, of at most ``most`` halvings.

    Raises:
        ModelingError: it is another number.
    """
    ratio = config.integer(key, default)
    if ratio & (ratio - 1) or ratio > 2**most:
        config.fail(key, f"a power of two of at most {2**most}, one halving between two levels of block_out_channels")
    return ratio.bit_length() - 1
