"""Mixture of experts: routing, dispatch, grouped products, combination, for every way of sharing experts out."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from tensor_cast.deployment import RankGroup
from tensor_cast.errors import ModelingError
from tensor_cast.layers.build import Build, shard
from tensor_cast.layers.feed_forward import SWIGLU_FLOPS, MLPKind, gated_activation, plain_activation
from tensor_cast.layers.linear import (
    DYNAMIC_QUANT_FLOPS,
    gather_tokens,
    linear,
    quantize,
    reduce_partial,
    scale_weights,
)
from tensor_cast.layers.schemes import UNQUANTIZED
from tensor_cast.ops import Collective, Elementwise, GroupedMatMul, Op, Overlapped, Tensor
from tensor_cast.quantity import Quantity, ceil_div
from tensor_cast.quantization import LinearScheme

# Score, compare and normalise each expert's logit.
GATING_FLOPS_PER_LOGIT = 6.0


def expected_distinct(experts: int, experts_per_token: int, tokens: Quantity) -> Quantity:
    """Experts that at least one of ``tokens`` picks, each picking ``experts_per_token`` of ``experts`` at random.

    ``E (1 - (1 - k/E)^T)``: an expert is missed by one token with probability ``1 - k/E``.
    """
    return experts * (1.0 - np.power(1.0 - experts_per_token / experts, tokens))


def expected_skew(spread: float, experts: int, ranks: int) -> float:
    """Rows of the busiest of ``ranks`` over the mean, if an expert's rows vary by ``spread`` (deviation over mean).

    A rank adds up ``experts / ranks`` of them, so that its rows vary by ``spread sqrt(ranks / experts)``; the largest
    of as many normal variables lies where Blom (1958) expects it, at the quantile ``(n - 3/8) / (n + 1/4)``.
    """
    largest = NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
    return 1.0 + spread * math.sqrt(ranks / experts) * largest


def expert_skew(build: Build, experts: int) -> float:
    """Rows of the busiest expert-parallel rank over the mean of all: 1 when routing is balanced, at most their number.

    Raises:
        ModelingError: more than one rank could ever get.
    """
    skew, ranks = build.deployment.expert_skew, build.parallel.ep
    if ranks == 1:
        return 1.0
    if skew is None:
        return min(expected_skew(build.expert_spread, experts, ranks), float(ranks))
    if skew > ranks:
        raise ModelingError(
            f"--expert-skew {skew:g} is more than the {ranks} expert-parallel ranks: the busiest cannot have more than "
            "everything."
        )
    return skew


@dataclass(frozen=True)
class MixtureOfExperts:
    """A router picks ``experts_per_token`` of ``experts`` blocks of ``intermediate``.

    The busiest expert-parallel rank has ``expert_skew`` times the mean to do.

    ``shared_intermediate`` is the width of all shared experts together, 0 for none; ``shared_gate`` scales their
    output by a learned sigmoid (Qwen). ``expert_bias`` and ``router_bias`` as in gpt-oss. ``kind`` is that of all
    experts. Routed experts work on ``latent`` channels where given, which tokens are projected to before they are sent
    (Nemotron-3). ``router_scales`` are a scale a channel and an expert (Gemma 4).
    """

    hidden: int
    experts: int
    experts_per_token: int
    intermediate: int
    shared_intermediate: int = 0
    shared_gate: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    kind: MLPKind = "gated"
    latent: int | None = None
    router_scales: bool = False

    @property
    def width(self) -> int:
        """Channels that routed experts read and write."""
        return self.latent or self.hidden

    @property
    def joint(self) -> int:
        """Products of the first layer for each of an expert's columns: gate and up, or up alone."""
        return 2 if self.kind == "gated" else 1

    def forward(self, build: Build, x: Tensor) -> Tensor:
        """Residual rows of hidden -> the same.

        Raises:
            ModelingError: the sizes of experts do not nest with ``tp``, or do not divide the experts or their columns.
        """
        plan, tp = build.parallel, build.tp
        if max(plan.moe_group, tp) % min(plan.moe_group, tp):
            raise ModelingError(
                f"ep {plan.ep} x moe_tp {plan.moe_tp} = {plan.moe_group} ranks hold the experts, which neither divides "
                f"nor is a multiple of --tp-size {tp}: choose sizes that nest."
            )
        if build.deployment.shared_expert_ranks:
            self._require_own_ranks_fit(build)
            return self._on_own_ranks(build, x)
        if plan.ep > 1 and plan.moe_group > tp:
            return self._dispatched(build, x)
        x = gather_tokens(build, x, "moe.gather")
        if plan.moe_group == tp:
            return self._replicated(build, x)
        if plan.moe_group > tp:
            return self._met(build, x)
        return self._sliced(build, x)

    def _replicated(self, build: Build, x: Tensor) -> Tensor:
        """Every rank of the TP group has all tokens and computes its experts (or its columns of all of them)."""
        with self._beside_shared(build, x, x.shape[0], sharded=True) as shared:
            partial = self._route_and_compute(build, x, x.shape[0])
        return reduce_partial(build, self._add(build, partial, shared), "moe.combine")

    def _met(self, build: Build, x: Tensor) -> Tensor:
        """Expert columns are split over data-parallel ranks too: their tokens meet, and the sums are scattered back."""
        tp, rows, group = build.tp, x.shape[0], build.parallel.moe_group
        own_rows = ceil_div(rows, tp)
        with self._beside_shared(build, x, rows, sharded=True) as shared:
            met_rows = rows * (group // tp)
            met = build.communicate(
                "all_gather", "moe.dispatch", x, RankGroup(group // tp, tp), (met_rows, self.hidden)
            )
            partial = self._route_and_compute(build, met, met_rows)
            own = build.communicate("reduce_scatter", "moe.combine", partial, RankGroup(group), (own_rows, self.hidden))
        if shared is not None:
            shared = build.communicate("reduce_scatter", "moe.shared", shared, build.tp_group, (own_rows, self.hidden))
        return self._gather_own(build, self._add(build, own, shared), rows)

    def _sliced(self, build: Build, x: Tensor) -> Tensor:
        """Experts are replicated inside the TP group: each replica takes a share of the tokens."""
        tp, rows, group = build.tp, x.shape[0], build.parallel.moe_group
        own_rows = ceil_div(rows, tp // group)
        with self._beside_shared(build, x, rows, sharded=True) as shared:
            partial = self._route_and_compute(build, x.view(own_rows, self.hidden), own_rows)
            own = build.communicate("all_reduce", "moe.combine", partial, RankGroup(group), partial.shape)
        whole = build.communicate("all_gather", "moe.combine", own, RankGroup(tp // group, group), (rows, self.hidden))
        if shared is not None:
            shared = build.communicate("all_reduce", "moe.shared", shared, build.tp_group, shared.shape)
        whole = self._add(build, whole, shared)
        return whole.view(build.residual_tokens, self.hidden) if build.sequence_parallel else whole

    def _dispatched(self, build: Build, x: Tensor) -> Tensor:
        """Expert parallelism over data-parallel ranks: each token travels to its experts' ranks and back."""
        rows = build.tokens
        own_rows = ceil_div(rows, build.tp)
        sharded = build.deployment.enable_shared_expert_tp
        own = x if build.sequence_parallel else x.view(own_rows, self.hidden)
        everyone = gather_tokens(build, x, "moe.shared") if sharded and self.shared_intermediate else own
        with self._beside_shared(build, everyone, everyone.shape[0], sharded=sharded) as shared:
            weights = self._gate(build, own)
            combined = self._exchange(build, self._to_latent(build, own), own_rows, weights)
            combined = self._from_latent(build, combined)
        if sharded and shared is not None:
            shared = build.communicate("reduce_scatter", "moe.shared", shared, build.tp_group, (own_rows, self.hidden))
        return self._gather_own(build, self._add(build, combined, shared), rows)

    def _all_to_all(self, build: Build, tensors: tuple[Tensor, ...], part: str) -> tuple[Tensor, ...]:
        """Rows to the expert-parallel ranks that they belong to.

        Scales travel beside their values (DeepEP's ``Buffer.dispatch``, CANN's ``MoeDistributeDispatch``).
        """
        group, shapes = RankGroup(build.parallel.ep, build.parallel.moe_tp), tuple(t.shape for t in tensors)
        return build.communicate_together("all_to_all", part, tensors, group, shapes)

    def _require_own_ranks_fit(self, build: Build) -> None:
        plan, ranks = build.parallel, build.deployment.shared_expert_ranks
        if not self.shared_intermediate or self.latent is not None:
            raise ModelingError(
                f"--shared-expert-ranks {ranks} needs shared experts that read hidden states as routed ones do, which "
                "the model has not."
            )
        if ranks >= plan.ep or plan.moe_tp > 1 or plan.ep <= build.tp:
            raise ModelingError(
                f"--shared-expert-ranks {ranks} are some of the expert-parallel ranks, whole experts on each: it needs "
                f"--ep-size over {max(ranks, build.tp)} and --moe-tp-size 1, got ep {plan.ep} and moe_tp {plan.moe_tp}."
            )

    def _on_own_ranks(self, build: Build, x: Tensor) -> Tensor:
        """Shared experts alone on some expert-parallel ranks, routed ones on the others, which run at the same time.

        A token is sent to one shared expert's rank too, as if it were one more of its experts.
        """
        plan, shared_ranks = build.parallel, build.deployment.shared_expert_ranks
        own_rows = ceil_div(build.tokens, build.tp)
        own = x if build.sequence_parallel else x.view(own_rows, self.hidden)
        weights = self._gate(build, own)
        copies = own_rows * (self.experts_per_token + 1)
        sent = self._permute(build, own, copies)
        received = self._all_to_all(build, sent, "moe.dispatch")
        rows = own_rows * self.experts_per_token * plan.ep / (plan.ep - shared_ranks) * expert_skew(build, self.experts)
        with build.graph.section():
            with build.graph.side_stream():
                shared_rows = own_rows * plan.ep / shared_ranks
                self._shared(build, own.view(shared_rows, self.hidden), shared_rows, sharded=False)
            routed = tuple(t.view(rows, *t.shape[1:]) for t in received)
            out = self._experts(build, routed, rows, own_rows * plan.ep)
        (back,) = self._all_to_all(build, (out.view(copies, self.hidden),), "moe.combine")
        return self._gather_own(build, self._unpermute(build, back, weights, own_rows), build.tokens)

    def _exchange(self, build: Build, own: Tensor, own_rows: Quantity, weights: Tensor) -> Tensor:
        """Dispatch, experts, combine; one fused kernel where the deployment asks for it.

        Each rank sends its tokens' copies; the busiest receives ``expert_skew`` times as many.
        """
        plan = build.parallel
        copies = own_rows * self.experts_per_token
        busiest = copies * expert_skew(build, self.experts)
        fused = build.deployment.enable_dispatch_ffn_combine
        with contextlib.ExitStack() as stack:
            captured = stack.enter_context(build.graph.capture()) if fused else []
            sent = self._permute(build, own, copies)
            received = self._all_to_all(build, tuple(t.view(busiest, *t.shape[1:]) for t in sent), "moe.dispatch")
            group_rows = busiest * plan.moe_tp
            shapes = tuple((group_rows, *t.shape[1:]) for t in received)
            expert_group = RankGroup(plan.moe_tp)
            received = build.communicate_together("all_gather", "moe.dispatch", received, expert_group, shapes)
            apart = not build.decode and plan.ep < self.experts
            if apart:
                received = self._sort_by_expert(build, received)
            out = self._experts(build, received, group_rows, own_rows * plan.moe_group)
            if apart:
                out = self._sort_by_sender(build, out)
            out = build.communicate("reduce_scatter", "moe.combine", out, expert_group, (busiest, self.width))
            (back,) = self._all_to_all(build, (out,), "moe.combine")
            combined = self._unpermute(build, back.view(copies, self.width), weights, own_rows)
        if fused:
            build.emit(_fuse(captured, own, combined))
        return combined

    def _sort_by_expert(self, build: Build, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Rows as they arrived, by sender, in the order of this rank's experts.

        A decode's dispatch writes them so (CANN's ``MoeDistributeDispatch``, DeepEP's low-latency kernels). A
        prefill's all-to-all does not: vLLM-Ascend and the DeepSeek-R1 recipe of cann-recipes-infer route a second time.
        """
        out = tuple(build.activation(*t.shape, dtype=t.dtype) for t in x)
        build.elementwise("moe_re_routing", "moe.permute", x, out, flops_per_element=0.0)
        return out

    def _sort_by_sender(self, build: Build, x: Tensor) -> Tensor:
        """The same undone."""
        out = build.activation(*x.shape, dtype=x.dtype)
        build.elementwise("index_select", "moe.unpermute", (x,), (out,), flops_per_element=0.0)
        return out

    def _route_and_compute(self, build: Build, x: Tensor, rows: Quantity) -> Tensor:
        """Local experts on those of ``rows`` tokens that picked them, a token's results summed over local experts."""
        weights = self._gate(build, x)
        local_rows = rows * self.experts_per_token / build.parallel.ep * expert_skew(build, self.experts)
        permuted = self._permute(build, self._to_latent(build, x), local_rows)
        out = self._experts(build, permuted, local_rows, rows)
        return self._from_latent(build, self._unpermute(build, out, weights, rows))

    def _to_latent(self, build: Build, x: Tensor) -> Tensor:
        if self.latent is None:
            return x
        scheme = build.schemes.shared_experts
        return linear(build, x, k=self.hidden, n=self.latent, part="moe.latent_down", scheme=scheme)

    def _from_latent(self, build: Build, x: Tensor) -> Tensor:
        if self.latent is None:
            return x
        scheme = build.schemes.shared_experts
        return linear(build, x, k=self.latent, n=self.hidden, part="moe.latent_up", scheme=scheme)

    def _gate(self, build: Build, x: Tensor) -> Tensor:
        """Router logits and the choice of experts: (rows, k) weights."""
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

    def _permute(self, build: Build, x: Tensor, copies: Quantity) -> tuple[Tensor, ...]:
        """Rows sorted by expert; compiled, already quantised."""
        scheme = build.schemes.experts
        if not build.compile or not scheme.quantizes_activation:
            out = build.activation(copies, self.width)
            build.elementwise("moe_token_permute", "moe.permute", (x,), (out,), flops_per_element=0.0)
            return quantize(build, out, scheme, "moe.permute")
        values = build.activation(copies, self.width, dtype=scheme.activation_dtype)
        outputs: tuple[Tensor, ...] = (values,)
        if scheme.dynamic:
            scales = ceil_div(self.width, scheme.group_size) if scheme.group_size else 1.0
            outputs = (values, build.activation(copies, scales, dtype=scheme.scale_dtype))
        build.elementwise(
            "moe_token_permute_quant", "moe.permute", (x,), outputs, flops_per_element=DYNAMIC_QUANT_FLOPS
        )
        return outputs

    def _unpermute(self, build: Build, x: Tensor, weights: Tensor, rows: Quantity) -> Tensor:
        """Weighted sum of each token's results."""
        out = build.activation(rows, self.width)
        build.elementwise("moe_token_unpermute", "moe.unpermute", (x, weights), (out,), flops_per_element=2.0)
        return out

    def _experts(self, build: Build, x: tuple[Tensor, ...], rows: Quantity, tokens: Quantity) -> Tensor:
        """``rows`` permuted rows through this rank's experts, chosen by ``tokens`` tokens in all."""
        plan, scheme = build.parallel, build.schemes.experts
        apart = build.deployment.shared_expert_ranks
        ranks = plan.ep - apart
        local = shard(
            self.experts, ranks, "routed experts", "--ep-size less --shared-expert-ranks =" if apart else "--ep-size"
        )
        width = self._columns(build)
        active = expected_distinct(self.experts, self.experts_per_token, tokens) / ranks
        stored = local + (1 if build.deployment.enable_redundant_experts else 0)
        fuse_activation = build.compile and scheme.quantizes_activation and self.kind == "gated"
        part = "moe.gate_up" if self.kind == "gated" else "moe.up"
        joint = self._grouped(
            build, x, rows, active, stored, (self.width, self.joint * width), part, scheme, fused=fuse_activation
        )
        if fuse_activation:
            activated = joint
        else:
            activated = quantize(build, self._activate(build, joint[0], width, scheme), scheme, "moe.activation")
        return self._grouped(build, activated, rows, active, stored, (width, self.width), "moe.down", scheme)[0]

    def _columns(self, build: Build) -> int:
        """Columns of an expert on one rank."""
        ranks, what = build.parallel.moe_tp, "columns of an expert"
        if build.deployment.moe_tp_size is None:
            return shard(self.intermediate, ranks, what, "A moe_tp of", instead="--ep-size")
        return shard(self.intermediate, ranks, what, "--moe-tp-size")

    def _activate(self, build: Build, x: Tensor, width: int, scheme: LinearScheme) -> Tensor:
        if self.kind == "gated":
            return gated_activation(build, x, width, "moe.activation", scheme)
        return plain_activation(build, x, "moe.activation")

    def _grouped(
        self,
        build: Build,
        x: tuple[Tensor, ...],
        rows: Quantity,
        active: Quantity,
        stored: int,
        shape: tuple[int, int],
        part: str,
        scheme: LinearScheme,
        *,
        fused: bool = False,
    ) -> tuple[Tensor, ...]:
        """One grouped product; ``fused`` with the gated activation and the quantisation of its result."""
        k, n = shape
        weights = [build.weight(part, (stored, k, n), scheme.weight_dtype)]
        weights.extend(scale_weights(build, part, k, n, scheme, copies=(stored,)))
        if self.expert_bias:
            weights.append(build.weight(f"{part}.bias", (stored, n)))
        outputs: tuple[Tensor, ...] = (build.activation(rows, n),)
        if fused:
            values = build.activation(rows, n // 2, dtype=scheme.activation_dtype)
            scales = ceil_div(n // 2, scheme.group_size) if scheme.group_size else 1.0
            outputs = (
                (values, build.activation(rows, scales, dtype=scheme.scale_dtype)) if scheme.dynamic else (values,)
            )
        name = "quant_grouped_matmul" if scheme.quantizes_activation else "grouped_matmul"
        build.emit(
            GroupedMatMul(
                name="grouped_matmul_swiglu_quant" if fused else name,
                part=part,
                inputs=(*x, *weights),
                outputs=outputs,
                matrix_dtype=scheme.compute_dtype or build.dtype,
                m=rows,
                k=k,
                n=n,
                groups=stored,
                active_groups=active,
                epilogue_flops=(SWIGLU_FLOPS + DYNAMIC_QUANT_FLOPS) * rows * n / 2 if fused else 0.0,
            )
        )
        return outputs

    @contextlib.contextmanager
    def _beside_shared(self, build: Build, x: Tensor, rows: Quantity, *, sharded: bool) -> Iterator[Tensor | None]:
        """Emit the shared experts, on a stream of their own under ``enable_multistream``; yields their output."""
        if not self.shared_intermediate:
            yield None
            return
        if not build.deployment.enable_multistream:
            yield self._shared(build, x, rows, sharded=sharded)
            return
        with build.graph.section():
            with build.graph.side_stream():
                shared = self._shared(build, x, rows, sharded=sharded)
            yield shared

    def _shared(self, build: Build, x: Tensor, rows: Quantity, *, sharded: bool) -> Tensor:
        """Shared experts: columns split over the TP group (a partial sum), or whole on this rank's own tokens."""
        ranks = build.tp if sharded else 1
        width = shard(self.shared_intermediate, ranks, "columns of the shared experts", "--tp-size")
        scheme = build.schemes.shared_experts
        part = "moe.shared_gate_up" if self.kind == "gated" else "moe.shared_up"
        joint = linear(build, x, k=self.hidden, n=self.joint * width, part=part, scheme=scheme)
        if self.kind == "gated":
            activated = gated_activation(build, joint, width, "moe.shared_activation", scheme)
        else:
            activated = plain_activation(build, joint, "moe.shared_activation")
        out = linear(build, activated, k=width, n=self.hidden, part="moe.shared_down", scheme=scheme)
        if not self.shared_gate:
            return out
        gate = linear(build, x, k=self.hidden, n=1, part="moe.shared_gate", scheme=UNQUANTIZED)
        gated = build.activation(rows, self.hidden)
        build.elementwise("sigmoid_mul", "moe.shared_gate", (out, gate), (gated,), flops_per_element=1.0)
        return gated

    def _add(self, build: Build, x: Tensor, shared: Tensor | None) -> Tensor:
        if shared is None:
            return x
        out = build.activation(*x.shape)
        build.elementwise("add", "moe.shared_add", (x, shared), (out,), flops_per_element=1.0)
        return out

    def _gather_own(self, build: Build, own: Tensor, rows: Quantity) -> Tensor:
        """All tokens of the TP group from each rank's own, unless the residual stream is split anyway."""
        if build.sequence_parallel:
            return own
        return build.communicate("all_gather", "moe.gather", own, build.tp_group, (rows, self.hidden))


def _fuse(ops: list[Op], x: Tensor, out: Tensor) -> Overlapped:
    """Dispatch, grouped products and combine as one kernel that hides communication under compute."""
    compute = tuple(op for op in ops if not isinstance(op, Collective))
    weights = tuple(t for op in compute for t in op.inputs if t.role == "weight")
    grouped = next(op for op in compute if not isinstance(op, Elementwise))
    return Overlapped(
        name="dispatch_ffn_combine",
        part="moe.experts",
        inputs=(x, *weights),
        outputs=(out,),
        matrix_dtype=grouped.matrix_dtype,
        compute=compute,
        collectives=tuple(op for op in ops if isinstance(op, Collective)),
    )
