"""One measured figure beside its prediction, and what a group of them says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Row:
    """A figure that was measured and predicted; ``low`` and ``high`` are the prediction's relative errors.

    ``fitted`` rows may have shaped a constant and count in no published figure.
    """

    label: str
    measured_s: float
    predicted_s: float
    fitted: bool
    low: float = float("nan")
    high: float = float("nan")
    note: str = ""

    @property
    def error(self) -> float:
        """Relative: positive where the prediction is too long."""
        return self.predicted_s / self.measured_s - 1.0

    @property
    def inside(self) -> bool | None:
        """Whether the measured time lies in the prediction's band; ``None`` where there is none."""
        if np.isnan(self.low) or np.isnan(self.high):
            return None
        return bool((1.0 + self.low) * self.predicted_s <= self.measured_s <= (1.0 + self.high) * self.predicted_s)


@dataclass(frozen=True)
class Aim:
    """The errors that the project sets itself for a group: of the mean, of the median, of the worst row."""

    mean: float | None = None
    median: float | None = None
    worst: float | None = None

    def __str__(self) -> str:
        limits = (("median", self.median), ("mean", self.mean), ("none over", self.worst))
        return ", ".join(f"{what} {100 * limit:g} %" for what, limit in limits if limit is not None)

    def is_met(self, summary: Summary) -> bool:
        """Whether no error is larger."""
        found = ((self.mean, summary.mean), (self.median, summary.median), (self.worst, summary.worst))
        return all(limit is None or error <= limit for limit, error in found)


@dataclass(frozen=True)
class Group:
    """Rows of one kind, and why others could not be priced. ``aim`` is the error that the project sets itself.

    ``faulty`` rows were priced but count in no figure: other measurements show that ``fault`` decided their time.
    """

    name: str
    title: str
    source: str
    rows: list[Row] = field(default_factory=list)
    unpriced: Counter[str] = field(default_factory=Counter)
    aim: Aim | None = None
    faulty: list[Row] = field(default_factory=list)
    fault: str = ""

    @property
    def held_out(self) -> list[Row]:
        """Rows that no constant was fitted on."""
        return [row for row in self.rows if not row.fitted]


@dataclass(frozen=True)
class Summary:
    """Absolute relative errors of rows, their bias (median of the signed error), and how many bands held."""

    count: int
    mean: float
    median: float
    p90: float
    worst: float
    bias: float
    covered: float

    @staticmethod
    def of(rows: Sequence[Row]) -> Summary | None:
        """The summary of ``rows``; ``None`` of none."""
        if not rows:
            return None
        signed = np.array([row.error for row in rows])
        size = np.abs(signed)
        bands = [row.inside for row in rows if row.inside is not None]
        return Summary(
            count=len(rows),
            mean=float(size.mean()),
            median=float(np.median(size)),
            p90=float(np.quantile(size, 0.9)),
            worst=float(size.max()),
            bias=float(np.median(signed)),
            covered=float(np.mean(bands)) if bands else float("nan"),
        )


def worst(rows: Iterable[Row], count: int) -> list[Row]:
    """The rows that are furthest off, by the factor between prediction and measurement."""
    return sorted(rows, key=lambda row: -abs(np.log(row.predicted_s / row.measured_s)))[:count]
