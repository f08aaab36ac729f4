"""How wrong a time may be: residuals of the rows that a kernel's costs were fitted on, carried to kernels and totals.

A band is a pair of relative errors: in four cases of five the true time lies between ``(1 + low)`` and ``(1 + high)``
times the predicted one. ``residuals.yaml`` holds the tenth and ninetieth percentile of measured over predicted time by
device family, kernel class (and dtype) and length of the kernel; ``docs/accuracy.md`` counts how often rows that were
not fitted fall inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.ops import Collective, GroupedMatMul, MatMul, Op, Overlapped
from tensor_cast.performance_model.roofline import cost_key, kernel_class
from tensor_cast.performance_model.timing import ANALYTIC, Timing
from tensor_cast.quantity import Quantity

DATA = Path(__file__).with_name("residuals.yaml")
# A class with fewer fitted rows than this has no percentiles worth the name.
FEWEST_ROWS = 8
# Of measured, interpolated and extrapolated times: 1.28 times the median deviation from run to run of the packaged A3
# rows, and the tenth and ninetieth percentile of measured over predicted when each of them is left out and predicted.
SOURCE_BANDS = ((-0.06, 0.06), (-0.15, 0.14), (-0.14, 0.28))


@dataclass(frozen=True)
class Band:
    """Relative errors, the lower one usually negative; NaN where nothing is known."""

    low: Quantity
    high: Quantity


UNKNOWN = Band(float("nan"), float("nan"))


@dataclass(frozen=True)
class Limits:
    """A band as the file has it."""

    low: float
    high: float


@dataclass(frozen=True)
class Group:
    """Residuals of one class of kernels of a family: limits of short and of long kernels, and what was measured."""

    rows: int
    short: Limits
    long: Limits
    shortest_s: float
    longest_s: float


@dataclass(frozen=True)
class Residuals:
    """All groups by family and class, and how they carry over.

    ``heirs`` take over the costs of another family, and its bands ``widening`` times as wide, as do devices of a family
    that are not among ``measured``. ``correlation`` is that of the errors of different rows of one step. ``unmeasured``
    is the band of kernels without a group in a total, if they are less than half of it.
    """

    split_s: float
    correlation: float
    widening: float
    unmeasured: Limits
    heirs: dict[str, str]
    measured: dict[str, tuple[str, ...]]
    groups: dict[str, dict[str, Group]]


@cache
def residuals() -> Residuals:
    """The packaged residuals."""
    import msgspec

    from tensor_cast.devices.yaml_document import read_yaml

    return msgspec.convert(read_yaml(DATA).value, Residuals)


def class_of(op: Op, device: DeviceProfile) -> str:
    """The row of a device's costs that prices ``op``, as residuals are grouped: ``matmul``, ``matmul_fp8``, ..."""
    if isinstance(op, Collective):
        return "collective"
    return cost_key(main_part(op), device)


def main_part(op: Op) -> Op:
    """The op itself, or the part of a fused kernel that most of its work is: a product, if it has one."""
    if not isinstance(op, Overlapped):
        return op
    return next((part for part in op.compute if isinstance(part, MatMul | GroupedMatMul)), op.compute[0])


def error_band(op: Op, timing: Timing, device: DeviceProfile) -> tuple[Quantity, Quantity]:
    """Errors below and above of ``timing``: of its group for analytic points, of their source for the others."""
    band = _analytic_band(op, timing.time.total_s, device)
    analytic = np.equal(timing.codes, ANALYTIC)
    if np.all(analytic):
        return band.low, band.high
    of_source = np.asarray(SOURCE_BANDS)[np.where(analytic, 0, timing.codes)]
    return np.where(analytic, band.low, of_source[..., 0]), np.where(analytic, band.high, of_source[..., 1])


def _analytic_band(op: Op, seconds: Quantity, device: DeviceProfile) -> Band:
    group, widening = _group(op, device)
    if group is None:
        return UNKNOWN
    short = np.less(seconds, residuals().split_s)
    return Band(
        np.where(short, group.short.low, group.long.low) * widening,
        np.where(short, group.short.high, group.long.high) * widening,
    )


def _group(op: Op, device: DeviceProfile) -> tuple[Group | None, float]:
    known = residuals()
    family = known.heirs.get(device.family, device.family)
    name = measured_class(op, device)
    group = known.groups.get(family, {}).get(name)
    if group is None or group.rows < FEWEST_ROWS:
        return None, 1.0
    wider = (name != class_of(op, device)) + (device.name not in known.measured.get(family, ()))
    return group, known.widening**wider


