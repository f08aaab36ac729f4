"""Structures that models ask for: the simulator is run at every deployment, and its launches are collected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from tensor_cast.deployment import Deployment
from tensor_cast.errors import ModelingError
from tensor_cast.graph import Block
from tensor_cast.models import ModelSpec, load_spec
from tensor_cast.models.decoder import build
from tensor_cast.ops import Attention, Collective, Op, Overlapped
from tensor_cast.performance_model.profiling_database.kernel_table import forms
from tensor_cast.performance_model.profiling_database.kernels import Launch
from tensor_cast.performance_model.profiling_database.kernels_attention import SPARSE_ATTENTION
from tensor_cast.performance_model.profiling_database.kernels_vector import (
    MASKED_FILL,
    PAD,
    SCATTER_UPDATE,
    SLICE,
    SOFTMAX,
    SORT,
    TENSOR_MOVE,
    TRANSPOSE,
)
from tensor_cast.quantization import LINEAR_SCHEMES
from tensor_cast.workload import TextWorkload
from tools.perf_data_collection.grid_generator.candidates import Structure

PARALLEL_SIZES = (1, 2, 4, 8, 16, 32, 64)
LARGEST_TP = 16
SCHEMES = ("DISABLED", "W8A8_DYNAMIC", "W8A8_STATIC")
"""Quantisations whose kernels databases of Ascend hold."""
_WORKLOADS = (
    TextWorkload(num_queries=64, query_length=1, context_length=4096, decode=True),
    TextWorkload(num_queries=64, query_length=64),
)
_VOCABULARY_KERNELS = (SOFTMAX, SORT, MASKED_FILL)
_HIDDEN_KERNELS = (SCATTER_UPDATE, SLICE, PAD, MASKED_FILL)


@dataclass(frozen=True)
class Need:
    """An op of a model: it is covered once all structures of one of its ``ways`` have rows."""

    name: str
    ways: tuple[tuple[Structure, ...], ...]


@dataclass(frozen=True)
class ModelNeeds:
    """What one model needs at every deployment that divides it; ``unknown`` ops have no kernel that is known."""

    model: str
    needs: tuple[Need, ...]
    unknown: tuple[str, ...]
    beside: tuple[Structure, ...]

    @property
    def structures(self) -> list[Structure]:
        """All structures of all ways, and those that serving adds beside the model's own kernels, each once."""
        needed = (structure for need in self.needs for way in need.ways for structure in way)
        return list(dict.fromkeys([*needed, *self.beside]))


def model_needs(model: str) -> ModelNeeds:
    """Run the simulator on a model, by catalog id, path or hub id, at every parallel size that divides it.

    Raises:
        ModelingError: the model is not found, or no deployment fits it.
    """
    spec = load_spec(model)
    needs: dict[Need, None] = {}
    unknown: dict[str, None] = {}
    refusal: ModelingError | None = None
    for deployment, workload in product(deployments(spec), _WORKLOADS):
        try:
            step = build(spec, workload, deployment)
        except ModelingError as error:
            refusal = error
            continue
        for block in step.graph.blocks:
            for op in _ops(block):
                need = _need(op, block)
                if need is None:
                    unknown.setdefault(op.name)
                else:
                    needs.setdefault(need)
    if not needs:
        raise refusal or ModelingError(f"{spec.name} has no kernels that are known.")
    return ModelNeeds(spec.name, tuple(needs), tuple(unknown), tuple(_beside(spec)))


def deployments(spec: ModelSpec) -> Iterator[Deployment]:
    """Every tensor- and expert-parallel size, quantised and not, compiled and eager; not all fit the model."""
    for scheme, compiled, tp in product(SCHEMES, (True, False), PARALLEL_SIZES):
        if tp > LARGEST_TP:
            continue
        experts = [size for size in PARALLEL_SIZES if size >= tp] if spec.has_experts else [tp]
        for world in experts:
            yield Deployment(
                world_size=world,
                tp_size=tp,
                ep_size=world if spec.has_experts else None,
                quantize_linear=scheme,
                compile=compiled,
            )
            if spec.has_experts and compiled and world > tp and LINEAR_SCHEMES[scheme].quantizes_activation:
                yield Deployment(
                    world_size=world,
                    tp_size=tp,
                    ep_size=world,
                    quantize_linear=scheme,
                    compile=True,
                    enable_dispatch_ffn_combine=True,
                )


def _ops(block: Block) -> Iterator[Op]:
    for node in block.nodes:
        if not isinstance(node.op, Collective):
            yield node.op


def _need(op: Op, block: Block) -> Need | None:
    ways = tuple(tuple(_structure(launch, block) for launch in form) for form in forms(op))
    if not ways and isinstance(op, Attention):
        sparse = _sparse(op, block)
        ways = () if sparse is None else ((sparse,),)
    if not ways:
        return None if not isinstance(op, Overlapped) else Need(op.name, ())
    return Need(op.name, ways)


def _structure(launch: Launch, block: Block) -> Structure:
    widths = tuple(float(np.mean(launch.coordinates[name])) for name in launch.kernel.widths)
    named = {operand.dtype for layout in launch.kernel.layouts for operand in layout.operands}
    dtypes = ((name, dtype) for name, dtype in sorted(launch.dtypes.items()) if name in named)
    return Structure(launch.kernel, widths, tuple(dtypes), _hints(block))


def _hints(block: Block) -> tuple[tuple[str, float], ...]:
    """The width of a head, where a layout splits a row into heads and the op does not say how."""
    for node in block.nodes:
        op = node.op
        if isinstance(op, Attention) and op.name == "flash_attention" and op.v_dim == op.qk_dim:
            return (("head_dim", float(op.v_dim)),)
    return ()


def _sparse(op: Attention, block: Block) -> Structure | None:
    """Attention over chosen tokens: latent attention in a layer that has an indexer."""
    chosen = [node.op.outputs[0] for node in block.nodes if node.op.name == "lightning_indexer"]
    if not chosen or op.qk_dim <= op.v_dim:
        return None
    widths = (op.heads, op.v_dim, op.qk_dim - op.v_dim, float(np.mean(chosen[0].shape[-1])))
    return Structure(SPARSE_ATTENTION, tuple(map(float, widths)), (("x", op.matrix_dtype),))


def _beside(spec: ModelSpec) -> Iterable[Structure]:
    """Kernels that engines launch around the model: sampling over the vocabulary, copies and masks of hidden states."""
    vocabulary, hidden = float(spec.vocabulary.size), float(spec.hidden)
    for kernel in _VOCABULARY_KERNELS:
        yield Structure(kernel, (vocabulary,), (("x", "float32"),))
    for kernel in _HIDDEN_KERNELS:
        yield Structure(kernel, (hidden,), (("x", "bfloat16"),))
    yield Structure(TENSOR_MOVE, (1.0, hidden), (("x", "bfloat16"),))
    for size in PARALLEL_SIZES:
        heads = _latent_heads(spec, size)
        if heads:
            yield Structure(TRANSPOSE, (heads, 512.0), (("x", "bfloat16"),))


def _latent_heads(spec: ModelSpec, tp: int) -> float:
    from tensor_cast.layers.mla import LatentAttention

    layers = [layer.attention for layer in spec.layers if isinstance(layer.attention, LatentAttention)]
    heads = layers[0].heads if layers and layers[0].kv_lora_rank == 512 else 0
    return heads / tp if heads % tp == 0 else 0.0
