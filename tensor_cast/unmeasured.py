"""What measurements do not tell about a run: kernels that no database has, and work beyond all that was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.performance_model.error import FEWEST_ROWS, class_of, residuals
from tensor_cast.performance_model.profiling_database.coverage import REPLAYED_KERNELS
from tensor_cast.performance_model.timing import MEASURED
from tensor_cast.timed_kernels import KernelEstimate

# Share of the time that warnings of a class start at.
NOTABLE_SHARE = 0.1


@dataclass(frozen=True)
class UnmeasuredKernel:
    """Launches of one op whose times are not measured: seconds of them, the mean over a sweep's points.

    ``kernel_types`` are what a measurement would be of; empty where no kernel of the device is known for the op.
    """

    name: str
    part: str
    kernel_types: tuple[str, ...]
    source: str
    seconds: float
    share: float


def unmeasured_kernels(kernels: Iterable[KernelEstimate]) -> list[UnmeasuredKernel]:
    """Ops with launches that are not measured, by name and part of the model, the heaviest first."""
    every = list(kernels)
    total = sum(float(np.mean(kernel.total_s)) for kernel in every)
    rows: dict[tuple[str, str], list[KernelEstimate]] = {}
    for kernel in every:
        if np.any(np.not_equal(kernel.timing.codes, MEASURED)):
            rows.setdefault((kernel.op.name, kernel.op.part), []).append(kernel)
    found = [_unmeasured(same, total) for same in rows.values()]
    return sorted(found, key=lambda row: -row.seconds)


def kernels_to_measure(rows: Iterable[UnmeasuredKernel]) -> list[str]:
    """Kernel types of ``rows`` that can be replayed, each once, in their order: ``--ops`` of ``start_microbench.py``.

    Collectives are measured by a tool of their own.
    """
    named = dict.fromkeys(kernel_type for row in rows for kernel_type in row.kernel_types)
    return [kernel_type for kernel_type in named if kernel_type in REPLAYED_KERNELS]


def _unmeasured(kernels: list[KernelEstimate], total: float) -> UnmeasuredKernel:
    seconds = sum(
        float(np.mean(np.where(np.equal(kernel.timing.codes, MEASURED), 0.0, kernel.total_s))) for kernel in kernels
    )
    return UnmeasuredKernel(
        name=kernels[0].op.name,
        part=kernels[0].op.part,
        kernel_types=kernels[0].timing.kernel_types,
        source=" + ".join(dict.fromkeys(kernel.source for kernel in kernels)),
        seconds=seconds,
        share=seconds / total if total else 0.0,
    )


def beyond_measurements(kernels: Sequence[KernelEstimate], device: DeviceProfile) -> list[str]:
    """Warnings of what a request asks beyond all measurements: classes, devices and sizes, with the nearest measured.

    Only classes that take a notable share of the time are named. The device of round figures, which is no product, has
    nothing to be measured.
    """
    if device.family == "test":
        return []
    known = residuals()
    family = known.heirs.get(device.family, device.family)
    total = float(np.max(sum((kernel.total_s for kernel in kernels), start=0.0)))
    shares: dict[str, float] = {}
    longest: dict[str, float] = {}
    for kernel in kernels:
        if kernel.source != "analytic" or not kernel.op.inputs:
            continue
        name = class_of(kernel.op, device)
        shares[name] = shares.get(name, 0.0) + float(np.max(kernel.total_s)) / total
        longest[name] = max(longest.get(name, 0.0), float(np.max(kernel.time.total_s)))
    notable = [name for name, share in shares.items() if share >= NOTABLE_SHARE]
    groups = known.groups.get(family, {})
    missing = [name for name in notable if name not in groups or groups[name].rows < FEWEST_ROWS]
    messages = []
    if missing:
        messages.append(f"No measurement near this: {', '.join(missing)} kernels on {device.name}.")
    devices = known.measured.get(family, ())
    if devices and device.name not in devices and len(missing) < len(notable):
        messages.append(f"Kernel times of {device.name} rest on measurements of {' and '.join(devices)}.")
    for name in notable:
        if name not in missing and longest[name] > 2.0 * groups[name].longest_s:
            messages.append(
                f"A kernel of {name} takes {longest[name]:.3g} s, which is beyond what was measured; the longest was "
                f"{groups[name].longest_s:.3g} s."
            )
    return messages
