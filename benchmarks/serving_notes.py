"""What other measured runs say of a run that is predicted badly, in a few words."""

from __future__ import annotations

import numpy as np

from benchmarks.contradictions import contradictions
from benchmarks.measured_serving import FloatArray, MeasuredRuns, ServingTime
from benchmarks.outdone import Peers
from tensor_cast.units import duration

LITTLE, MORE, LOADS = 1.15, 1.1, 2.0
"""Times a token that differ so little, predicted ones so much more, over so many times the requests."""


def notes(runs: MeasuredRuns, time: ServingTime, met: Peers) -> tuple[list[str], list[str]]:
    """Of each run's time to first token, and of its time per token; empty where nothing stands out."""
    first = contradictions(runs.ttft_s, time.ttft_s, met.shortest[:, 0], met.longest[:, 0])
    later = contradictions(runs.tpot_s, time.tpot_s, met.shortest[:, 1], met.longest[:, 1])
    same = _same_whatever_the_load(runs, time)
    return first, [word or other for word, other in zip(same, later, strict=True)]


def _same_whatever_the_load(runs: MeasuredRuns, time: ServingTime) -> list[str]:
    """Of each run; said where many more requests of the same lengths change the times less than is predicted.

    And only of runs whose prediction is the shorter time.
    """
    words = [""] * len(runs.loads)
    lengths: dict[tuple[float, float], list[int]] = {}
    for index, run in enumerate(runs.loads):
        lengths.setdefault((run.prompt, run.output), []).append(index)
    for alike in lengths.values():
        requests = np.array([runs.loads[index].concurrency for index in alike])
        measured, predicted = runs.tpot_s[alike], np.asarray(time.tpot_s)[alike]
        spread = _spread(measured)
        if _spread(requests) < LOADS or spread > LITTLE or _spread(predicted) < MORE * spread:
            continue
        times = f"{duration(measured.min())} to {duration(measured.max())}"
        said = f"{times} with {requests.min():g} to {requests.max():g} requests: the server's, whatever its load"
        for index, own, expected in zip(alike, measured, predicted, strict=True):
            words[index] = said if expected < own else ""
    return words


def _spread(values: FloatArray) -> float:
    return float(np.max(values) / np.min(values))
