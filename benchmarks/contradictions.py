"""What comparable measurements say of one that is predicted badly, in a few words."""

from __future__ import annotations

from benchmarks.measured_serving import FloatArray
from tensor_cast.units import duration

MUCH = 1.25
"""So many times a comparable time is worth a word: repeats of one serving run differ by 18 % on average."""


def contradictions(measured: FloatArray, predicted: FloatArray, shortest: FloatArray, longest: FloatArray) -> list[str]:
    """Where a prediction is short and one with no less to do was quick, or long and one with no more was slow.

    ``shortest`` and ``longest`` are the times of those, all in seconds, one of each for a measurement. Empty where
    nothing stands out.
    """
    words = []
    for own, expected, least, most in zip(measured, predicted, shortest, longest, strict=True):
        if expected < own and own > MUCH * least:
            words.append(f"one with no less to do took {duration(float(least))}")
        elif expected > own and own * MUCH < most:
            words.append(f"one with no more to do took {duration(float(most))}")
        else:
            words.append("")
    return words
