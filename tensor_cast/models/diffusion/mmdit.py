"""Denoisers of two-stream and one-stream blocks: HunyuanVideo, FLUX.1, Qwen-Image, Stable Diffusion 3."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from tensor_cast.layers.dit import DenoiserBuild, Tokens, add, modulated_norm, modulation, plain_linear
from tensor_cast.layers.dit_blocks import DoubleStreamBlock, SingleStreamBlock, concat
from tensor_cast.models.diffusion.denoiser import BlockForward, BlockRunner, DenoiserInput, Patch, gather_output
from tensor_cast.ops import Tensor
from tensor_cast.quantity import Quantity


@dataclass(frozen=True, kw_only=True)
class MMDiT(ABC):
    """``doubles`` in order, each with how often it repeats, then ``single_layers`` of ``single``.

    ``in_channels`` counts those of a latent position (a packed patch is ``patch.volume`` of them).
    """

    doubles: tuple[tuple[DoubleStreamBlock, int], ...]
    single: SingleStreamBlock | None = None
    single_layers: int = 0
    in_channels: int
    out_channels: int
    text_width: int
    patch: Patch

    @property
    def hidden(self) -> int:
        """Width of the residual streams."""
        return self.doubles[0][0].hidden

    @property
    def heads(self) -> int:
        return self.doubles[0][0].heads

    @property
    def blocks(self) -> int:
        return sum(count for _, count in self.doubles) + self.single_layers

    def condition_tokens(self, text: Quantity) -> Quantity:
        return text

    @abstractmethod
    def time_embedding(self, b: DenoiserBuild) -> Tensor:
        """What modulates the blocks: a row a sample."""

    @abstractmethod
    def embed_text(self, b: DenoiserBuild, text: Quantity) -> Tensor:
        """Text tokens of every sample as rows of ``hidden``, of one rank's share or of all tokens."""

    def embed_patches(self, b: DenoiserBuild, video: Tokens) -> Tensor:
        """This rank's patches as rows of ``hidden``."""
        width = self.in_channels * self.patch.volume
        patches = b.hidden(video.local, width)
        return plain_linear(b, patches, k=width, n=self.hidden, part="patch_embedding")

    def forward(self, b: DenoiserBuild, x: DenoiserInput) -> None:
        """Write one forward's kernels."""
        video = b.tokens(self.patch.tokens(x.latent) + x.reference)
        text = b.tokens(self.condition_tokens(x.text))
        with b.graph.block("embedding"), b.scope("embedding"):
            tokens = self.embed_patches(b, video)
            embedding = self.time_embedding(b)
        context = self._embed_context(b, x.text, text)
        runner = BlockRunner(b, x.cache)

        for index, (block, count) in enumerate(self.doubles):
            name = "double_blocks" if len(self.doubles) == 1 else f"double_blocks_{index}"
            forward = _stepper(b, block, embedding, video, text)
            tokens, context = runner.run(name, count, (tokens, context), forward)
        if self.single is not None:
            tokens = self._run_singles(b, runner, tokens, context, embedding, (video, text))
        with b.graph.block("head"), b.scope("head"):
            scale, shift = modulation(b, embedding, "output.norm", width=self.hidden, count=2)
            normed = modulated_norm(b, tokens, shift, scale, "output.norm")
            out = plain_linear(b, normed, k=self.hidden, n=self.out_channels * self.patch.volume, part="output")
            gather_output(b, out, video)

    def _embed_context(self, b: DenoiserBuild, count: Quantity, text: Tokens) -> Tensor:
        with b.graph.block("text_embedding"), b.scope("text_embedding"):
            whole = self.embed_text(b, count)
        return whole.view(b.batch * text.local, self.hidden)

    def _run_singles(
        self,
        b: DenoiserBuild,
        runner: BlockRunner,
        tokens: Tensor,
        context: Tensor,
        embedding: Tensor,
        streams: tuple[Tokens, Tokens],
    ) -> Tensor:
        assert self.single is not None
        single, video = self.single, tokens.shape
        rows = tokens.shape[0] + context.shape[0]
        with b.graph.block("join"):
            joint = concat(b, (tokens, context), "join", rows, self.hidden)
        (joint,) = runner.run(
            "single_blocks",
            self.single_layers,
            (joint,),
            lambda state: (single.forward(b, state[0], embedding, streams),),
        )
        return joint.view(*video)


def _stepper(
    b: DenoiserBuild, block: DoubleStreamBlock, embedding: Tensor, video: Tokens, text: Tokens
) -> BlockForward:
    return lambda state: block.forward(b, state[0], state[1], embedding, video, text)


def embedding_sum(b: DenoiserBuild, parts: list[Tensor]) -> Tensor:
    """Sum of the embeddings of time, pooled text and guidance."""
    total = parts[0]
    for part in parts[1:]:
        total = add(b, total, part, "time_embedding")
    return total
