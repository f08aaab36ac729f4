"""Which measured figures tell of a server's fault and not of its device, as other measured runs show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measured_serving import Configuration, FloatArray, Load, MeasuredRuns
from tensor_cast.devices import get_device

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]

FACTOR = 3.0
"""So many times another run's figure is a fault: repeats of a run differ by 18 %, versions of an engine up to twice."""

Alike = dict[tuple[object, ...], list[tuple[Configuration, Load, FloatArray]]]


@dataclass(frozen=True)
class Outdone:
    """Runs of one configuration that another run outdid, an array of flags over them for each figure."""

    ttft: BoolArray
    tpot: BoolArray


@dataclass(frozen=True)
class Peers:
    """What the runs of a configuration can be held to: seconds, by run and (time to first token, time per token).

    ``shortest`` is of runs that had no less to do, on no more and no better devices; ``longest`` of runs that had no
    more to do, on no fewer and no worse, and that were not outdone. Each run is one of both. ``outdone`` are those over
    ``FACTOR`` times the shortest.
    """

    shortest: FloatArray
    longest: FloatArray
    outdone: Outdone


def outdone(measured: Sequence[MeasuredRuns]) -> list[Outdone]:
    """For each configuration the runs whose figure is over ``FACTOR`` times that of a run with no less to do."""
    return [met.outdone for met in peers(measured)]


def peers(measured: Sequence[MeasuredRuns]) -> list[Peers]:
    """For each configuration the figures of comparable runs.

    These have the same model, formats, engine and lengths, and as many attention ranks. No less to do is at least as
    many requests in flight and no shorter wait by the recipe.
    """
    figures: list[FloatArray] = [np.column_stack([runs.ttft_s, runs.tpot_s]) for runs in measured]
    alike = _alike(measured, figures)
    shortest = [
        _extremes(runs, alike, np.minimum, lambda other, own: _has_no_less_to_do(*other, *own)) for runs in measured
    ]
    faults = [own > FACTOR * least for own, least in zip(figures, shortest, strict=True)]
    # A run that was outdone is a fault, to which no other is held.
    sound = _alike(measured, [np.where(fault, 0.0, own) for own, fault in zip(figures, faults, strict=True)])
    longest = [
        np.maximum(own, _extremes(runs, sound, np.maximum, lambda other, own: _has_no_less_to_do(*own, *other)))
        for runs, own in zip(measured, figures, strict=True)
    ]
    return [Peers(least, most, Outdone(*fault.T)) for least, most, fault in zip(shortest, longest, faults, strict=True)]


def _alike(measured: Sequence[MeasuredRuns], figures: Sequence[FloatArray]) -> Alike:
    """All runs with their figures, by what they must share to be compared."""
    alike: Alike = {}
    for runs, rows in zip(measured, figures, strict=True):
        for run, row in zip(runs.loads, rows, strict=True):
            alike.setdefault(_task(runs.config, run), []).append((runs.config, run, row))
    return alike


def _extremes(
    runs: MeasuredRuns,
    alike: Alike,
    extreme: np.ufunc,
    comparable: Callable[[tuple[Configuration, Load], tuple[Configuration, Load]], bool],
) -> FloatArray:
    """For each run the extreme of each figure over the runs that it is ``comparable`` to, itself among them."""
    rows = []
    for run in runs.loads:
        own = (runs.config, run)
        found = [row for *other, row in alike[_task(*own)] if comparable((other[0], other[1]), own)]
        rows.append(extreme.reduce(found))
    return np.array(rows)


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
