"""What the stages of a pipeline wait for one another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.models.decoder import DecoderStep
from tensor_cast.models.stages import pipeline_stages
from tensor_cast.ops import Op
from tensor_cast.performance_model.engine import idle_time
from tensor_cast.performance_model.roofline import KernelTime
from tensor_cast.performance_model.timing import Timing
from tensor_cast.quantity import Quantity
from tensor_cast.timed_kernels import KernelEstimate, TimedKernels


def pipeline_wait(
    step: DecoderStep,
    kernels: Sequence[KernelEstimate],
    device: DeviceProfile,
    *,
    layers: int,
    decode: bool,
    eager: bool = False,
) -> KernelEstimate | None:
    """Seconds that a step spends waiting for a pipeline's other micro-batches; ``None`` without a pipeline.

    Of ``m`` micro-batches each leaves the slowest stage, which takes ``s``, ``s`` after the one before. A prefill ends
    with the last of them, ``(m - 1) s`` after the first is through all stages (GPipe, arXiv 1811.06965, section 2.2).
    A decode keeps the pipeline full, as a micro-batch starts its next step when it ends one: it waits only where the
    slowest stage, which each cycle passes ``m`` times, takes longer for that than the path through all stages.

    Args:
        step: the built step, whose graph is of one micro-batch.
        kernels: the graph's kernels, timed, in order.
        device: whose launches leave gaps.
        layers: decoder layers of the model.
        decode: whether the step is a decode.
        eager: whether the host launches kernels one by one.
    """
    stages = step.parallel.pp
    if stages == 1:
        return None
    blocks = [block for block, _ in step.graph.nodes()]
    # Most stages are alike: each kind is timed once.
    kinds = dict.fromkeys(tuple(stage.runs(block) for block in blocks) for stage in pipeline_stages(layers, stages))
    times = [
        _time([replace(kernel, count=runs) for kernel, runs in zip(kernels, kind, strict=True)], device, eager=eager)
        for kind in kinds
    ]
    slowest: Quantity = reduce(np.maximum, times)
    wait = (step.micro_batches - 1.0) * slowest
    if decode:
        wait = np.maximum(step.micro_batches * slowest - _time(kernels, device, eager=eager), 0.0)
    band = TimedKernels(tuple(kernels)).error_band
    return KernelEstimate(
        op=Op(name="pipeline_wait", part="pipeline", inputs=(), outputs=()),
        block="pipeline",
        count=1,
        stream=0,
        section=None,
        timing=Timing(KernelTime(0.0, 0.0, 0.0, 0.0, 0.0, wait), error_low=band.low, error_high=band.high),
    )


def _time(kernels: Iterable[KernelEstimate], device: DeviceProfile, *, eager: bool) -> Quantity:
    """Seconds of ``kernels`` and of the device's waits for their launches."""
    run = TimedKernels(tuple(kernels))
    return run.device_time_s + idle_time(run.device_time_s, run.launches, device, eager=eager)
