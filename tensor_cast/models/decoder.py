"""ModelSpec + workload + deployment -> Graph: the whole forward step of a decoder-only model, read top to bottom."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tensor_cast.deployment import Deployment
from tensor_cast.errors import ModelingError
from tensor_cast.graph import Block, Graph
from tensor_cast.layers.build import Build
from tensor_cast.layers.expert_load import expert_skew
from tensor_cast.layers.linear import linear
from tensor_cast.layers.moe import MixtureOfExperts
from tensor_cast.layers.norm import add_rms_norm, rms_norm
from tensor_cast.layers.schemes import ModuleSchemes
from tensor_cast.models.images import add_deepstack, encode_images, with_image_tokens
from tensor_cast.models.spec import ModelSpec
from tensor_cast.ops import Tensor
from tensor_cast.parallelism import Parallelism, RankGroup
from tensor_cast.quantity import Quantity, ceil_div
from tensor_cast.workload import TextWorkload


@dataclass(frozen=True)
class DecoderStep:
    """A built step: the kernels of one micro-batch on its way through all pipeline stages.

    ``queries`` are the sequences of one data-parallel rank over all ``micro_batches``. ``idle`` are blocks that stay in
    memory although this step does not run them: a vision encoder in a step without images. The busiest expert-parallel
    rank has ``expert_skew`` times the mean to do.
    """

    graph: Graph
    parallel: Parallelism
    dtype: str
    queries: Quantity
    micro_batches: Quantity
    idle: tuple[Block, ...] = ()
    expert_skew: float = 1.0


def build(
    spec: ModelSpec, workload: TextWorkload, deployment: Deployment, *, expert_spread: float = 0.0
) -> DecoderStep:
    """The kernels of one step on one rank, the busiest where work does not divide.

    Tokens of an expert vary by ``expert_spread`` (standard deviation over mean) unless the deployment says how uneven
    expert-parallel ranks are.

    Raises:
        ModelingError: the parallel sizes do not fit the model.
    """
    parallel = deployment.parallelism(has_experts=spec.has_experts)
    if parallel.pp > len(spec.layers):
        raise ModelingError(f"--pp-size {parallel.pp} is more than the {len(spec.layers)} layers of {spec.name}.")
    if deployment.uses_checkpoint:
        spec = spec.as_checkpoint()
    workload = with_image_tokens(spec, workload)
    dtype = deployment.dtype or spec.dtype
    queries = ceil_div(workload.num_queries, parallel.dp)
    micro_batches = np.minimum(queries, parallel.pp)
    b = Build(
        graph=Graph(),
        deployment=deployment,
        parallel=parallel,
        dtype=dtype,
        queries=ceil_div(queries, micro_batches),
        query_length=workload.computed_query_length,
        cached_length=workload.cached_length,
        decode=workload.decode,
        expert_spread=expert_spread,
    )
    b.schemes = step_schemes(spec, deployment)
    idle = encode_images(spec, workload, b)
    with b.graph.block("embedding", place="first"):
        x = residual = _embed(spec, b)
    for layer, indices in spec.layer_kinds.items():
        name = block_name(indices)
        with b.graph.block(name, count=len(indices), layers=indices), b.scope(name):
            x, residual = layer.forward(b, x, residual)
    add_deepstack(spec, workload, b, x)
    if parallel.pp > 1:
        with b.graph.block("pipeline", count=parallel.pp - 1, place="between"):
            _hand_on(b, x, residual)
    with b.graph.block("head"), b.scope("head"):
        x = _final_norm(spec, b, x, residual, "final_norm")
        if b.sequence_parallel:
            x = b.communicate("all_gather", "lm_head", x, b.tp_group, (b.tokens, spec.hidden))
        spec.vocabulary.logits(b, x, last_only=not b.decode)
    if workload.num_mtp_tokens:
        _draft(spec, b, x, workload.num_mtp_tokens)
    if workload.num_draft_tokens:
        _draft_model(spec, b, workload.num_draft_tokens)
    blocks = (layer.feed_forward for layer in spec.layer_kinds)
    experts = (block.routed.experts for block in blocks if isinstance(block, MixtureOfExperts))
    skew = max((expert_skew(b, count) for count in experts), default=1.0)
    return DecoderStep(b.graph, parallel, dtype, queries, micro_batches, idle, skew)


def _hand_on(b: Build, *tensors: Tensor) -> None:
    """To the next pipeline stage: each tensor-parallel rank sends its share, and the group there gathers the whole.

    Source: ``GroupCoordinator.send_tensor_dict`` of vLLM and SGLang.
    """
    for whole in dict.fromkeys(tensors):
        rows, width = whole.shape
        share = whole if b.sequence_parallel else whole.view(rows, width / b.tp)
        sent = b.communicate("p2p", "pipeline", share, RankGroup(2, b.parallel.stage), share.shape)
        if not b.sequence_parallel:
            b.communicate("all_gather", "pipeline", sent, b.tp_group, whole.shape)


def block_name(indices: tuple[int, ...]) -> str:
    """What the block of these layers is called: its first and last layer."""
    return f"layers.{indices[0]}" if len(indices) == 1 else f"layers.{indices[0]}-{indices[-1]}"


def _draft_model(spec: ModelSpec, b: Build, drafts: int) -> None:
    """Speculative decoding with a smaller model (Leviathan et al., arXiv 2211.17192).

    ``drafts`` decode steps of it, one token each, on the same ranks; all steps share its weights.
    """
    if spec.draft is None:
        raise ModelingError(f"num_draft_tokens {drafts} needs a draft model beside {spec.name} (--draft-model).")
    draft = spec.draft
    step = b.of_another_model(
        b.deployment.dtype or draft.dtype, query_length=1.0, cached_length=b.cached_length + b.query_length
    )
    if b.deployment.uses_checkpoint and draft.checkpoint is not None:
        draft = draft.as_checkpoint()
        step.schemes = step_schemes(draft, b.deployment)
    with b.graph.block("draft.embedding", count=drafts, weight_copies=1, part="draft"):
        x = residual = _embed(draft, step)
    for layer, indices in draft.layer_kinds.items():
        name, count = f"draft.{block_name(indices)}", len(indices)
        with b.graph.block(name, count=drafts * count, weight_copies=count, part="draft"), step.scope(name):
            x, residual = layer.forward(step, x, residual)
    with b.graph.block("draft.head", count=drafts, weight_copies=1, part="draft"), step.scope("draft.head"):
        x = _final_norm(draft, step, x, residual, "final_norm")
        if step.sequence_parallel:
            x = step.communicate("all_gather", "lm_head", x, step.tp_group, (step.tokens, draft.hidden))
        draft.vocabulary.logits(step, x, last_only=False)


def step_schemes(spec: ModelSpec, deployment: Deployment) -> ModuleSchemes:
    """Quantisation outside of layers: the output head's, and the default of layers without one of their own."""
    schemes = ModuleSchemes.of(deployment)
    if not deployment.uses_checkpoint or spec.checkpoint is None:
        return schemes
    return replace(schemes, head=spec.checkpoint.head())


