"""What other measured runs say of a run that is predicted badly, in a few words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.accuracy_report import seconds
from benchmarks.measured_serving import FloatArray, MeasuredRuns, ServingTime
from benchmarks.outdone import Peers

MUCH = 1.25
"""So many times a comparable run's figure is worth a word: repeats of one run differ by 18 % on average."""
LITTLE, MORE, LOADS = 1.15, 1.1, 2.0
"""Times a token that differ so little, predicted ones so much more, over so many times the requests."""


def notes(runs: MeasuredRuns, time: ServingTime, met: Peers) -> tuple[list[str], list[str]]:
    """Of each run's time to first token, and of its time per token; empty where nothing stands out."""
    first = _held_to_others(runs.ttft_s, time.ttft_s, met.shortest[:, 0], met.longest[:, 0])
    later = _held_to_others(runs.tpot_s, time.tpot_s, met.shortest[:, 1], met.longest[:, 1])
    if same := _same_whatever_the_load(runs, time):
        later = [same] * len(later)
    return first, later


def _held_to_others(
    measured: FloatArray, predicted: FloatArray, shortest: FloatArray, longest: FloatArray
) -> list[str]:
    """Where the prediction is short and a run with no less to do was quick, or long and one with no more was slow."""
    words = []
    for own, expected, least, most in zip(measured, predicted, shortest, longest, strict=True):
        if expected < own and own > MUCH * least:
            words.append(f"a run with no less to do took {seconds(least)}")
        elif expected > own and own * MUCH < most:
            words.append(f"a run with no more to do took {seconds(most)}")
        else:
            words.append("")
    return words


def _same_whatever_the_load(runs: MeasuredRuns, time: ServingTime) -> str:
    """Said where many more requests change the measured times of a configuration little, the predicted ones more."""
    requests = np.array([run.concurrency for run in runs.loads])
    measured = _spread(runs.tpot_s)
    if _spread(requests) < LOADS or measured > LITTLE or _spread(time.tpot_s) < MORE * measured:
        return ""
    times = f"{seconds(runs.tpot_s.min())} to {seconds(runs.tpot_s.max())}"
    return f"{times} with {requests.min():g} to {requests.max():g} requests: the server's, whatever its load"


def _spread(values: FloatArray | Sequence[float]) -> float:
    return float(np.max(values) / np.min(values))
