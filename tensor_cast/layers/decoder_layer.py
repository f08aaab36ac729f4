"""One decoder layer: attention and a feed-forward block, each behind a norm and a residual addition."""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.layers.attention import GroupedQueryAttention
from tensor_cast.layers.build import Build
from tensor_cast.layers.feed_forward import FeedForward
from tensor_cast.layers.linear import gather_tokens
from tensor_cast.layers.mla import LatentAttention
from tensor_cast.layers.moe import MixtureOfExperts
from tensor_cast.layers.norm import add_rms_norm, rms_norm
from tensor_cast.ops import Tensor

AttentionBlock = GroupedQueryAttention | LatentAttention
FeedForwardBlock = FeedForward | MixtureOfExperts


@dataclass(frozen=True)
class DecoderLayer:
    """Pre-norm layer; ``sandwich_norm`` adds a norm after each block (Gemma 2 and 3)."""

    hidden: int
    attention: AttentionBlock
    feed_forward: FeedForwardBlock
    sandwich_norm: bool = False

    @property
    def has_experts(self) -> bool:
        """Whether the feed-forward block is a mixture of experts."""
        return isinstance(self.feed_forward, MixtureOfExperts)

    def forward(self, build: Build, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """(block output, residual) -> the same, both residual rows of hidden."""
        dense, expert = build.deployment.dense_scheme, build.deployment.expert_scheme
        fused = None if build.sequence_parallel else dense
        h, residual = add_rms_norm(build, x, residual, "input_norm", width=self.hidden, scheme=fused)
        h = self.attention.forward(build, gather_tokens(build, h, "attention.gather"), dense)
        if self.sandwich_norm:
            h = rms_norm(build, h, "post_attention_norm", width=self.hidden)
        if isinstance(self.feed_forward, MixtureOfExperts):
            h, residual = add_rms_norm(build, h, residual, "feed_forward_norm", width=self.hidden)
            h = self.feed_forward.forward(build, h, dense, expert)
        else:
            fused = None if build.parallel.mlp_tp != build.tp else fused
            h, residual = add_rms_norm(build, h, residual, "feed_forward_norm", width=self.hidden, scheme=fused)
            h = self.feed_forward.forward(build, gather_tokens(build, h, "mlp.gather"), dense)
        if self.sandwich_norm:
            h = rms_norm(build, h, "post_feed_forward_norm", width=self.hidden)
        return h, residual
