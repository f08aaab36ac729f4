"""Dense feed-forward blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensor_cast.layers.build import Build, shard
from tensor_cast.layers.linear import (
    DYNAMIC_QUANT_FLOPS,
    STATIC_QUANT_FLOPS,
    linear,
    quantized_outputs,
    remember_quantized,
    row_parallel_linear,
)
from tensor_cast.ops import Tensor
from tensor_cast.parallelism import RankGroup
from tensor_cast.quantity import ceil_div
from tensor_cast.quantization import LinearScheme

# SiLU (exponential, add, divide, multiply) and the product with the up projection.
SWIGLU_FLOPS = 5.0

MLPKind = Literal["gated", "plain"]


def gated_activation(build: Build, x: Tensor, width: int, part: str, scheme: LinearScheme) -> Tensor:
    """(rows, 2 x width) -> (rows, width): act(gate) x up.

    Compiled, one kernel writes the form that the down projection multiplies; eager runs SiLU and the product apart.
    """
    rows = x.shape[0]
    out = build.activation(rows, width)
    if not build.compile:
        activated = build.activation(rows, width)
        build.elementwise("silu", part, (x.view(rows, width),), (activated,), flops_per_element=SWIGLU_FLOPS - 1.0)
        build.elementwise("mul", part, (activated, x.view(rows, width)), (out,), flops_per_element=1.0)
        return out
    if not scheme.quantizes_activation:
        build.elementwise("swiglu", part, (x,), (out,), flops_per_element=SWIGLU_FLOPS, elements=out.elements)
        return out
    quantized = quantized_outputs(build, out, scheme)
    quant_flops = DYNAMIC_QUANT_FLOPS if scheme.dynamic else STATIC_QUANT_FLOPS
    build.elementwise(
        "swiglu_quant", part, (x,), quantized, flops_per_element=SWIGLU_FLOPS + quant_flops, elements=out.elements
    )
    remember_quantized(build, out, scheme, quantized)
    return out


def plain_activation(build: Build, x: Tensor, part: str) -> Tensor:
    """GELU, SiLU or ReLU squared of every element, at the cost of a SiLU."""
    out = build.activation(*x.shape)
    build.elementwise("activation", part, (x,), (out,), flops_per_element=SWIGLU_FLOPS - 1.0)
    return out


@dataclass(frozen=True)
class FeedForward:
    """``gated``: down(act(gate(x)) x up(x)), gate and up multiplied at once. ``plain``: down(act(up(x)))."""

    hidden: int
    intermediate: int
    bias: bool = False
    kind: MLPKind = "gated"

    def forward(self, build: Build, x: Tensor, scheme: LinearScheme) -> Tensor:
        """(tokens, hidden) -> residual rows of hidden, reduced over the ranks that share the block."""
        ranks = build.parallel.mlp_tp
        flag = "--tp-size" if build.deployment.mlp_tp_size is None else "--mlp-tp-size"
        width = shard(self.intermediate, ranks, "columns of the feed-forward block", flag)
        if ranks == build.tp:
            return self._down(build, self._up(build, x, width, scheme), width, scheme, reduce=True)
        return self._on_other_ranks(build, x, width, ranks, scheme)

    def _up(self, build: Build, x: Tensor, width: int, scheme: LinearScheme) -> Tensor:
        joint = linear(
            build,
            x,
            k=self.hidden,
            n=2 * width if self.kind == "gated" else width,
            part="mlp.gate_up" if self.kind == "gated" else "mlp.up",
            scheme=scheme,
            bias=self.bias,
        )
        if self.kind == "gated":
            return gated_activation(build, joint, width, "mlp.activation", scheme)
        return plain_activation(build, joint, "mlp.activation")

    def _down(self, build: Build, x: Tensor, width: int, scheme: LinearScheme, *, reduce: bool) -> Tensor:
        project = row_parallel_linear if reduce else linear
        return project(build, x, k=width, n=self.hidden, part="mlp.down", scheme=scheme, bias=self.bias)

    def _on_other_ranks(self, build: Build, x: Tensor, width: int, ranks: int, scheme: LinearScheme) -> Tensor:
        """On more ranks than attention (tokens of data-parallel ranks meet), or on fewer (tokens are split)."""
        tp, rows = build.tp, x.shape[0]
        if ranks > tp:
            met = build.communicate(
                "all_gather", "mlp.down", x, RankGroup(ranks // tp, tp), (rows * (ranks // tp), self.hidden)
            )
            partial = self._down(build, self._up(build, met, width, scheme), width, scheme, reduce=False)
            own = build.communicate(
                "reduce_scatter", "mlp.down", partial, RankGroup(ranks), (ceil_div(rows, tp), self.hidden)
            )
            gathered_over = RankGroup(tp)
        else:
            share = x.view(ceil_div(rows, tp // ranks), self.hidden)
            partial = self._down(build, self._up(build, share, width, scheme), width, scheme, reduce=False)
            own = build.communicate("all_reduce", "mlp.down", partial, RankGroup(ranks), partial.shape)
            gathered_over = RankGroup(tp // ranks, ranks)
        if build.sequence_parallel:
            return own.view(build.residual_tokens, self.hidden)
        return build.communicate("all_gather", "mlp.down", own, gathered_over, (rows, self.hidden))
