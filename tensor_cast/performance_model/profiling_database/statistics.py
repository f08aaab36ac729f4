"""Which durations count, and where a row's time comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

from tensor_cast.performance_model.profiling_database.schema import LATENCY_COLUMNS, PROFILE_DURATION, REPLAY_DURATION

MAX_DURATION_US = 600e6
"""Longest duration believed, ten minutes: no kernel takes it, a broken clock or a shifted column does. Assumed."""

RowState: TypeAlias = Literal["replayed", "measured", "both", "empty"]
"""Whose duration a row has: a replay's, a profile's, both or none."""


def duration_us(text: str) -> float | None:
    """The duration in a cell in microseconds, or None when it is absent, not finite, not positive or absurd."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 < value <= MAX_DURATION_US and math.isfinite(value) else None


def latency_us(cells: Mapping[str, str]) -> float | None:
    """A row's time as every database reader takes it: the replay's, else the profile's mean, else a plain duration."""
    values = (duration_us(cells.get(column, "")) for column in LATENCY_COLUMNS)
    return next((value for value in values if value is not None), None)


def row_state(cells: Mapping[str, str]) -> RowState:
    """Where the durations of a row come from."""
    replayed = duration_us(cells.get(REPLAY_DURATION, "")) is not None
    measured = duration_us(cells.get(PROFILE_DURATION, "")) is not None
    if replayed and measured:
        return "both"
    if replayed:
        return "replayed"
    return "measured" if measured else "empty"
