"""Kernels of routed experts on one rank: choose, permute, multiply in groups, sum up again."""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.layers.build import Build, shard
from tensor_cast.layers.expert_load import expected_distinct
from tensor_cast.layers.feed_forward import SWIGLU_FLOPS, MLPKind, gated_activation, plain_activation
from tensor_cast.layers.linear import DYNAMIC_QUANT_FLOPS, linear, quantize, quantized_outputs, scale_weights
from tensor_cast.layers.schemes import UNQUANTIZED
from tensor_cast.ops import GroupedMatMul, Tensor
from tensor_cast.quantity import Quantity

# Score, compare and normalise each expert's logit.
GATING_FLOPS_PER_LOGIT = 6.0


@dataclass(frozen=True)
class Groups:
    """What one rank's grouped products work on: ``rows`` for ``active`` of the ``stored`` experts."""

    rows: Quantity
    stored: int
    active: Quantity


@dataclass(frozen=True)
class RoutedExperts:
    """A router picks ``experts_per_token`` of ``experts`` blocks of ``intermediate``, all of ``kind``.

    ``bias`` and ``router_bias`` as in gpt-oss. Experts work on ``latent`` channels where given, which tokens are
    projected to before they are sent (Nemotron-3). ``router_scales`` are a scale a channel and an expert (Gemma 4).
    """

    hidden: int
    experts: int
    experts_per_token: int
    intermediate: int
    kind: MLPKind = "gated"
    bias: bool = False
    router_bias: bool = False
    router_scales: bool = False
    latent: int | None = None

    @property
    def width(self) -> int:
        """Channels that an expert reads and writes."""
        return self.latent or self.hidden

    def gate(self, build: Build, x: Tensor) -> Tensor:
        """Router logits of (rows, hidden) and the choice of experts: (rows, experts_per_token) weights."""
        logits = linear(
            build,
            x,
            k=self.hidden,
            n=self.experts,
            part="moe.router",
            scheme=UNQUANTIZED,
            bias=self.router_bias,
        )
        weights = build.activation(x.shape[0], self.experts_per_token, dtype="float32")
        chosen = build.activation(x.shape[0], self.experts_per_token, dtype="int32")
        scales: tuple[Tensor, ...] = ()
        if self.router_scales:
            scales = (
                build.weight("moe.router.scale", (self.hidden,)),
                build.weight("moe.router.per_expert_scale", (self.experts,)),
            )
        build.elementwise(
            "moe_gating_top_k",
            "moe.router",
            (logits, *scales),
            (weights, chosen),
            flops_per_element=GATING_FLOPS_PER_LOGIT,
        )
        return weights

    def to_latent(self, build: Build, x: Tensor) -> Tensor:
        """(rows, hidden) -> (rows, width)."""
        if self.latent is None:
            return x
        scheme = build.schemes.shared_experts
        return linear(build, x, k=self.hidden, n=self.latent, part="moe.latent_down", scheme=scheme)

    def from_latent(self, build: Build, x: Tensor) -> Tensor:
        """(rows, width) -> (rows, hidden)."""
        if self.latent is None:
            return x
        scheme = build.schemes.shared_experts
        return linear(build, x, k=self.latent, n=self.hidden, part="moe.latent_up", scheme=scheme)

    def permute(self, build: Build, x: Tensor, copies: Quantity, *, in_one: bool = True) -> tuple[Tensor, ...]:
        """(rows, width) -> (copies, width) sorted by expert, as the products take it; compiled, ``in_one`` kernel."""
        scheme = build.schemes.experts
        out = build.activation(copies, self.width)
        if not (build.compile and in_one) or not scheme.quantizes_activation:
            build.elementwise("moe_token_permute", "moe.permute", (x,), (out,), flops_per_element=0.0)
            return quantize(build, out, scheme, "moe.permute")
        outputs = quantized_outputs(build, out, scheme)
        build.elementwise(
            "moe_token_permute_quant", "moe.permute", (x,), outputs, flops_per_element=DYNAMIC_QUANT_FLOPS
        )
        return outputs

    def unpermute(self, build: Build, x: Tensor, weights: Tensor, rows: Quantity) -> Tensor:
        """(copies, width) -> (rows, width): the weighted sum of each token's results."""
        out = build.activation(rows, self.width)
        build.elementwise("moe_token_unpermute", "moe.unpermute", (x, weights), (out,), flops_per_element=2.0)
        return out

    def sort_by_expert(self, build: Build, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Rows as they arrived, by sender, in the order of this rank's experts."""
        out = tuple(build.activation(*t.shape, dtype=t.dtype) for t in x)
        build.elementwise("moe_re_routing", "moe.permute", x, out, flops_per_element=0.0)
        return out

    def sort_by_sender(self, build: Build, x: Tensor) -> Tensor:
        """The same undone."""
        out = build.activation(*x.shape, dtype=x.dtype)
        build.elementwise("index_select", "moe.unpermute", (x,), (out,), flops_per_element=0.0)
        return out

    def forward(self, build: Build, x: tuple[Tensor, ...], rows: Quantity, tokens: Quantity) -> Tensor:
        """``rows`` permuted rows through this rank's experts, chosen by ``tokens`` tokens in all -> (rows, width).

        Raises:
            ModelingError: the ranks do not divide the experts or their columns.
        """
        scheme, groups, columns = build.schemes.experts, self._groups(build, rows, tokens), self._columns(build)
        if self.kind == "plain":
            (up,) = self._grouped(build, x, groups, self.width, columns, "moe.up")
            activated = quantize(build, plain_activation(build, up, "moe.activation"), scheme, "moe.activation")
        else:
            fused = build.compile and scheme.quantizes_activation
            activated = self._grouped(build, x, groups, self.width, 2 * columns, "moe.gate_up", fused=fused)
            if not fused:
                out = gated_activation(build, activated[0], columns, "moe.activation", scheme)
                activated = quantize(build, out, scheme, "moe.activation")
        return self._grouped(build, activated, groups, columns, self.width, "moe.down")[0]

    def _groups(self, build: Build, rows: Quantity, tokens: Quantity) -> Groups:
        apart = build.deployment.shared_expert_ranks
        ranks = build.parallel.ep - apart
        flag = "--ep-size less --shared-expert-ranks =" if apart else "--ep-size"
        local = shard(self.experts, ranks, "routed experts", flag)
        active = expected_distinct(self.experts, self.experts_per_token, tokens) / ranks
        return Groups(rows, local + (1 if build.deployment.enable_redundant_experts else 0), active)

    def _columns(self, build: Build) -> int:
        """Columns of an expert on one rank."""
        ranks, what = build.parallel.moe_tp, "columns of an expert"
        if build.deployment.moe_tp_size is None:
            return shard(self.intermediate, ranks, what, "A moe_tp of", instead="--ep-size")
        return shard(self.intermediate, ranks, what, "--moe-tp-size")

    def _grouped(
        self, build: Build, x: tuple[Tensor, ...], groups: Groups, k: int, n: int, part: str, *, fused: bool = False
    ) -> tuple[Tensor, ...]:
        """One grouped product; ``fused`` with the gated activation and the quantisation of its result."""
        scheme = build.schemes.experts
        if fused:
            name = "grouped_matmul_swiglu_quant"
            outputs = quantized_outputs(build, build.activation(groups.rows, n // 2), scheme)
        else:
            name = "quant_grouped_matmul" if scheme.quantizes_activation else "grouped_matmul"
            outputs = (build.activation(groups.rows, n),)
        build.emit(
            GroupedMatMul(
                name=name,
                part=part,
                inputs=(*x, *self._weights(build, part, groups.stored, k, n)),
                outputs=outputs,
                matrix_dtype=scheme.compute_dtype or build.dtype,
                m=groups.rows,
                k=k,
                n=n,
                groups=groups.stored,
                active_groups=groups.active,
                epilogue_flops=(SWIGLU_FLOPS + DYNAMIC_QUANT_FLOPS) * groups.rows * n / 2 if fused else 0.0,
            )
        )
        return outputs

    def _weights(self, build: Build, part: str, stored: int, k: int, n: int) -> tuple[Tensor, ...]:
        """(k, n) matrices of the ``stored`` experts, with their scales and biases."""
        scheme = build.schemes.experts
        biases = (build.weight(f"{part}.bias", (stored, n)),) if self.bias else ()
        matrices = build.weight(part, (stored, k, n), scheme.weight_dtype)
        return (matrices, *scale_weights(build, part, k, n, scheme, copies=(stored,)), *biases)
