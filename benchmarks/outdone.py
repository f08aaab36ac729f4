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


Figures = dict[tuple[object, ...], list[tuple[Configuration, Load, float, float]]]


@dataclass(frozen=True)
class Outdone:
    """Runs of one configuration that another run outdid, an array of flags over them for each figure."""

    ttft: BoolArray
    tpot: BoolArray


@dataclass(frozen=True)
class Peers:
    """What the runs of a configuration can be held to: seconds, by run and (time to first token, time per token).

    ``shortest`` is of runs that had no less to do, on no more and no better devices; ``longest`` of runs that had no
    more to do, on no fewer and no worse, and that were not outdone. Each run is one of both.
    """

    shortest: FloatArray
    longest: FloatArray


def outdone(measured: Sequence[MeasuredRuns]) -> list[Outdone]:
    """For each configuration the runs whose figure is over ``FACTOR`` times that of a run with no less to do."""
    found = []
    for runs, met in zip(measured, peers(measured), strict=True):
        ttft, tpot = (figures_of(runs) > FACTOR * met.shortest).T
        found.append(Outdone(ttft, tpot))
    return found


def peers(measured: Sequence[MeasuredRuns]) -> list[Peers]:
    """For each configuration the figures of comparable runs.

    These have the same model, formats, engine and lengths, and as many attention ranks. No less to do is at least as
    many requests in flight and no shorter wait by the recipe.
    """
    alike: Figures = {}
    for runs in measured:
        for run, (ttft, tpot) in zip(runs.loads, figures_of(runs), strict=True):
            alike.setdefault(_task(runs.config, run), []).append((runs.config, run, ttft, tpot))
    shortest = [_shortest(runs, alike) for runs in measured]
    # A run that was outdone is a fault, to which no other is held.
    sound: Figures = {}
    for runs, least in zip(measured, shortest, strict=True):
        figures = figures_of(runs)
        for run, (ttft, tpot) in zip(runs.loads, np.where(figures > FACTOR * least, 0.0, figures), strict=True):
            sound.setdefault(_task(runs.config, run), []).append((runs.config, run, ttft, tpot))
    return [Peers(least, _longest(runs, sound)) for runs, least in zip(measured, shortest, strict=True)]


def figures_of(runs: MeasuredRuns) -> FloatArray:
    """Seconds to the first token and per token, of each run."""
    figures: FloatArray = np.column_stack([runs.ttft_s, runs.tpot_s])
    return figures


def _shortest(runs: MeasuredRuns, alike: Figures) -> FloatArray:
    shortest = figures_of(runs)
    for index, run in enumerate(runs.loads):
        for config, load, *figures in alike[_task(runs.config, run)]:
            if _has_no_less_to_do(config, load, runs.config, run):
                shortest[index] = np.minimum(shortest[index], figures)
    return shortest


def _longest(runs: MeasuredRuns, sound: Figures) -> FloatArray:
    longest = figures_of(runs)
    for index, run in enumerate(runs.loads):
        for config, load, *figures in sound[_task(runs.config, run)]:
            if _has_no_less_to_do(runs.config, run, config, load):
                longest[index] = np.maximum(longest[index], figures)
    return longest


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
