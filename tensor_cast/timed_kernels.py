"""Timed kernels and what adds up over them: total, categories, rows of the report."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tensor_cast.ops import CATEGORIES, Category, GroupedMatMul, Op, Tensor
from tensor_cast.performance_model.error import Band, row_band, total_band, wrong_together
from tensor_cast.performance_model.roofline import BOUNDS, KernelTime
from tensor_cast.performance_model.timing import ANALYTIC, SOURCES, Source, Timing, source_names
from tensor_cast.quantity import Quantity


@dataclass(frozen=True, eq=False)
class KernelEstimate:
    """One kernel of one block: launched ``count`` times, each as ``timing`` says.

    ``layers`` are the indices of the decoder layers that the block stands for; empty for what is not a layer. ``gap_s``
    is the time without a kernel after a launch; ``held_gap_s`` is what its row holds of it: an analytic time reaches to
    the next launch, a measured one to the end of its kernel.
    """

    op: Op
    block: str
    count: Quantity
    stream: int
    section: int | None
    timing: Timing
    layers: tuple[int, ...] = ()
    gap_s: Quantity = 0.0

    @property
    def time(self) -> KernelTime:
        """Seconds of one launch and their parts."""
        return self.timing.time

    @property
    def held_gap_s(self) -> Quantity:
        """The part of ``gap_s`` that is in the kernel's row: all of it where the time is analytic, else nothing."""
        return np.where(np.equal(self.timing.codes, ANALYTIC), self.gap_s, 0.0)

    @property
    def source(self) -> str:
        """Where the time comes from."""
        return self.timing.source

    @property
    def band(self) -> Band:
        """Relative error that the time may have."""
        return Band(self.timing.error_low, self.timing.error_high)

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

    ``total_s`` holds the gaps that belong to the launches, which are ``parts_s["wait"]``.
    ``op`` is the first of them; in ``Estimate.ops_by_shape`` its tensors have the shapes of all. ``expected_error`` is
    relative, the mean of all launches by their time; in four cases of five the true time lies between ``error_low`` and
    ``error_high`` of it (relative, negative and positive). NaN where nothing is known.
    """

    name: str
    part: str
    category: Category
    count: Quantity
    total_s: Quantity
    share: Quantity
    bound: Quantity
    source: str
    flops: Quantity
    bytes: Quantity
    parts_s: dict[str, Quantity]
    op: Op
    expected_error: Quantity
    error_low: Quantity
    error_high: Quantity

    @property
    def average_s(self) -> Quantity:
        """Seconds of one launch; 0 where there is none."""
        return self.total_s / np.maximum(self.count, 1.0)

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
    count: Quantity
    bytes: Quantity
    group_size: int
    stride: int
    link: str
    total_s: Quantity
    fused: bool


@dataclass(frozen=True, eq=False)
class TimedKernels:
    """Kernels of one run, or of several one after another."""

    kernels: tuple[KernelEstimate, ...]

    @property
    def total_time_s(self) -> Quantity:
        """Seconds of the run: its kernels, and the gaps between their launches."""
        return self.device_time_s + self.gaps_s

    @cached_property
    def gaps_s(self) -> Quantity:
        """Seconds without a kernel after the launches: in the rows of analytic times, beside those of measured ones."""
        return sum((kernel.gap_s * kernel.count for kernel in self.kernels), start=0.0)

    @cached_property
    def device_time_s(self) -> Quantity:
        """Seconds of all kernels: those of one stream one after another, streams of a section at the same time."""
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
    def launches(self) -> Quantity:
        """Launches of all kernels."""
        return sum((kernel.count for kernel in self.kernels), start=0.0)

    @property
    def overlapped_s(self) -> Quantity:
        """Seconds that run hidden on a second stream: the sum of the rows less the total."""
        return sum((kernel.total_s for kernel in self.kernels), start=0.0) - self.device_time_s

    @cached_property
    def categories(self) -> dict[Category, Quantity]:
        """Seconds by category."""
        totals: dict[Category, Quantity] = dict.fromkeys(CATEGORIES, 0.0)
        for kernel in self.kernels:
            totals[kernel.category] = totals[kernel.category] + kernel.total_s + kernel.held_gap_s * kernel.count
        return totals

    @cached_property
    def error_band(self) -> Band:
        """Relative error that ``total_time_s`` may have, from those of its kernels; NaN where too little is known."""
        return total_band(self.error_parts)

    @property
    def error_parts(self) -> list[tuple[Band, Quantity]]:
        """Bands and seconds of kernels that are wrong together.

        Those are the launches of one kernel name in one part of the model, in whatever blocks, and the products of
        expert layers, which were measured as one.
        """
        parts: dict[Hashable, list[tuple[Band, Quantity]]] = {}
        for kernel in self.kernels:
            op = kernel.op
            key = GroupedMatMul if isinstance(op, GroupedMatMul) else (op.name, op.part)
            parts.setdefault(key, []).append((kernel.band, kernel.total_s))
        return [one for part in parts.values() for one in wrong_together(part)]

    @property
    def error_low(self) -> Quantity:
        """How much less than ``total_time_s`` the truth may be, relative: negative."""
        return self.error_band.low

    @property
    def error_high(self) -> Quantity:
        """How much more than ``total_time_s`` the truth may be, relative."""
        return self.error_band.high

    @cached_property
    def sources_s(self) -> dict[Source, Quantity]:
        """Seconds of all kernels by where their times come from; their sum counts overlapped kernels too."""
        return {
            source: sum(
                (np.where(np.equal(k.timing.codes, code), k.total_s, 0.0) for k in self.kernels), start=np.zeros(())
            )
            for code, source in enumerate(SOURCES)
        }

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
        busy: Quantity = sum((kernel.total_s for kernel in kernels), start=0.0)
        parts = {bound: sum((getattr(k.time, f"{bound}_s") * k.count for k in kernels), start=0.0) for bound in BOUNDS}
        bound = np.argmax(np.stack(np.broadcast_arrays(*parts.values())), axis=0)
        count: Quantity = sum((kernel.count for kernel in kernels), start=0)
        waiting: Quantity = sum((kernel.held_gap_s * kernel.count for kernel in kernels), start=0.0)
        parts["wait"] = parts["wait"] + waiting
        total = busy + waiting
        codes = np.concatenate([np.ravel(kernel.timing.codes) for kernel in kernels])
        band = row_band([(kernel.band, kernel.total_s) for kernel in kernels])
        errors: Quantity = sum((kernel.timing.expected_error * kernel.total_s for kernel in kernels), start=0.0)
        return OpEstimate(
            name=kernels[0].op.name,
            part=kernels[0].op.part,
            category=kernels[0].category,
            count=count,
            total_s=total,
            share=total / self.total_time_s,
            bound=bound,
            source=source_names(codes),
            flops=sum(((k.op.matrix_flops + k.op.vector_flops) * k.count for k in kernels), start=0.0),
            bytes=sum((k.op.bytes * k.count for k in kernels), start=0.0),
            parts_s=parts,
            op=kernels[0].op,
            expected_error=errors / np.where(np.greater(busy, 0.0), busy, 1.0),
            error_low=band.low,
            error_high=band.high,
        )


def _signature(tensors: Iterable[Tensor]) -> Hashable:
    """Shapes and dtypes, equal when all of the sweep's shapes are."""
    return tuple(
        (tuple(np.asarray(size, dtype=np.float64).tobytes() for size in tensor.shape), tensor.dtype)
        for tensor in tensors
    )
