"""The one result: plain data, of which table, JSON, trace and pages are views."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tensor_cast.deployment import Deployment, Parallelism
from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.memory import MemoryEstimate
from tensor_cast.models.spec import ModelSpec
from tensor_cast.ops import CATEGORIES, Category, Op, Tensor
from tensor_cast.performance_model.roofline import BOUNDS, KernelTime
from tensor_cast.quantity import Quantity
from tensor_cast.workload import TextWorkload


@dataclass(frozen=True, eq=False)
class KernelEstimate:
    """One kernel of one block: launched ``count`` times, ``time`` each.

    ``layers`` are the indices of the decoder layers that the block stands for; empty for what is not a layer.
    """

    op: Op
    block: str
    count: int
    stream: int
    section: int | None
    time: KernelTime
    source: str
    layers: tuple[int, ...] = ()

    @property
    def category(self) -> Category:
        """Category of the report; waiting for other pipeline stages counts as communication."""
        return "Comm" if self.op.name == "pipeline_wait" else self.op.category

    @property
    def total_s(self) -> Quantity:
        """Seconds of all launches."""
        return self.time.total_s * self.count


@dataclass(frozen=True, eq=False)
class OpEstimate:
    """A row of the report: all launches of one kernel name in one part of the model.

    ``op`` is the first of them; in ``Estimate.ops_by_shape`` its tensors have the shapes of all.
    """

    name: str
    part: str
    category: Category
    count: int
    total_s: Quantity
    share: Quantity
    bound: Quantity
    source: str
    flops: Quantity
    bytes: Quantity
    parts_s: dict[str, Quantity]
    op: Op

    @property
    def average_s(self) -> Quantity:
        """Seconds of one launch."""
        return self.total_s / self.count

    @property
    def bound_name(self) -> Any:
        """``bound`` in words: a string, or nested lists of them."""
        names = np.asarray(BOUNDS)[np.asarray(self.bound, dtype=int)]
        return str(names) if np.ndim(names) == 0 else names.tolist()


@dataclass(frozen=True, eq=False)
class CollectiveEstimate:
    """A collective of one block: ``bytes`` of one call; ``fused`` ones run inside another kernel."""

    name: str
    part: str
    count: int
    bytes: Quantity
    group_size: int
    stride: int
    link: str
    total_s: Quantity
    fused: bool


@dataclass(frozen=True, eq=False)
class Estimate:
    """Time and memory of one step. Every figure is a float, or an array of the workload's broadcast shape."""

    model: ModelSpec
    device: DeviceProfile
    workload: TextWorkload
    deployment: Deployment
    parallel: Parallelism
    dtype: str
    parameters_total: int
    parameters_active: int
    kernels: tuple[KernelEstimate, ...]
    collectives: tuple[CollectiveEstimate, ...]
    memory: MemoryEstimate
    warnings: tuple[str, ...] = ()

    @cached_property
    def total_time_s(self) -> Quantity:
        """Seconds of the step: kernels of one stream one after another, streams of a section at the same time."""
        total: Quantity = 0.0
        sections: dict[tuple[str, int], dict[int, Quantity]] = {}
        for kernel in self.kernels:
            if kernel.section is None:
                total = total + kernel.total_s
            else:
                streams = sections.setdefault((kernel.block, kernel.section), {})
                streams[kernel.stream] = streams.get(kernel.stream, 0.0) + kernel.total_s
        for streams in sections.values():
            longest: Quantity = 0.0
            for seconds in streams.values():
                longest = np.maximum(longest, seconds)
            total = total + longest
        return total

    @property
    def overlapped_s(self) -> Quantity:
        """Seconds that run hidden on a second stream: the sum of the rows less the total."""
        return sum((kernel.total_s for kernel in self.kernels), start=0.0) - self.total_time_s

    @property
    def tokens(self) -> Quantity:
        """Tokens that the step yields over the whole deployment."""
        return self.workload.num_queries * self.workload.tokens_per_sequence

    @property
    def tokens_per_s_per_device(self) -> Quantity:
        """Throughput of one device, all devices of the deployment counted."""
        return self.tokens / self.total_time_s / self.parallel.world

    @property
    def ttft_s(self) -> Quantity | None:
        """Time to first token, without queueing; ``None`` for a decode."""
        return None if self.workload.decode else self.total_time_s

    @property
    def tpot_s(self) -> Quantity | None:
        """Time per output token of one sequence; ``None`` for a prefill."""
        return self.total_time_s / self.workload.tokens_per_sequence if self.workload.decode else None

    @property
    def fits(self) -> Quantity:
        """Whether the fullest device holds it."""
        return self.memory.fits

    @cached_property
    def categories(self) -> dict[Category, Quantity]:
        """Seconds by category."""
        totals: dict[Category, Quantity] = dict.fromkeys(CATEGORIES, 0.0)
        for kernel in self.kernels:
            totals[kernel.category] = totals[kernel.category] + kernel.total_s
        return totals

    @cached_property
    def ops(self) -> tuple[OpEstimate, ...]:
        """Kernels by name and part of the model, in order of first launch."""
        return self._rows(lambda op: (op.name, op.part))

    @cached_property
    def ops_by_shape(self) -> tuple[OpEstimate, ...]:
        """Kernels by name, part, and shapes and dtypes of inputs and outputs, in order of first launch."""
        return self._rows(lambda op: (op.name, op.part, _signature(op.inputs), _signature(op.outputs)))

    def _rows(self, key: Callable[[Op], Hashable]) -> tuple[OpEstimate, ...]:
        rows: dict[Hashable, list[KernelEstimate]] = {}
        for kernel in self.kernels:
            rows.setdefault(key(kernel.op), []).append(kernel)
        return tuple(self._row(kernels) for kernels in rows.values())

    def _row(self, kernels: list[KernelEstimate]) -> OpEstimate:
        total: Quantity = sum((kernel.total_s for kernel in kernels), start=0.0)
        parts = {bound: sum((getattr(k.time, f"{bound}_s") * k.count for k in kernels), start=0.0) for bound in BOUNDS}
        sources = dict.fromkeys(kernel.source for kernel in kernels)
        return OpEstimate(
            name=kernels[0].op.name,
            part=kernels[0].op.part,
            category=kernels[0].category,
            count=sum(kernel.count for kernel in kernels),
            total_s=total,
            share=total / self.total_time_s,
            bound=np.argmax(np.stack(np.broadcast_arrays(*parts.values())), axis=0),
            source=" + ".join(sources),
            flops=sum(((k.op.matrix_flops + k.op.vector_flops) * k.count for k in kernels), start=0.0),
            bytes=sum((k.op.bytes * k.count for k in kernels), start=0.0),
            parts_s=parts,
            op=kernels[0].op,
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON takes it; ``docs/json.md`` describes every key."""
        from tensor_cast.estimate_json import estimate_to_dict

        return estimate_to_dict(self)


def _signature(tensors: Iterable[Tensor]) -> Hashable:
    """Shapes and dtypes, equal when all of the sweep's shapes are."""
    return tuple((tuple(np.asarray(size, dtype=np.float64).tobytes() for size in tensor.shape), tensor.dtype) for tensor in tensors)


__all__ = ["CollectiveEstimate", "Estimate", "KernelEstimate", "OpEstimate"]
