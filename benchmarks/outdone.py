"""Which measured figures tell of a server's fault and not of its device, as other measured runs show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measured_serving import Configuration, FloatArray, Load, MeasuredRuns
from tensor_cast.devices import get_device

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]

FACTOR = 3.0
"""So many times another run's figure is a fault: repeats of a run differ by 18 %, versions of an engine up to twice."""


@dataclass(frozen=True)
class Outdone:
    """Runs of one configuration that another run outdid, an array of flags over them for each figure."""

    ttft: BoolArray
    tpot: BoolArray


def outdone(measured: Sequence[MeasuredRuns]) -> list[Outdone]:
    """For each configuration the runs whose figure is over ``FACTOR`` times that of another run.

    The other run had at least as much to do, on no more and no better devices: the same model, formats, engine and
    lengths, as many attention ranks, at least as many requests in flight, and no shorter wait by its recipe.
    """
    every = [
        (runs.config, run, ttft, tpot)
        for runs in measured
        for run, ttft, tpot in zip(runs.loads, runs.ttft_s, runs.tpot_s, strict=True)
    ]
    alike: dict[tuple[object, ...], list[tuple[Configuration, Load, float, float]]] = {}
    for one in every:
        alike.setdefault(_task(*one[:2]), []).append(one)
    return [Outdone(*_slower(runs, alike)) for runs in measured]


def _slower(
    runs: MeasuredRuns, alike: dict[tuple[object, ...], list[tuple[Configuration, Load, float, float]]]
) -> tuple[BoolArray, BoolArray]:
    best = np.full((len(runs.loads), 2), np.inf)
    for index, run in enumerate(runs.loads):
        for config, load, *figures in alike[_task(runs.config, run)]:
            if _has_no_less_to_do(config, load, runs.config, run):
                best[index] = np.minimum(best[index], figures)
    measured: FloatArray = np.column_stack([runs.ttft_s, runs.tpot_s])
    ttft, tpot = (measured > FACTOR * best).T
    return ttft, tpot


def _task(config: Configuration, run: Load) -> tuple[object, ...]:
    deployment = config.deployment
    formats = (deployment.quantize_linear, deployment.quantize_non_expert_linear, deployment.quantize_attention)
    return (config.model, config.engine, *formats, deployment.dp_size, run.prompt, run.output, run.mean_share)


def _has_no_less_to_do(config: Configuration, run: Load, than: Configuration, other: Load) -> bool:
    devices = (get_device(config.device), get_device(than.device))
    peaks, others = ((device.matrix_rate("bfloat16"), device.memory_bandwidth) for device in devices)
    return (
        run.concurrency >= other.concurrency
        and run.wait_steps >= other.wait_steps
        and config.deployment.world_size <= than.deployment.world_size
        and all(peak <= theirs for peak, theirs in zip(peaks, others, strict=True))
    )
