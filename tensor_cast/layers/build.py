"""What a layer needs while it writes its kernels: the graph, the deployment and this step's tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tensor_cast.deployment import Deployment
from tensor_cast.errors import ModelingError
from tensor_cast.graph import Graph
from tensor_cast.layers.schemes import ModuleSchemes
from tensor_cast.ops import Collective, CollectiveKind, Elementwise, Op, Tensor, total_bytes
from tensor_cast.parallelism import Parallelism, RankGroup
from tensor_cast.quantity import Quantity, ceil_div

# Kernels whose every element of the output depends on the same element of the operands alone.
FLAT = frozenset(
    {
        *("add", "scale_add", "gate_add", "cache_add", "mul", "sigmoid_mul", "silu", "gelu", "activation", "softcap"),
        *("guidance", "solver_step", "cache_store"),
    }
)


@dataclass(kw_only=True)
class KernelWriter(ABC):
    """Emits kernels into ``graph`` and makes each weight once; the part of a build that every kind of model shares.

    ``quantized`` has the quantised form of activations that a kernel has written one of, by tensor and scheme.
    """

    graph: Graph
    dtype: str
    _weights: dict[tuple[str, str], Tensor] = field(default_factory=dict)
    quantized: dict[tuple[Tensor, str], tuple[Tensor, ...]] = field(default_factory=dict)
    _scope: str = ""

    @property
    @abstractmethod
    def compile(self) -> bool:
        """Whether kernels are fused."""

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Weights named inside are shared by all uses of the same scope."""
        outer, self._scope = self._scope, name
        try:
            yield
        finally:
            self._scope = outer

    def emit(self, op: Op) -> None:
        """Append a kernel."""
        self.graph.emit(op)

    def weight(self, part: str, shape: tuple[Quantity, ...], dtype: str | None = None) -> Tensor:
        """The weight called ``part`` of the open scope, made at its first use."""
        key = (self._scope, part)
        if key not in self._weights:
            self._weights[key] = Tensor(shape, dtype or self.dtype, "weight", part)
        return self._weights[key]

    def activation(self, *shape: Quantity, dtype: str | None = None) -> Tensor:
        """A new activation."""
        return Tensor(shape, dtype or self.dtype)

    def elementwise(
        self,
        name: str,
        part: str,
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        *,
        flops_per_element: float,
        elements: Quantity | None = None,
    ) -> None:
        """Emit a vector kernel of ``flops_per_element`` on each element of its first input (or on ``elements``)."""
        count = inputs[0].elements if elements is None else elements
        flops = flops_per_element * count
        self.emit(Elementwise(name=name, part=part, inputs=inputs, outputs=outputs, flops=flops, flat=name in FLAT))

    def communicate(
        self, kind: CollectiveKind, part: str, x: Tensor, group: RankGroup, shape: tuple[Quantity, ...]
    ) -> Tensor:
        """Emit a collective on ``x`` that leaves this rank with a tensor of ``shape``; on a group of one, nothing."""
        return self.communicate_together(kind, part, (x,), group, (shape,))[0]

    def communicate_together(
        self,
        kind: CollectiveKind,
        part: str,
        tensors: tuple[Tensor, ...],
        group: RankGroup,
        shapes: tuple[tuple[Quantity, ...], ...],
    ) -> tuple[Tensor, ...]:
        """The same of several tensors, which travel in one message."""
        if group.size == 1:
            return tensors
        # Engines reduce in place; the other collectives fill a buffer of their own.
        outputs = tuple(
            x.view(*shape) if kind == "all_reduce" else Tensor(shape, x.dtype)
            for x, shape in zip(tensors, shapes, strict=True)
        )
        self.emit(
            Collective(
                name=kind,
                part=part,
                kind=kind,
                inputs=tensors,
                outputs=outputs,
                message_bytes=total_bytes(outputs if kind == "all_gather" else tensors),
                group_size=group.size,
                stride=group.stride,
            )
        )
        return outputs


@dataclass(kw_only=True)
class Build(KernelWriter):
    """One rank's view of one step.

    ``queries`` sequences, each with ``query_length`` new tokens after ``cached_length`` tokens that the KV cache
    already holds, are what this rank's tensor-parallel group works on; all three may be arrays. Tokens of an expert
    vary by ``expert_spread`` of their mean, where the deployment does not say how uneven they are.
    """

    deployment: Deployment
    parallel: Parallelism
    queries: Quantity
    query_length: Quantity
    cached_length: Quantity
    decode: bool
    expert_spread: float = 0.0
    schemes: ModuleSchemes = field(init=False)

    def __post_init__(self) -> None:
        self.schemes = ModuleSchemes.of(self.deployment)

    @contextmanager
    def using(self, schemes: ModuleSchemes | None) -> Iterator[None]:
        """Kernels inside are quantised by ``schemes``; ``None`` changes nothing."""
        outer, self.schemes = self.schemes, schemes or self.schemes
        try:
            yield
        finally:
            self.schemes = outer

    @property
    def tokens(self) -> Quantity:
        """New tokens of the tensor-parallel group."""
        return self.queries * self.query_length

    @property
    def compile(self) -> bool:
        return self.deployment.compile

    @property
    def tp(self) -> int:
        """Ranks that share attention heads."""
        return self.parallel.tp

    @property
    def tp_group(self) -> RankGroup:
        """The tensor-parallel ranks."""
        return RankGroup(self.parallel.tp, 1)

    @property
    def sequence_parallel(self) -> bool:
        """Whether residuals hold a share of the tokens."""
        return self.deployment.enable_sequence_parallel and self.tp > 1

    @property
    def residual_tokens(self) -> Quantity:
        """Tokens of the residual stream on this rank."""
        return ceil_div(self.tokens, self.tp) if self.sequence_parallel else self.tokens

    def with_query_length(self, query_length: Quantity, cached_length: Quantity) -> Build:
        """The same build for other tokens a sequence; weights and graph stay shared."""
        other = replace(self, query_length=query_length, cached_length=cached_length)
        other.schemes = self.schemes
        return other

    def of_another_model(self, dtype: str, *, query_length: Quantity, cached_length: Quantity) -> Build:
        """A build of a model beside this one: the same graph, ranks and sequences, weights of its own."""
        return replace(
            self, dtype=dtype, query_length=query_length, cached_length=cached_length, _weights={}, quantized={}
        )


def shard(total: int, ranks: int, what: str, flag: str, *, instead: str = "") -> int:
    """``total`` split over ``ranks``, which ``flag`` says; where other sizes do, ``instead`` is a flag that would help.

    Raises:
        ModelingError: it does not divide.
    """
    share, rest = divmod(total, ranks)
    if rest and instead:
        raise ModelingError(
            f"{flag} {ranks}, which follows from the sizes given, does not divide the {total} {what}: give {instead}."
        )
    if rest:
        raise ModelingError(f"{flag} {ranks} does not divide the {total} {what}.")
    return share


def shard_or_replicate(total: int, ranks: int, what: str, flag: str) -> int:
    """``total`` heads split over ``ranks``; with fewer heads than ranks, one each, on several ranks.

    Raises:
        ModelingError: neither divides the other.
    """
    if total >= ranks:
        return shard(total, ranks, what, flag)
    if ranks % total:
        raise ModelingError(f"{flag} {ranks} is not a multiple of the {total} {what}, which it must replicate evenly.")
    return 1
