"""Decoder layers: attention and a feed-forward block around a residual stream."""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.layers.attention import GroupedQueryAttention
from tensor_cast.layers.build import Build
from tensor_cast.layers.cache import NO_CACHE, LayerCache
from tensor_cast.layers.compressed_attention import CompressedAttention
from tensor_cast.layers.feed_forward import FeedForward
from tensor_cast.layers.linear import gather_tokens
from tensor_cast.layers.linear_attention import GatedDeltaNet, Mamba2
from tensor_cast.layers.mla import LatentAttention
from tensor_cast.layers.moe import MixtureOfExperts
from tensor_cast.layers.norm import NormKind, add_rms_norm, rms_norm
from tensor_cast.layers.schemes import ModuleSchemes
from tensor_cast.ops import Tensor

AttentionBlock = GroupedQueryAttention | LatentAttention | CompressedAttention | GatedDeltaNet | Mamba2
FeedForwardBlock = FeedForward | MixtureOfExperts


@dataclass(frozen=True)
class DecoderLayer:
    """Pre-norm layer: attention, then a feed-forward block, either of which may be missing (Nemotron).

    ``sandwich_norm`` adds a norm after each block (Gemma 2 and 3). ``schemes`` are the layer's own quantisation, where
    a checkpoint's differs from layer to layer; ``None``: the deployment's.
    """

    hidden: int
    attention: AttentionBlock | None
    feed_forward: FeedForwardBlock | None
    sandwich_norm: bool = False
    norm: NormKind = "rms"
    schemes: ModuleSchemes | None = None

    @property
    def has_experts(self) -> bool:
        """Whether the feed-forward block is a mixture of experts."""
        return isinstance(self.feed_forward, MixtureOfExperts)

    def cache(self, tp: int, dcp: int = 1) -> LayerCache:
        """What one rank keeps of a sequence between steps."""
        return NO_CACHE if self.attention is None else self.attention.cache(tp, dcp)

    def flops_per_context_token(self) -> float:
        """Score and value FLOPs of one new token for each token that it attends to."""
        return 0.0 if self.attention is None else self.attention.flops_per_context_token()

    def flops_beyond_window(self) -> float:
        """The part of ``flops_per_context_token`` that is still done for a token beyond every window."""
        return 0.0 if self.attention is None else self.attention.flops_beyond_window()

    def forward(self, build: Build, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """(block output, residual) -> the same, both residual rows of hidden."""
        with build.using(self.schemes):
            h = x
            if self.attention is not None:
                h, residual = self._attend(build, self.attention, h, residual)
            if self.feed_forward is not None:
                h, residual = self._feed_forward(build, self.feed_forward, h, residual)
        return h, residual

    def _attend(self, build: Build, attention: AttentionBlock, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        scheme = build.schemes.attention
        fused = None if build.sequence_parallel else scheme
        h, residual = add_rms_norm(build, x, residual, "input_norm", width=self.hidden, scheme=fused, kind=self.norm)
        h = attention.forward(build, gather_tokens(build, h, "attention.gather"), scheme)
        if self.sandwich_norm:
            h = rms_norm(build, h, "post_attention_norm", width=self.hidden)
        return h, residual

    def _feed_forward(
        self, build: Build, block: FeedForwardBlock, x: Tensor, residual: Tensor
    ) -> tuple[Tensor, Tensor]:
        dense = build.schemes.mlp
        if isinstance(block, MixtureOfExperts):
            h, residual = add_rms_norm(build, x, residual, "feed_forward_norm", width=self.hidden, kind=self.norm)
            h = block.forward(build, h)
        else:
            fused = None if build.sequence_parallel or build.parallel.mlp_tp != build.tp else dense
            h, residual = add_rms_norm(
                build, x, residual, "feed_forward_norm", width=self.hidden, scheme=fused, kind=self.norm
            )
            h = block.forward(build, gather_tokens(build, h, "mlp.gather"), dense)
        if self.sandwich_norm:
            h = rms_norm(build, h, "post_feed_forward_norm", width=self.hidden)
        return h, residual


@dataclass(frozen=True)
class ParallelDecoderLayer(DecoderLayer):
    """Attention and feed-forward block side by side on one norm, their sum added to the residual (Cohere)."""

    def forward(self, build: Build, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        assert self.attention is not None
        assert isinstance(self.feed_forward, FeedForward)
        with build.using(self.schemes):
            h, residual = add_rms_norm(build, x, residual, "input_norm", width=self.hidden, kind=self.norm)
            h = gather_tokens(build, h, "attention.gather")
            attended = self.attention.forward(build, h, build.schemes.attention)
            fed = self.feed_forward.forward(build, h, build.schemes.mlp)
            out = build.activation(*attended.shape)
            build.elementwise("add", "parallel_add", (attended, fed), (out,), flops_per_element=1.0)
        return out, residual


@dataclass(frozen=True)
class DualFeedForwardLayer(DecoderLayer):
    """A dense block and a mixture of experts side by side, each between norms of its own, norms around both (Gemma 4).

    ``feed_forward`` is the mixture, so that the layer counts as one with experts.
    """

    dense: FeedForward | None = None

    def _feed_forward(
        self, build: Build, block: FeedForwardBlock, x: Tensor, residual: Tensor
    ) -> tuple[Tensor, Tensor]:
        assert self.dense is not None
        assert isinstance(block, MixtureOfExperts)
        h, residual = add_rms_norm(build, x, residual, "feed_forward_norm", width=self.hidden)
        dense = self.dense.forward(build, gather_tokens(build, h, "mlp.gather"), build.schemes.mlp)
        dense = rms_norm(build, dense, "post_dense_norm", width=self.hidden)
        routed = rms_norm(build, residual, "pre_experts_norm", width=self.hidden)
        routed = rms_norm(build, block.forward(build, routed), "post_experts_norm", width=self.hidden)
        h = build.activation(*dense.shape)
        build.elementwise("add", "dual_add", (dense, routed), (h,), flops_per_element=1.0)
        return rms_norm(build, h, "post_feed_forward_norm", width=self.hidden), residual
