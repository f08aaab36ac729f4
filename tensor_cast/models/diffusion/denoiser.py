"""What every denoiser has in common: the sizes of its input, its blocks, and which of them a forward runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from tensor_cast.layers.dit import DenoiserBuild, Tokens
from tensor_cast.ops import Tensor
from tensor_cast.parallelism import RankGroup
from tensor_cast.quantity import Quantity, ceil_div

CacheMode = Literal["none", "refresh", "reuse"]


@dataclass(frozen=True)
class Latent:
    """Size of one latent sample, as the VAE makes it."""

    frames: Quantity
    height: Quantity
    width: Quantity


@dataclass(frozen=True)
class Patch:
    """Latent elements that make one token; a last patch of frames is padded."""

    frames: int
    height: int
    width: int

    @property
    def volume(self) -> int:
        """Latent positions of one token."""
        return self.frames * self.height * self.width

    def tokens(self, latent: Latent) -> Quantity:
        """Tokens of one sample."""
        return ceil_div(latent.frames, self.frames) * (latent.height / self.height) * (latent.width / self.width)


@dataclass(frozen=True)
class CacheUse:
    """What a forward does about cached blocks: nothing, compute and keep ``blocks``, or add what was kept."""

    mode: CacheMode = "none"
    blocks: tuple[int, int] = (0, 0)

    def computed(self, first: int, count: int) -> tuple[int, ...]:
        """Indices in [first, first + count) of the blocks that run."""
        if self.mode != "reuse":
            return tuple(range(first, first + count))
        start, end = self.blocks
        return tuple(index for index in range(first, first + count) if not start <= index < end)


@dataclass(frozen=True)
class DenoiserInput:
    """One forward's input: ``latent`` of the output, ``text`` tokens a prompt, ``reference`` tokens of given images."""

    latent: Latent
    text: Quantity
    reference: Quantity = 0.0
    cache: CacheUse = CacheUse()


class Denoiser(Protocol):
    """A diffusion transformer as structure."""

    @property
    def heads(self) -> int:
        """Attention heads, which Ulysses shares out."""

    @property
    def blocks(self) -> int:
        """Transformer blocks of all kinds."""

    @property
    def patch(self) -> Patch:
        """Latent elements of a token."""

    @property
    def out_channels(self) -> int:
        """Channels of the latent that it predicts."""

    def condition_tokens(self, text: Quantity) -> Quantity:
        """Tokens beside the video's, for ``text`` tokens of the prompt."""

    def forward(self, b: DenoiserBuild, x: DenoiserInput) -> None:
        """Write one forward's kernels."""


BlockForward = Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]


@dataclass
class BlockRunner:
    """Writes stacks of equal blocks one after another, leaving out those that the step cache replaces."""

    build: DenoiserBuild
    cache: CacheUse
    written: int = 0

    def run(self, name: str, count: int, state: tuple[Tensor, ...], forward: BlockForward) -> tuple[Tensor, ...]:
        """The next ``count`` blocks, each taking ``state`` to a new one."""
        first = self.written
        self.written += count
        layers = self.cache.computed(first, count)
        if layers:
            block = self.build.graph.block(f"{name}.{first}-{first + count - 1}", count=len(layers), layers=layers)
            with block, self.build.scope(name):
                state = forward(state)
        end = self.cache.blocks[1]
        if self.cache.mode != "none" and first < end <= first + count:
            state = self._cached(state)
        return state

    def _cached(self, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Keep what the blocks added (``refresh``), or add what was kept (``reuse``)."""
        name = "cache_store" if self.cache.mode == "refresh" else "cache_add"
        out = []
        with self.build.graph.block("step_cache"):
            for x in state:
                kept = Tensor(x.shape, x.dtype, "cache")
                result = self.build.activation(*x.shape)
                outputs = (kept,) if name == "cache_store" else (result,)
                inputs = (x, x) if name == "cache_store" else (x, kept)
                self.build.elementwise(name, "step_cache", inputs, outputs, flops_per_element=1.0)
                out.append(x if name == "cache_store" else result)
        return tuple(out)


def gather_output(b: DenoiserBuild, x: Tensor, tokens: Tokens) -> Tensor:
    """Predictions of all tokens on every rank, then in the latent's shape."""
    rows, width = b.batch * tokens.padded, int(x.shape[1])
    whole = b.communicate("all_gather", "output", x, RankGroup(b.ranks), (rows, width))
    latent = b.activation(rows, width)
    b.elementwise("unpatchify", "output", (whole,), (latent,), flops_per_element=0.0)
    return latent
