"""What is to be said of a request beside its figures: what it goes beyond, what is assumed, what changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tensor_cast.deployment import Deployment
from tensor_cast.models.decoder import DecoderStep
from tensor_cast.models.spec import ModelSpec
from tensor_cast.performance_model.engine import Engine
from tensor_cast.workload import TextWorkload


def cautions(
    spec: ModelSpec, workload: TextWorkload, deployment: Deployment, step: DecoderStep, engine: Engine | None
) -> list[str]:
    """Sentences about a built step, what is assumed of its experts first, then the model's own."""
    return [
        *_of_experts(deployment, step, engine),
        *_of_model(spec, workload, deployment),
        *_of_drafting(workload),
        *spec.notes,
        *_of_engine(engine, workload),
        *(f"Without effect: {name}, as {reason}." for name, reason in _idle_options(spec, deployment, step)),
    ]


def _of_experts(deployment: Deployment, step: DecoderStep, engine: Engine | None) -> Iterator[str]:
    if deployment.expert_skew is not None or step.expert_skew <= 1.0 or engine is None:
        return
    ranks, skew = step.parallel.ep, f"{step.expert_skew:.2f}"
    if engine.sources["expert_spread"].startswith("assumed"):
        yield (
            f"The busiest of {ranks} expert-parallel ranks is taken to have {skew} times the mean to do, as "
            f"vllm-ascend was seen to leave experts, which is assumed of {engine.name} too; "
            "--expert-skew says how even yours are."
        )
    else:
        yield (
            f"The busiest of {ranks} expert-parallel ranks is taken to have {skew} times the mean to do, as "
            f"{engine.name} was seen to leave experts; --expert-skew says how even yours are."
        )


def _of_model(spec: ModelSpec, workload: TextWorkload, deployment: Deployment) -> Iterator[str]:
    longest = float(np.max(workload.sequence_length))
    limit = spec.max_position_embeddings
    if limit is not None and longest > limit:
        yield (
            f"{longest:,.0f} tokens a sequence are more than the {limit:,} that {spec.name} is made for "
            "(max_position_embeddings)."
        )
    if spec.ignored_keys:
        yield f"Config keys that the family {spec.family} does not know, ignored: {', '.join(spec.ignored_keys)}."
    if spec.dtype_note is not None and deployment.dtype is None:
        yield spec.dtype_note
    if spec.quantization and deployment.quantize_linear == "DISABLED":
        yield f"The checkpoint is quantised ({spec.quantization}), but linear layers are priced unquantised, as asked."


def _of_drafting(workload: TextWorkload) -> Iterator[str]:
    drafted = workload.drafted_tokens
    if not drafted:
        if workload.decode and np.any(np.greater(workload.query_length, 1)):
            most = float(np.max(workload.query_length))
            yield (
                f"Nothing drafts the {most:,.0f} tokens a query that the decode step verifies: all of them count as "
                "accepted, an upper bound of its throughput (num_mtp_tokens or num_draft_tokens draft them)."
            )
        return
    if not workload.mtp_acceptance_rate and workload.acceptance_length is None:
        yield (
            "No acceptance rate is given for the drafted tokens: one token a query is counted each step, a lower bound."
        )
    if np.any(np.not_equal(workload.query_length, drafted + 1)):
        yield (
            f"A step that drafts {drafted} tokens verifies {drafted + 1} a query, but query_length is not "
            f"{drafted + 1}: as many tokens as it says are computed, and no more than that are accepted."
        )


def _of_engine(engine: Engine | None, workload: TextWorkload) -> Iterator[str]:
    """Figures of the engine that the step rests on and that nobody measured."""
    if engine is None:
        return
    used = {"step_s": "a step"} if workload.decode else {"step_s": "a step", "request_s": "a request"}
    assumed = [
        f"{per} ({engine.sources[name]})" for name, per in used.items() if engine.sources[name].startswith("assumed")
    ]
    if assumed:
        yield f"Not measured: {engine.name}'s own time {' and '.join(assumed)}."


def _idle_options(spec: ModelSpec, deployment: Deployment, step: DecoderStep) -> Iterator[tuple[str, str]]:
    """Options that were given and that this model or scheme has no use for, each with the reason."""
    parts = {node.op.part for _, node in step.graph.nodes()}
    schemes = {deployment.quantize_linear.upper(), (deployment.quantize_non_expert_linear or "").upper()}
    if deployment.mxfp4_group_size != 32 and "MXFP4" not in schemes:
        yield "mxfp4_group_size", "no layer is quantised to MXFP4 by a scheme"
    if deployment.quantize_lmhead and deployment.head_scheme.name == "DISABLED":
        yield "quantize_lmhead", "the scheme of linear layers other than experts leaves the output head unquantised"
    if deployment.quantize_non_expert_linear is not None and not spec.has_experts:
        yield "the scheme of routed experts", "the model has none"
    if deployment.vision_tp_size is not None and spec.vision is None:
        yield "vision_tp_size", "no vision encoder of the model is modelled"
    if deployment.mlp_tp_size is not None and not any(part.startswith("mlp.") for part in parts):
        yield "mlp_tp_size", "the model has no dense MLP"
    if deployment.enable_shared_expert_tp and not any(part.startswith("moe.shared") for part in parts):
        yield "enable_shared_expert_tp", "the model has no shared experts"
    if (deployment.expert_skew or 1.0) > 1.0 and step.parallel.ep == 1:
        yield "expert_skew", "one expert-parallel rank has all experts"
    if deployment.enable_multistream and not any(node.stream for _, node in step.graph.nodes()):
        yield "enable_multistream", "no kernel of the model may run beside another: it has no shared experts"
