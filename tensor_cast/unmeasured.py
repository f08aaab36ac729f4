"""What a database does not tell about a run: the heaviest kernels that are not measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tensor_cast.performance_model.profiling_database.coverage import REPLAYED_KERNELS
from tensor_cast.performance_model.timing import MEASURED
from tensor_cast.timed_kernels import KernelEstimate


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
