"""What measurements do not tell about a run: kernels that no database has, and work beyond all that was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.ops import Collective
from tensor_cast.performance_model.engine import Engine
from tensor_cast.performance_model.engine_kernels import own_rows, with_own_kernels
from tensor_cast.performance_model.error import FEWEST_ROWS, class_of, measured_class, residuals
from tensor_cast.performance_model.timing import ANALYTIC, MEASURED
from tensor_cast.timed_kernels import KernelEstimate
from tensor_cast.units import duration

# Share of the time that warnings of a class start at.
NOTABLE_SHARE = 0.1

_CLASS_WORDS: dict[str, str] = {
    "matmul": "matrix products",
    "grouped_matmul": "matrix products of experts",
    "attention_prefill": "prefill attention kernels",
    "attention_decode": "decode attention kernels",
    "vector": "vector kernels",
    "collective": "collectives",
}
_VARIANT_WORDS = {
    "full": "unmasked {}",
    "fa2": "FlashAttention-2's {}",
    "state": "{} with a recurrent state",
    "conv": "convolutions",
    "flat": "elementwise {}",
}
"""Variants of classes that are no dtypes; ``{}`` stands for the class."""


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

    Collectives are measured by a tool of their own (``collectives_to_measure``).
    """
    # Of no use to an analytic estimate, whose start the database's modules would delay.
    from tensor_cast.performance_model.profiling_database.coverage import REPLAYED_KERNELS

    named = dict.fromkeys(kernel_type for row in rows for kernel_type in row.kernel_types)
    return [kernel_type for kernel_type in named if kernel_type in REPLAYED_KERNELS]


def collectives_to_measure(
    kernels: Iterable[KernelEstimate], rows: Iterable[UnmeasuredKernel]
) -> tuple[list[str], list[int]]:
    """Kinds and group sizes of the collectives of ``rows``, largest group first: what ``comm_bench`` is asked for."""
    wanted = {(row.name, row.part) for row in rows if row.kernel_types}
    found = [k.op for k in kernels if isinstance(k.op, Collective) and (k.op.name, k.op.part) in wanted]
    return list(dict.fromkeys(op.kind for op in found)), sorted({op.group_size for op in found}, reverse=True)


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
    measured_as: dict[str, str] = {}
    for kernel in kernels:
        if kernel.source != "analytic" or not kernel.op.inputs:
            continue
        name = class_of(kernel.op, device)
        measured_as[name] = measured_class(kernel.op, device)
        shares[name] = shares.get(name, 0.0) + float(np.max(kernel.total_s)) / total
        longest[name] = max(longest.get(name, 0.0), float(np.max(kernel.time.total_s)))
    notable = [name for name, share in shares.items() if share >= NOTABLE_SHARE]
    groups = known.groups.get(family, {})
    residual = {name: groups.get(measured_as[name]) for name in notable}
    missing = [name for name, group in residual.items() if group is None or group.rows < FEWEST_ROWS]
    messages = []
    if missing:
        words = ", ".join(map(class_words, missing))
        messages.append(f"No measurement near this: {words} on {device.name}.")
    apart = [name for name in notable if name not in missing and measured_as[name] != name]
    if apart:
        words = ", ".join(map(class_words, apart))
        messages.append(f"Not measured alone: {words}; their error is taken from products without such weights.")
    devices = known.measured.get(family, ())
    if devices and device.name not in devices and len(missing) < len(notable):
        messages.append(f"Kernel times of {device.name} rest on measurements of {' and '.join(devices)}.")
    for name in notable:
        group = residual[name]
        if name not in missing and group is not None and longest[name] > 2.0 * group.longest_s:
            messages.append(
                f"One of the {class_words(name)} takes {duration(longest[name])}, longer than all that were measured "
                f"(at most {duration(group.longest_s)})."
            )
    return messages


def used_rows(
    kernels: Iterable[KernelEstimate], device: DeviceProfile, engine: Engine | None
) -> dict[str, Mapping[str, float]]:
    """Rows of costs that ``engine`` brings along to ``device`` and that price one of ``kernels``, with its figures.

    A measured time owes them nothing.
    """
    served = with_own_kernels(device, engine)
    analytic = (kernel for kernel in kernels if np.any(np.equal(kernel.timing.codes, ANALYTIC)))
    classes = {class_of(kernel.op, served) for kernel in analytic}
    return {key: figures for key, figures in own_rows(device, engine).items() if key in classes}


def assumed_of_engine(kernels: Iterable[KernelEstimate], device: DeviceProfile, engine: Engine | None) -> list[str]:
    """Warning of kernels of ``engine`` that were not seen on such a device, or with another engine only."""
    served = with_own_kernels(device, engine)
    assumed = [
        key
        for key, figures in used_rows(kernels, device, engine).items()
        if any(served.sources[f"kernels.{key}.{figure}"].startswith("assumed") for figure in figures)
    ]
    if engine is None or not assumed:
        return []
    words = ", ".join(map(class_words, assumed))
    return [f"Assumed of {engine.name} on {device.name}, from runs of other engines or devices: {words}."]


def class_words(name: str) -> str:
    """A class of kernels, as ``cost_key`` names it, in words: ``INT8 matrix products with INT4 weights``."""
    kind = max((kind for kind in _CLASS_WORDS if name.startswith(kind)), key=len)
    words, variant = _CLASS_WORDS[kind], name.removeprefix(kind).removeprefix("_")
    if not variant:
        return words
    if variant in _VARIANT_WORDS:
        return _VARIANT_WORDS[variant].format(words)
    products, _, weights = variant.partition("_")
    tail = f" with {weights.upper()} weights" if weights else ""
    return f"{products.upper()} {words}{tail}"
