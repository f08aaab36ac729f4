"""What follows from a model's config alone: ``msmodeling models show``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tensor_cast.deployment import Deployment
from tensor_cast.layers.cache import LayerCache
from tensor_cast.models.decoder import build
from tensor_cast.models.parameters import (
    ONE_TOKEN,
    FlopsPerToken,
    ParameterCount,
    count_parameters,
    flops_per_token,
    layer_caches,
)
from tensor_cast.models.spec import ModelSpec
from tensor_cast.ops import Tensor


@dataclass(frozen=True)
class CacheFacts:
    """One kind of cache: ``layers`` layers have it, each keeps ``bytes_per_token`` for a kept token on one device."""

    kind: str
    layers: int
    window: int | None
    bytes_per_token: float

    @property
    def total_bytes_per_token(self) -> float:
        """Bytes of all layers."""
        return self.layers * self.bytes_per_token


@dataclass(frozen=True)
class ModelFacts:
    """Sizes in bytes, of the whole model unless a name says ``per_rank``; a sequence has ``context_length`` tokens.

    ``kv_bytes_per_token`` counts layers with a window too: it is what a token takes until the windows are full;
    ``kv_bytes_beyond_windows`` is what each takes from then on.
    """

    spec: ModelSpec
    dtype: str
    kv_dtype: str
    linear_scheme: str
    tp: int
    parameters: ParameterCount
    weight_bytes: float
    weight_bytes_per_rank: float
    caches: tuple[CacheFacts, ...]
    kv_bytes_per_token: float
    kv_bytes_per_token_per_rank: float
    kv_bytes_beyond_windows: float
    context_length: int | None
    kv_bytes_per_sequence: float | None
    state_bytes_per_sequence: float
    flops: FlopsPerToken
    dtype_given: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be known beside the figures."""
        assumed = self.spec.dtype_note
        return self.spec.notes if assumed is None or self.dtype_given else (*self.spec.notes, assumed)

    def to_dict(self) -> dict[str, Any]:
        """As ``models show --json`` prints it."""
        return {
            "name": self.spec.name,
            "model_type": self.spec.model_type,
            "family": self.spec.family,
            "origin": self.spec.origin,
            "layers": len(self.spec.layers),
            "dtype": self.dtype,
            "kv_cache_dtype": self.kv_dtype,
            "quantize_linear": self.linear_scheme,
            "tp_size": self.tp,
            "max_position_embeddings": self.spec.max_position_embeddings,
            "parameters": {"total": self.parameters.total, "active": self.parameters.active},
            "vision_encoder": {"parameters": self.parameters.vision, "in_total": self.parameters.vision_in_total},
            "checkpoint_quantization": self.spec.quantization,
            "weight_bytes": _whole(self.weight_bytes),
            "weight_bytes_per_rank": _whole(self.weight_bytes_per_rank),
            "kv_cache": {
                "bytes_per_token": _whole(self.kv_bytes_per_token),
                "bytes_per_token_per_rank": _whole(self.kv_bytes_per_token_per_rank),
                "bytes_per_token_beyond_windows": _whole(self.kv_bytes_beyond_windows),
                "context_length": self.context_length,
                "bytes_per_sequence": None
                if self.kv_bytes_per_sequence is None
                else _whole(self.kv_bytes_per_sequence),
            },
            "state_bytes_per_sequence": _whole(self.state_bytes_per_sequence),
            "flops_per_token": {
                "linear": _whole(self.flops.linear),
                "attention_per_context_token": _whole(self.flops.attention_per_context_token),
                "attention_per_context_token_beyond_windows": _whole(self.flops.attention_beyond_window),
            },
            "caches": [entry for cache, layers in layer_caches(self.spec) for entry in _entries(cache, layers)],
            "read_keys": list(self.spec.read_keys),
            "ignored_keys": list(self.spec.ignored_keys),
            "notes": list(self.notes),
            "parts": [
                {
                    "part": part.part,
                    "shape": list(part.shape),
                    "count": part.count,
                    "parameters": part.total,
                    "active": part.active,
                }
                for part in self.parameters.parts
            ],
        }