def _embed(spec: ModelSpec, b: Build) -> Tensor:
    x = spec.vocabulary.embed(b)
    return x if spec.hyper is None else spec.hyper.expand(b, x)


def _final_norm(spec: ModelSpec, b: Build, x: Tensor, residual: Tensor, part: str) -> Tensor:
    """The hidden state that the head reads: of several residual streams, their weighted sum."""
    if spec.hyper is not None:
        return rms_norm(b, spec.hyper.head(b, x), part, width=spec.hidden)
    return add_rms_norm(b, x, residual, part, width=spec.hidden, kind=spec.norm)[0]


def _draft(spec: ModelSpec, b: Build, hidden: Tensor, drafts: int) -> None:
    """Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): one module pass a drafted token.

    The first pass takes all tokens that the step verified and drafts after the last of them (as vLLM's proposer samples
    at the last accepted token of each sequence), each later one takes the token drafted before.
    """
    if spec.mtp_layer is None:
        raise ModelingError(f"--num-mtp-tokens {drafts} is given, but {spec.name} has no multi-token-prediction layer.")
    passes = [("mtp.first", 1, b, True)]
    if drafts > 1:
        passes.append(("mtp.next", drafts - 1, b.with_query_length(1.0, b.cached_length + b.query_length), False))
    for name, count, step, last_only in passes:
        copies = min(spec.mtp_modules, drafts)
        with step.graph.block(name, count=count, weight_copies=copies, part="mtp"), step.scope("mtp"):
            x = _mtp_module(spec, step, hidden.view(step.residual_tokens, spec.hidden))
            spec.vocabulary.logits(step, x, last_only=last_only)


def _mtp_module(spec: ModelSpec, b: Build, hidden: Tensor) -> Tensor:
    """(tokens, hidden) of the main model -> the hidden states that the head drafts from."""
    assert spec.mtp_layer is not None
    embedded = rms_norm(b, spec.vocabulary.embed(b), "embedding_norm", width=spec.hidden)
    normed = rms_norm(b, hidden, "hidden_norm", width=spec.hidden)
    joint = b.activation(normed.shape[0], 2 * spec.hidden)
    b.elementwise("concat", "concat", (embedded, normed), (joint,), flops_per_element=0.0)
    scheme = b.schemes.mlp
    x = linear(b, joint, k=2 * spec.hidden, n=spec.hidden, part="projection", scheme=scheme)
    if spec.hyper is not None:
        x = spec.hyper.expand(b, x)
    x, residual = spec.mtp_layer.forward(b, x, x)
    x = _final_norm(spec, b, x, residual, "final_norm")
    if b.sequence_parallel:
        x = b.communicate("all_gather", "lm_head", x, b.tp_group, (b.tokens, spec.hidden))
    return x
