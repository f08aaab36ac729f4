"""Which measured kernels are which predicted ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Literal, TypeAlias

from tensor_cast.evaluation.explain.kernel_families import family
from tensor_cast.evaluation.explain.steps import MeasuredStep
from tensor_cast.evaluation.kernel_rows import KernelRow, Shape
from tensor_cast.ops import Category

Verdict = Literal["as predicted", "slower", "faster", "more calls", "fewer calls", "not predicted", "not measured"]
SizeKey: TypeAlias = "tuple[int, ...]"

AGREES = 0.1
"""A kernel within this of its prediction is as predicted."""
_MICROSECOND = 1e-6
_BY_SHAPES_ALONE = ("matmul", "convolution")


@dataclass
class _Side:
    calls: float = 0.0
    total_s: float = 0.0
    names: dict[str, None] = field(default_factory=dict)
    shapes: str = ""

    def add(self, calls: float, total_s: float, name: str, shapes: str) -> None:
        self.calls += calls
        self.total_s += total_s
        self.names.setdefault(name)
        self.shapes = self.shapes or shapes


@dataclass(frozen=True)
class KernelMatch:
    """Kernels of one family and one size on both sides; a side without them has no calls."""

    family: str
    category: Category
    shapes: str
    measured_names: tuple[str, ...]
    predicted_names: tuple[str, ...]
    measured_calls: float
    measured_s: float
    predicted_calls: float
    predicted_s: float

    @property
    def difference_s(self) -> float:
        """What was measured more than predicted."""
        return self.measured_s - self.predicted_s

    @property
    def calls_difference_s(self) -> float:
        """The part that missing and extra calls make, at the predicted (or else the measured) time of a call."""
        if not self.predicted_calls:
            return self.difference_s
        return (self.measured_calls - self.predicted_calls) * self.predicted_s / self.predicted_calls

    @property
    def time_difference_s(self) -> float:
        """The part that the time of a call makes."""
        return self.difference_s - self.calls_difference_s

    @property
    def verdict(self) -> Verdict:
        """What to say of it first."""
        if not self.predicted_calls:
            return "not predicted"
        if not self.measured_calls:
            return "not measured"
        if abs(self.calls_difference_s) > abs(self.time_difference_s):
            return "more calls" if self.measured_calls > self.predicted_calls else "fewer calls"
        if abs(self.time_difference_s) <= AGREES * self.predicted_s:
            return "as predicted"
        return "slower" if self.time_difference_s > 0.0 else "faster"


def match_kernels(step: MeasuredStep, predicted: Iterable[KernelRow]) -> list[KernelMatch]:
    """Every family and size of either side, the greatest difference first.

    Sizes are compared by numbers of elements, since a library reports the same operands in several layouts: of a
    matmul both operands and the result, of attention the queries, of other kernels the largest input and the first
    output. Collectives, whose shapes no profiler reports, are compared as a whole.
    """
    sides: dict[tuple[str, Category, SizeKey], tuple[_Side, _Side]] = {}
    for kernel in step.kernels:
        key = (kernel.family, kernel.category, _size_key(kernel.family, kernel.category, kernel.inputs, kernel.outputs))
        measured, _ = sides.setdefault(key, (_Side(), _Side()))
        seconds = kernel.duration_us * _MICROSECOND / step.repeats
        measured.add(1.0 / step.repeats, seconds, kernel.type, _text(kernel.inputs, kernel.outputs))
    for row in predicted:
        known, category = family(row.name)
        if row.category in ("Comm", "FlashAttention"):
            category = row.category
        key = (known, category, _size_key(known, category, row.inputs, row.outputs))
        _, other = sides.setdefault(key, (_Side(), _Side()))
        other.add(row.count, row.total_s, f"{row.name} ({row.part})", _text(row.inputs, row.outputs))
    matches = [
        KernelMatch(
            family=known,
            category=category,
            shapes=measured.shapes or other.shapes,
            measured_names=tuple(measured.names),
            predicted_names=tuple(other.names),
            measured_calls=measured.calls,
            measured_s=measured.total_s,
            predicted_calls=other.calls,
            predicted_s=other.total_s,
        )
        for (known, category, _), (measured, other) in sides.items()
    ]
    return sorted(matches, key=lambda match: -abs(match.difference_s))


def _size_key(known: str, category: Category, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> SizeKey:
    if category == "Comm":
        return ()
    sizes = [prod(shape) for shape in inputs if shape]
    written = prod(outputs[0]) if outputs and outputs[0] else 0
    if known == "attention":
        return tuple(sizes[:1])
    if known in _BY_SHAPES_ALONE:
        return (*sorted(sizes[:2]), written)
    return (max(sizes, default=0), written)


def _text(inputs: Sequence[Shape], outputs: Sequence[Shape]) -> str:
    """``4096x1024, 1024x6144 -> 4096x6144``; empty where shapes are not known."""
    if not inputs and not outputs:
        return ""
    return f"{_shapes(inputs)} -> {_shapes(outputs[:1])}"


def _shapes(shapes: Sequence[Shape]) -> str:
    shown = [shape for shape in shapes if shape][:3]
    return ", ".join("x".join(map(str, shape)) for shape in shown) or "scalar"