def model_facts(
    spec: ModelSpec, *, tp: int = 1, context_length: int | None = None, deployment: Deployment | None = None
) -> ModelFacts:
    """Facts of ``spec`` in the formats of ``deployment``, by default the checkpoint's own.

    Args:
        spec: the model.
        tp: tensor-parallel ranks that the ``per_rank`` figures are of.
        context_length: tokens of the sequence that ``kv_bytes_per_sequence`` is of.
        deployment: quantisation, dtype and block size; parallel sizes are not read.

    Raises:
        ModelingError: ``tp`` does not divide the model.
    """
    deployment = deployment or Deployment()
    kv_dtype = deployment.attention_dtype or deployment.dtype or spec.dtype
    caches = layer_caches(spec)
    sequence = None
    if context_length is not None:
        sequence = sum(
            n * float(c.bytes_per_sequence(context_length, kv_dtype, deployment.block_size)) for c, n in caches
        )
    found = tuple(fact for cache, layers in caches for fact in _cache_facts(cache, layers, kv_dtype))
    return ModelFacts(
        spec=spec,
        dtype=deployment.dtype or spec.dtype,
        kv_dtype=kv_dtype,
        linear_scheme=deployment.quantize_linear,
        tp=tp,
        parameters=count_parameters(spec),
        weight_bytes=_weight_bytes(spec, _on_ranks(deployment, 1)),
        weight_bytes_per_rank=_weight_bytes(spec, _on_ranks(deployment, tp)),
        caches=found,
        kv_bytes_per_token=_bytes_per_token(caches, kv_dtype),
        kv_bytes_per_token_per_rank=_bytes_per_token(layer_caches(spec, tp), kv_dtype),
        kv_bytes_beyond_windows=sum(fact.total_bytes_per_token for fact in found if fact.window is None),
        context_length=context_length,
        kv_bytes_per_sequence=sequence,
        state_bytes_per_sequence=sum(layers * cache.state_bytes for cache, layers in caches),
        flops=flops_per_token(spec),
        dtype_given=deployment.dtype is not None,
    )


def _on_ranks(deployment: Deployment, tp: int) -> Deployment:
    return replace(deployment, world_size=tp, tp_size=tp)


def _weight_bytes(spec: ModelSpec, deployment: Deployment) -> float:
    """Bytes of all weights on one rank, a vision encoder's included, a tied one once, drafting layers left out."""
    total = 0.0
    seen: dict[Tensor, None] = {}
    step = build(spec, ONE_TOKEN, deployment)
    for block in (*step.idle, *step.graph.blocks):
        for weight in block.weights():
            if weight not in seen:
                seen[weight] = None
                total += block.weight_copies * float(weight.bytes)
    return total


def _bytes_per_token(caches: list[tuple[LayerCache, int]], dtype: str) -> float:
    return sum(layers * cache.bytes_per_token(dtype) for cache, layers in caches)


def _cache_facts(cache: LayerCache, layers: int, dtype: str) -> Iterator[CacheFacts]:
    alone = replace(cache, beside=())
    if alone.elements_per_token:
        yield CacheFacts(cache.kind, layers, cache.window, alone.bytes_per_token(dtype))
    for further in cache.beside:
        yield from _cache_facts(further, layers, dtype)


def _entries(cache: LayerCache, layers: int) -> Iterator[dict[str, Any]]:
    """What ``layers`` layers keep each, with how it comes about."""
    if cache.formula:
        yield {
            "kind": cache.kind,
            "layers": layers,
            "formula": cache.formula,
            "elements_per_entry": _whole(cache.elements_per_token),
            "tokens_per_entry": cache.tokens_per_entry,
            "window": cache.window,
            "state_bytes": _whole(cache.state_bytes),
        }
    for further in cache.beside:
        yield from _entries(further, layers)


def _whole(value: float) -> float | int:
    return int(value) if float(value).is_integer() else float(value)
