"""Experts that every token passes through, beside the routed ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tensor_cast.layers.build import Build, shard
from tensor_cast.layers.feed_forward import MLPKind, gated_activation, plain_activation
from tensor_cast.layers.linear import linear
from tensor_cast.layers.schemes import UNQUANTIZED
from tensor_cast.ops import Tensor


@dataclass(frozen=True)
class SharedExperts:
    """``intermediate`` is the width of all shared experts together, which are multiplied as one block of ``kind``.

    ``gate`` scales their output by a learned sigmoid (Qwen).
    """

    hidden: int
    intermediate: int
    kind: MLPKind = "gated"
    gate: bool = False

    def forward(self, build: Build, x: Tensor, *, sharded: bool) -> Tensor:
        """(rows, hidden) -> the same: a partial sum of columns split over the TP group, or, not sharded, the whole."""
        ranks = build.tp if sharded else 1
        width = shard(self.intermediate, ranks, "columns of the shared experts", "--tp-size")
        scheme = build.schemes.shared_experts
        if self.kind == "gated":
            joint = linear(build, x, k=self.hidden, n=2 * width, part="moe.shared_gate_up", scheme=scheme)
            activated = gated_activation(build, joint, width, "moe.shared_activation", scheme)
        else:
            up = linear(build, x, k=self.hidden, n=width, part="moe.shared_up", scheme=scheme)
            activated = plain_activation(build, up, "moe.shared_activation")
        out = linear(build, activated, k=width, n=self.hidden, part="moe.shared_down", scheme=scheme)
        return self._gated(build, x, out) if self.gate else out

    def _gated(self, build: Build, x: Tensor, out: Tensor) -> Tensor:
        gate = linear(build, x, k=self.hidden, n=1, part="moe.shared_gate", scheme=UNQUANTIZED)
        gated = build.activation(x.shape[0], self.hidden)
        build.elementwise("sigmoid_mul", "moe.shared_gate", (out, gate), (gated,), flops_per_element=1.0)
        return gated


@contextmanager
def beside(build: Build, shared: SharedExperts | None, x: Tensor, *, sharded: bool) -> Iterator[Tensor | None]:
    """Emit ``shared`` on ``x``, on a stream of its own under ``enable_multistream``; yields the output, if any."""
    if shared is None:
        yield None
    elif not build.deployment.enable_multistream:
        yield shared.forward(build, x, sharded=sharded)
    else:
        with build.graph.section():
            with build.graph.side_stream():
                out = shared.forward(build, x, sharded=sharded)
            yield out


def add_shared(build: Build, x: Tensor, shared: Tensor | None) -> Tensor:
    """The routed experts' result and the shared ones', where there are any."""
    if shared is None:
        return x
    out = build.activation(*x.shape)
    build.elementwise("add", "moe.shared_add", (x, shared), (out,), flops_per_element=1.0)
    return out
