"""Mixture of experts: the ways of sharing routed and shared experts out over ranks."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from tensor_cast.errors import ModelingError
from tensor_cast.layers.build import Build
from tensor_cast.layers.expert_load import expert_skew
from tensor_cast.layers.linear import gather_tokens, reduce_partial
from tensor_cast.layers.routed_experts import RoutedExperts
from tensor_cast.layers.shared_experts import SharedExperts, add_shared, beside
from tensor_cast.ops import Collective, Elementwise, Op, Overlapped, Tensor
from tensor_cast.parallelism import RankGroup
from tensor_cast.quantity import Quantity, ceil_div


@dataclass(frozen=True)
class MixtureOfExperts:
    """Routed experts, and shared ones that every token passes through beside them.

    The busiest expert-parallel rank has ``expert_skew`` times the mean to do.
    """

    routed: RoutedExperts
    shared: SharedExperts | None = None

    @property
    def hidden(self) -> int:
        """Channels of the residual stream."""
        return self.routed.hidden

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
        with beside(build, self.shared, x, sharded=True) as shared:
            partial = self._route_and_compute(build, x, x.shape[0])
        return reduce_partial(build, add_shared(build, partial, shared), "moe.combine")

    def _met(self, build: Build, x: Tensor) -> Tensor:
        """Expert columns are split over data-parallel ranks too: their tokens meet, and the sums are scattered back."""
        tp, rows, group = build.tp, x.shape[0], build.parallel.moe_group
        own_rows = ceil_div(rows, tp)
        with beside(build, self.shared, x, sharded=True) as shared:
            met_rows = rows * (group // tp)
            met = build.communicate(
                "all_gather", "moe.dispatch", x, RankGroup(group // tp, tp), (met_rows, self.hidden)
            )
            partial = self._route_and_compute(build, met, met_rows)
            own = build.communicate("reduce_scatter", "moe.combine", partial, RankGroup(group), (own_rows, self.hidden))
        if shared is not None:
            shared = build.communicate("reduce_scatter", "moe.shared", shared, build.tp_group, (own_rows, self.hidden))
        return self._gather_own(build, add_shared(build, own, shared), rows)

    def _sliced(self, build: Build, x: Tensor) -> Tensor:
        """Experts are replicated inside the TP group: each replica takes a share of the tokens."""
        tp, rows, group = build.tp, x.shape[0], build.parallel.moe_group
        own_rows = ceil_div(rows, tp // group)
        with beside(build, self.shared, x, sharded=True) as shared:
            partial = self._route_and_compute(build, x.view(own_rows, self.hidden), own_rows)
            own = build.communicate("all_reduce", "moe.combine", partial, RankGroup(group), partial.shape)
        whole = build.communicate("all_gather", "moe.combine", own, RankGroup(tp // group, group), (rows, self.hidden))
        if shared is not None:
            shared = build.communicate("all_reduce", "moe.shared", shared, build.tp_group, shared.shape)
        whole = add_shared(build, whole, shared)
        return whole.view(build.residual_tokens, self.hidden) if build.sequence_parallel else whole

    def _dispatched(self, build: Build, x: Tensor) -> Tensor:
        """Expert parallelism over data-parallel ranks: each token travels to its experts' ranks and back."""
        rows = build.tokens
        own_rows = ceil_div(rows, build.tp)
        sharded = build.deployment.enable_shared_expert_tp
        own = x if build.sequence_parallel else x.view(own_rows, self.hidden)
        everyone = gather_tokens(build, x, "moe.shared") if sharded and self.shared else own
        with beside(build, self.shared, everyone, sharded=sharded) as shared:
            weights = self.routed.gate(build, own)
            combined = self._exchange(build, self.routed.to_latent(build, own), own_rows, weights)
            combined = self.routed.from_latent(build, combined)
        if sharded and shared is not None:
            shared = build.communicate("reduce_scatter", "moe.shared", shared, build.tp_group, (own_rows, self.hidden))
        return self._gather_own(build, add_shared(build, combined, shared), rows)

    def _exchange(self, build: Build, own: Tensor, own_rows: Quantity, weights: Tensor) -> Tensor:
        """Dispatch, experts, combine; one fused kernel where the deployment asks for it.

        Each rank sends its tokens' copies; the busiest receives ``expert_skew`` times as many. A decode's dispatch
        quantises what it sends, before a prefill's all-to-all a kernel of its own does (vLLM-Ascend,
        ``vllm_ascend/ops/fused_moe/token_dispatcher.py``).
        """
        routed, moe_tp = self.routed, build.parallel.moe_tp
        copies = own_rows * routed.experts_per_token
        busiest = copies * expert_skew(build, routed.experts)
        fused = build.deployment.enable_dispatch_ffn_combine
        with contextlib.ExitStack() as stack:
            captured = stack.enter_context(build.graph.capture()) if fused else []
            sent = routed.permute(build, own, copies, in_one=build.decode or fused)
            received = self._all_to_all(build, tuple(t.view(busiest, *t.shape[1:]) for t in sent), "moe.dispatch")
            shapes = tuple((busiest * moe_tp, *t.shape[1:]) for t in received)
            met = build.communicate_together("all_gather", "moe.dispatch", received, RankGroup(moe_tp), shapes)
            out = self._compute_arrived(build, met, busiest * moe_tp, own_rows * build.parallel.moe_group)
            out = build.communicate("reduce_scatter", "moe.combine", out, RankGroup(moe_tp), (busiest, routed.width))
            (back,) = self._all_to_all(build, (out,), "moe.combine")
            combined = routed.unpermute(build, back.view(copies, routed.width), weights, own_rows)
        if fused:
            build.emit(_fuse(captured, own, combined))
        return combined

    def _compute_arrived(self, build: Build, x: tuple[Tensor, ...], rows: Quantity, tokens: Quantity) -> Tensor:
        """Local experts on rows that an all-to-all brought, in the order in which it did.

        A decode's dispatch writes rows by expert (CANN's ``MoeDistributeDispatch``, DeepEP's low-latency kernels). A
        prefill's all-to-all leaves them by sender: vLLM-Ascend and the DeepSeek-R1 recipe of cann-recipes-infer route a
        second time, unless a rank has a single expert.
        """
        if build.decode or build.parallel.ep >= self.routed.experts:
            return self.routed.forward(build, x, rows, tokens)
        by_expert = self.routed.sort_by_expert(build, x)
        return self.routed.sort_by_sender(build, self.routed.forward(build, by_expert, rows, tokens))

    def _on_own_ranks(self, build: Build, x: Tensor) -> Tensor:
        """Shared experts alone on some expert-parallel ranks, routed ones on the others, which run at the same time.

        A token is sent to one shared expert's rank too, as if it were one more of its experts.
        """
        plan, routed, shared = build.parallel, self.routed, self._shared_on_own_ranks(build)
        shared_ranks = build.deployment.shared_expert_ranks
        own_rows = ceil_div(build.tokens, build.tp)
        own = x if build.sequence_parallel else x.view(own_rows, self.hidden)
        weights = routed.gate(build, own)
        copies = own_rows * (routed.experts_per_token + 1)
        received = self._all_to_all(build, routed.permute(build, own, copies), "moe.dispatch")
        mean = own_rows * routed.experts_per_token * plan.ep / (plan.ep - shared_ranks)
        rows = mean * expert_skew(build, routed.experts)
        with build.graph.section():
            with build.graph.side_stream():
                shared.forward(build, own.view(own_rows * plan.ep / shared_ranks, self.hidden), sharded=False)
            received = tuple(t.view(rows, *t.shape[1:]) for t in received)
            out = routed.forward(build, received, rows, own_rows * plan.ep)
        (back,) = self._all_to_all(build, (out.view(copies, self.hidden),), "moe.combine")
        return self._gather_own(build, routed.unpermute(build, back, weights, own_rows), build.tokens)

    def _shared_on_own_ranks(self, build: Build) -> SharedExperts:
        """The shared experts, where they can have expert-parallel ranks of their own.

        Raises:
            ModelingError: the model has none that could, or the parallel sizes leave no such ranks.
        """
        plan, ranks = build.parallel, build.deployment.shared_expert_ranks
        if self.shared is None or self.routed.latent is not None:
            raise ModelingError(
                f"--shared-expert-ranks {ranks} needs shared experts that read hidden states as routed ones do, which "
                "the model has not."
            )
        if ranks >= plan.ep or plan.moe_tp > 1 or plan.ep <= build.tp:
            raise ModelingError(
                f"--shared-expert-ranks {ranks} are some of the expert-parallel ranks, whole experts on each: it needs "
                f"--ep-size over {max(ranks, build.tp)} and --moe-tp-size 1, got ep {plan.ep} and moe_tp {plan.moe_tp}."
            )
        return self.shared

    def _route_and_compute(self, build: Build, x: Tensor, rows: Quantity) -> Tensor:
        """Local experts on those of ``rows`` tokens that picked them, a token's results summed over local experts."""
        routed = self.routed
        weights = routed.gate(build, x)
        local_rows = rows * routed.experts_per_token / build.parallel.ep * expert_skew(build, routed.experts)
        permuted = routed.permute(build, routed.to_latent(build, x), local_rows)
        out = routed.forward(build, permuted, local_rows, rows)
        return routed.from_latent(build, routed.unpermute(build, out, weights, rows))

    def _all_to_all(self, build: Build, tensors: tuple[Tensor, ...], part: str) -> tuple[Tensor, ...]:
        """Rows to the expert-parallel ranks that they belong to.

        Scales travel beside their values (DeepEP's ``Buffer.dispatch``, CANN's ``MoeDistributeDispatch``).
        """
        group, shapes = RankGroup(build.parallel.ep, build.parallel.moe_tp), tuple(t.shape for t in tensors)
        return build.communicate_together("all_to_all", part, tensors, group, shapes)

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