def measured_class(op: Op, device: DeviceProfile) -> str:
    """The class whose residuals ``op`` has: its own; of products with weights of another format, that of their own.

    Those were not measured alone: they are at least as far off.
    """
    name, op = class_of(op, device), main_part(op)
    known = residuals()
    groups = known.groups.get(known.heirs.get(device.family, device.family), {})
    if name in groups or not isinstance(op, MatMul | GroupedMatMul):
        return name
    of_other_weights = name.startswith(f"{kernel_class(op)}_{op.matrix_dtype}_")
    return device.kernel_key(kernel_class(op), op.matrix_dtype) if of_other_weights else name


def unmeasured_band() -> Band:
    """What is taken of a part of a total that nothing, or little, is known of."""
    limits = residuals().unmeasured
    return Band(limits.low, limits.high)


def row_band(parts: Sequence[tuple[Band, Quantity]]) -> Band:
    """Band of launches of one kernel name, whose errors are the same: the mean by time."""
    total: Quantity = sum((seconds for _, seconds in parts), start=0.0)
    low: Quantity = sum((band.low * seconds for band, seconds in parts), start=0.0)
    high: Quantity = sum((band.high * seconds for band, seconds in parts), start=0.0)
    # A row of a sweep may not run at all at some points.
    whole = np.where(np.greater(total, 0.0), total, 1.0)
    return Band(np.divide(low, whole), np.divide(high, whole))


def wrong_together(parts: Sequence[tuple[Band, Quantity]]) -> list[tuple[Band, Quantity]]:
    """Kernels whose errors are the same, as one part of a total, and beside it those of which nothing is known."""
    known: list[tuple[Band, Quantity]] = []
    seconds_known: Quantity = 0.0
    seconds_unknown: Quantity = 0.0
    for band, seconds in parts:
        unknown = np.isnan(band.low)
        here = np.where(unknown, 0.0, seconds)
        known.append((Band(np.where(unknown, 0.0, band.low), np.where(unknown, 0.0, band.high)), here))
        seconds_known = seconds_known + here
        seconds_unknown = seconds_unknown + np.where(unknown, seconds, 0.0)
    found = [(row_band(known), seconds_known)]
    return [*found, (UNKNOWN, seconds_unknown)] if np.any(seconds_unknown) else found


def total_band(parts: Iterable[tuple[Band, Quantity]]) -> Band:
    """Band of a sum of kernels.

    With half-widths ``h_i`` in seconds and a correlation ``r`` between any two, the half-width of the sum is
    ``sqrt(r (sum h_i)^2 + (1 - r) sum h_i^2)``. NaN where kernels that nothing is known of take half of the time.
    """
    known = residuals()
    total, missing = _Sums(), _Sums()
    for band, seconds in parts:
        unknown = np.isnan(band.low)
        total.add(
            seconds,
            np.where(unknown, known.unmeasured.low, band.low) * seconds,
            np.where(unknown, known.unmeasured.high, band.high) * seconds,
        )
        missing.add(np.where(unknown, seconds, 0.0))
    enough = np.less(missing.seconds, 0.5 * total.seconds)
    low, high = total.widths(known.correlation)
    with np.errstate(invalid="ignore", divide="ignore"):
        return Band(
            np.where(enough, -np.divide(low, total.seconds), np.nan),
            np.where(enough, np.divide(high, total.seconds), np.nan),
        )


class _Sums:
    """Sums of seconds and of half-widths, plain and squared."""

    def __init__(self) -> None:
        self.seconds: Quantity = 0.0
        self._low: Quantity = 0.0
        self._high: Quantity = 0.0
        self._low_squared: Quantity = 0.0
        self._high_squared: Quantity = 0.0

    def add(self, seconds: Quantity, low: Quantity = 0.0, high: Quantity = 0.0) -> None:
        self.seconds = self.seconds + seconds
        self._low, self._high = self._low + low, self._high + high
        self._low_squared, self._high_squared = self._low_squared + low * low, self._high_squared + high * high

    def widths(self, correlation: float) -> tuple[Quantity, Quantity]:
        independent = 1.0 - correlation
        return (
            np.sqrt(correlation * self._low * self._low + independent * self._low_squared),
            np.sqrt(correlation * self._high * self._high + independent * self._high_squared),
        )


def to_plain(value: Residuals) -> dict[str, Any]:
    """The document that loads as ``value``."""
    import msgspec

    plain = msgspec.to_builtins(value)
    assert isinstance(plain, dict)
    return plain
