"""Manifold-constrained hyper-connections: a residual of several streams that each block mixes (DeepSeek-V4, 2.2)."""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.layers.build import Build
from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.layers.linear import gather_tokens
from tensor_cast.layers.moe import MixtureOfExperts
from tensor_cast.layers.norm import rms_norm
from tensor_cast.ops import MatMul, Tensor

# Row and column sums and divisions of one Sinkhorn-Knopp iteration on an element.
SINKHORN_FLOPS = 4.0


@dataclass(frozen=True)
class HyperConnection:
    """``streams`` residual streams of ``hidden``; ``iterations`` of Sinkhorn-Knopp make mixing doubly stochastic."""

    hidden: int
    streams: int
    iterations: int

    @property
    def width(self) -> int:
        """Elements of all streams of a token."""
        return self.streams * self.hidden

    def expand(self, build: Build, x: Tensor) -> Tensor:
        """Embeddings, copied to every stream."""
        out = build.activation(x.shape[0], self.width)
        build.elementwise("repeat", "hyper.expand", (x,), (out,), flops_per_element=0.0)
        return out

    def enter(self, build: Build, streams: Tensor, part: str) -> tuple[Tensor, Tensor]:
        """(the block's input, weights of ``leave``): a projection of all streams gives weights to collapse them, to
        spread the block's output over them and to mix them.
        """
        count = (2 + self.streams) * self.streams
        weights = self._weights(build, streams, count, 3, part)
        constrained = build.activation(*weights.shape, dtype="float32")
        build.elementwise(
            "sinkhorn", part, (weights,), (constrained,), flops_per_element=SINKHORN_FLOPS * self.iterations
        )
        return self._collapse(build, streams, constrained, part), constrained

    def leave(self, build: Build, streams: Tensor, out: Tensor, weights: Tensor, part: str) -> Tensor:
        """The mixed streams plus the block's output spread over them."""
        mixed = build.activation(*streams.shape)
        build.elementwise(
            "hyper_mix",
            part,
            (streams, out, weights),
            (mixed,),
            flops_per_element=2.0 * (self.streams + 1),
        )
        return mixed

    def head(self, build: Build, streams: Tensor) -> Tensor:
        """The streams collapsed for the output head."""
        weights = self._weights(build, streams, self.streams, 1, "hyper.head")
        return self._collapse(build, streams, weights, "hyper.head")

    def _weights(self, build: Build, streams: Tensor, count: int, scales: int, part: str) -> Tensor:
        rows = streams.shape[0]
        out = build.activation(rows, count, dtype="float32")
        build.emit(
            MatMul(
                name="hyper_weights",
                part=part,
                inputs=(
                    streams,
                    build.weight(f"{part}.fn", (count, self.width), "float32"),
                    build.weight(f"{part}.base", (count,), "float32"),
                    build.weight(f"{part}.scale", (scales,), "float32"),
                ),
                outputs=(out,),
                m=rows,
                k=self.width,
                n=count,
                matrix_dtype=build.dtype,
            )
        )
        return out

    def _collapse(self, build: Build, streams: Tensor, weights: Tensor, part: str) -> Tensor:
        out = build.activation(streams.shape[0], self.hidden)
        build.elementwise("hyper_collapse", part, (streams, weights), (out,), flops_per_element=2.0)
        return out


@dataclass(frozen=True, kw_only=True)
class HyperConnectedLayer(DecoderLayer):
    """A decoder layer whose blocks read and write several residual streams."""

    hyper: HyperConnection

    def forward(self, build: Build, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """(streams, streams) -> the same."""
        assert self.attention is not None
        assert self.feed_forward is not None
        with build.using(self.schemes):
            h, weights = self.hyper.enter(build, x, "hyper.attention")
            h = rms_norm(build, h, "input_norm", width=self.hidden)
            h = self.attention.forward(build, gather_tokens(build, h, "attention.gather"), build.schemes.attention)
            x = self.hyper.leave(build, x, h, weights, "hyper.attention")
            h, weights = self.hyper.enter(build, x, "hyper.feed_forward")
            h = rms_norm(build, h, "feed_forward_norm", width=self.hidden)
            if isinstance(self.feed_forward, MixtureOfExperts):
                h = self.feed_forward.forward(build, h)
            else:
                h = self.feed_forward.forward(build, gather_tokens(build, h, "mlp.gather"), build.schemes.mlp)
            x = self.hyper.leave(build, x, h, weights, "hyper.feed_forward")
        return x, x
