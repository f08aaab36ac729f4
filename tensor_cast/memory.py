"""Memory of the fullest rank: weights, KV cache, recurrent state, activations, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensor_cast.deployment import Deployment
from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.layers.vision import is_encoder
from tensor_cast.models.decoder import DecoderStep
from tensor_cast.models.images import with_image_tokens
from tensor_cast.models.spec import ModelSpec
from tensor_cast.models.stages import Stage, pipeline_stages
from tensor_cast.ops import Tensor
from tensor_cast.quantity import Quantity
from tensor_cast.workload import TextWorkload


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on the fullest rank. ``available_bytes`` is what is left, negative when it does not fit.

    ``encoder_weights_bytes`` is the part of ``weights_bytes`` that is a vision encoder's.
    """

    weights_bytes: Quantity
    kv_cache_bytes: Quantity
    state_bytes: Quantity
    activation_bytes: Quantity
    reserved_bytes: float
    device_bytes: float
    encoder_weights_bytes: Quantity = 0.0

    @property
    def used_bytes(self) -> Quantity:
        """All of it."""
        return self.weights_bytes + self.kv_cache_bytes + self.state_bytes + self.activation_bytes + self.reserved_bytes

    @property
    def available_bytes(self) -> Quantity:
        """What the device has left."""
        return self.device_bytes - self.used_bytes

    @property
    def fits(self) -> Quantity:
        """Whether it fits: a bool, or an array of them."""
        return np.greater_equal(self.available_bytes, 0.0)


def text_memory(
    spec: ModelSpec,
    step: DecoderStep,
    workload: TextWorkload,
    deployment: Deployment,
    device: DeviceProfile,
    *,
    reserved_bytes: float = 0.0,
) -> MemoryEstimate:
    """Memory of the fullest rank of a deployment: the pipeline stage with the largest sum of weights and caches."""
    if deployment.uses_checkpoint:
        spec = spec.as_checkpoint()
    workload = with_image_tokens(spec, workload)
    shared_apart = deployment.shared_expert_ranks > 0
    stages = pipeline_stages(len(spec.layers), step.parallel.pp)
    weights = [_stage_weights(step, stage, shared_apart=shared_apart) for stage in stages]
    kv, state = zip(*(_stage_cache(spec, step, workload, deployment, stage) for stage in stages), strict=True)
    totals = np.stack(np.broadcast_arrays(*(w + k + s for w, k, s in zip(weights, kv, state, strict=True))))
    fullest = np.argmax(totals, axis=0)
    encoder = [_encoder_weights(step) if stage.first else 0.0 for stage in stages]
    return MemoryEstimate(
        weights_bytes=_pick(weights, fullest),
        kv_cache_bytes=_pick(kv, fullest),
        state_bytes=_pick(state, fullest),
        activation_bytes=step.graph.peak_activation_bytes(),
        reserved_bytes=reserved_bytes,
        device_bytes=device.memory_bytes,
        encoder_weights_bytes=_pick(encoder, fullest),
    )


def _encoder_weights(step: DecoderStep) -> Quantity:
    """Weight bytes of a vision encoder on one rank, whether this step runs it or not."""
    total: Quantity = 0.0
    for block in (*step.graph.blocks, *step.idle):
        if is_encoder(block.name):
            total = total + block.weight_copies * sum((w.bytes for w in block.weights()), start=0.0)
    return total


def _pick(values: list[Quantity] | tuple[Quantity, ...], index: np.ndarray) -> Quantity:
    if len(values) == 1:
        return values[0]
    stacked = np.stack(np.broadcast_arrays(*values, np.zeros(index.shape))[:-1])
    picked = np.take_along_axis(stacked, index[np.newaxis], axis=0)[0]
    return float(picked) if picked.ndim == 0 else picked


def _stage_weights(step: DecoderStep, stage: Stage, *, shared_apart: bool) -> Quantity:
    """Weight bytes of one rank of a stage: its layers, embedding and encoder first, head and drafting last."""
    seen: dict[Tensor, None] = {}
    total: Quantity = 0.0
    for block in (*step.graph.blocks, *step.idle):
        copies = stage.weight_copies(block)
        if not copies:
            continue
        for weight in block.weights():
            # A rank of routed experts, the fuller kind, holds no shared ones where these have ranks of their own.
            elsewhere = shared_apart and weight.name.startswith("moe.shared")
            if weight not in seen and not elsewhere:
                seen[weight] = None
                total = total + copies * weight.bytes
    return total


def _stage_cache(
    spec: ModelSpec, step: DecoderStep, workload: TextWorkload, deployment: Deployment, stage: Stage
) -> tuple[Quantity, Quantity]:
    """KV cache and state bytes of one rank of a stage, for all sequences of its data-parallel share.

    A speculative step keeps a recurrent state behind each token, to go on from the last that is accepted
    (github.com/vllm-project/vllm/pull/49887 on what vLLM does).
    """
    dtype = deployment.attention_dtype or step.dtype
    kinds = [(layer, stage.layers_among(indices)) for layer, indices in spec.layer_kinds.items()]
    if stage.last and spec.mtp_layer is not None and workload.num_mtp_tokens:
        kinds.append((spec.mtp_layer, min(spec.mtp_modules, workload.num_mtp_tokens)))
    if stage.last and spec.draft is not None and workload.num_draft_tokens:
        kinds.extend((layer, len(indices)) for layer, indices in spec.draft.layer_kinds.items())
    kv: Quantity = 0.0
    state: Quantity = 0.0
    for layer, count in kinds:
        cache = layer.cache(step.parallel.tp, step.parallel.dcp)
        per_sequence = cache.bytes_per_sequence(workload.sequence_length, dtype, deployment.block_size)
        kv = kv + count * step.queries * per_sequence
        snapshots = 1 + workload.drafted_tokens if cache.kind == "state" else 1
        state = state + count * step.queries * cache.state_bytes * snapshots
    return kv, state
