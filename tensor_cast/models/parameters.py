"""What follows from a model's structure alone: parameters, cache bytes, FLOPs a token.

All of it is read off the graph of one token on one device, so that it cannot differ from what is priced.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensor_cast.deployment import Deployment
from tensor_cast.layers.cache import LayerCache
from tensor_cast.layers.vision import is_encoder
from tensor_cast.models.decoder import build
from tensor_cast.models.spec import ModelSpec
from tensor_cast.ops import GroupedMatMul, MatMul, Tensor
from tensor_cast.workload import TextWorkload

ONE_TOKEN = TextWorkload(num_queries=1, query_length=1, context_length=1, decode=True)


@dataclass(frozen=True)
class PartCount:
    """Parameters of one part of the model: ``count`` copies of a weight of ``shape``.

    ``vision`` parts belong to the encoder, which no text token uses.
    """

    part: str
    shape: tuple[int, ...]
    count: int
    active_share: float
    vision: bool = False

    @property
    def total(self) -> int:
        """Parameters in all copies."""
        total = self.count
        for dimension in self.shape:
            total *= dimension
        return total

    @property
    def active(self) -> int:
        """Parameters that one text token uses: none of an encoder's."""
        return 0 if self.vision else round(self.total * self.active_share)


@dataclass(frozen=True)
class ParameterCount:
    """Parameters by part. A tied head counts once; MTP modules and router correction biases are left out.

    ``vision_in_total`` follows the model's reference class: Qwen3-VL's published count includes the encoder,
    Qwen3.5's is the language model's.
    """

    parts: tuple[PartCount, ...]
    vision_in_total: bool = False

    @property
    def total(self) -> int:
        """All parameters of the reference class."""
        return self.language_model + (self.vision if self.vision_in_total else 0)

    @property
    def language_model(self) -> int:
        """Parameters without a vision encoder."""
        return sum(part.total for part in self.parts if not part.vision)

    @property
    def vision(self) -> int:
        """Parameters of the vision encoder and its projector."""
        return sum(part.total for part in self.parts if part.vision)

    @property
    def active(self) -> int:
        """Parameters that one text token uses, embedding and head included."""
        return sum(part.active for part in self.parts)


def count_parameters(spec: ModelSpec) -> ParameterCount:
    """Parameters of ``spec`` by part, in order of use."""
    parts = []
    seen: dict[Tensor, None] = {}
    step = build(spec, ONE_TOKEN, Deployment())
    for block in (*step.idle, *step.graph.blocks):
        vision = is_encoder(block.name)
        for node in block.nodes:
            for weight in node.op.inputs:
                if weight.role != "weight" or weight in seen:
                    continue
                seen[weight] = None
                share = 1.0
                if isinstance(node.op, GroupedMatMul):
                    share = float(node.op.active_groups / node.op.groups)
                name = weight.name if vision or block.name in ("embedding", "head") else f"{block.name}.{weight.name}"
                shape = tuple(int(dimension) for dimension in weight.shape)
                parts.append(PartCount(name, shape, block.weight_copies, share, vision))
    return ParameterCount(tuple(parts), spec.vision_in_total)


@dataclass(frozen=True)
class FlopsPerToken:
    """Matrix FLOPs of one token.

    ``linear`` are those of all linear layers, the head included and the embedding look-up not.
    ``attention_per_context_token`` are score and value FLOPs for each token of context that all layers see;
    ``attention_beyond_window`` the part of it that is done for tokens beyond every window: by layers without one, by
    indexers that score all tokens, on compressed entries of them.
    """

    linear: float
    attention_per_context_token: float
    attention_beyond_window: float


def flops_per_token(spec: ModelSpec) -> FlopsPerToken:
    """Matrix FLOPs of one token through ``spec``."""
    linear = 0.0
    for block, node in build(spec, ONE_TOKEN, Deployment()).graph.nodes():
        if isinstance(node.op, MatMul | GroupedMatMul):
            linear += block.count * float(node.op.matrix_flops)
    everywhere = sum(layer.flops_per_context_token() for layer in spec.layers)
    unlimited = sum(layer.flops_beyond_window() for layer in spec.layers)
    return FlopsPerToken(linear, everywhere, unlimited)


def layer_caches(spec: ModelSpec, tp: int = 1) -> list[tuple[LayerCache, int]]:
    """Distinct caches of the model on one rank, each with the number of layers that have it."""
    caches: dict[LayerCache, int] = {}
    for layer in spec.layers:
        cache = layer.cache(tp)
        caches[cache] = caches.get(cache, 0) + 1
    return list(caches.items())
