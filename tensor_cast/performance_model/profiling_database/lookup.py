"""Times of launches from a database: exact rows, then interpolation, then bounded extrapolation.

A launch is asked for with widths that the model decides and axes that may be arrays of points. Rows of the same widths,
dtypes and layout are one curve over the axes; one evaluation answers all points. Where no such rows reach a point, the
curves of the nearest other widths answer, up to ``WIDTH_REACH`` away; the result says "extrapolated".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensor_cast.performance_model.profiling_database.interpolation import FloatArray
from tensor_cast.performance_model.profiling_database.kernels import Kernel, Launch
from tensor_cast.performance_model.profiling_database.measurements import (
    Measurements,
    SecondsOf,
    read_measurements,
)
from tensor_cast.performance_model.profiling_database.store import Database
from tensor_cast.performance_model.timing import ANALYTIC, EXTRAPOLATED, MEASURED, Codes

WIDTH_REACH = 2.0
"""Octaves that all widths together may differ by: twice one width and twice another, or four times one. Assumed."""
NEIGHBOURS = 3
"""Structures whose ratios are averaged, weighted by the inverse square of their distance."""

EXPECTED_ERRORS = (0.05, 0.05, 0.14, 0.26)
"""Relative error to expect of each source, by its code: the median deviation of the packaged A3 rows from run to run,
and the median errors when each of them is left out and predicted (``msmodeling perf-db accuracy``; an interpolated
row has a p90 of 0.21, an extrapolated one of 0.35); analytic: of the analytic model on the rows that were interpolated,
most of which are small vector kernels."""


def expected_errors(codes: Codes) -> FloatArray:
    """Relative error to expect at each point."""
    return np.asarray(EXPECTED_ERRORS)[codes]


@dataclass(frozen=True, eq=False)
class LaunchTime:
    """Seconds of a launch at each point (NaN where nothing is known), source codes and expected relative errors."""

    seconds: FloatArray
    codes: Codes
    error: FloatArray

    def better(self, other: LaunchTime) -> LaunchTime:
        """At each point the better source; this one where both are as good."""
        replace = other.codes < self.codes
        return LaunchTime(
            np.where(replace, other.seconds, self.seconds),
            np.where(replace, other.codes, self.codes),
            np.where(replace, other.error, self.error),
        )


@dataclass(eq=False)
class Lookup:
    """Times from ``database``; ``analytic`` is the model whose ratio to measured times is interpolated.

    Without ``interpolate`` only exact rows answer. A kernel's files are read when it is first asked for.
    """

    database: Database
    analytic: SecondsOf
    interpolate: bool = True
    _measured: dict[int, list[Measurements]] = field(default_factory=dict)

    def measurements(self, kernel: Kernel) -> list[Measurements]:
        """All usable rows of a kernel."""
        if id(kernel) not in self._measured:
            self._measured[id(kernel)] = read_measurements(self.database, kernel, self.analytic)
        return self._measured[id(kernel)]

    def time(self, launch: Launch) -> LaunchTime:
        """Seconds of ``launch`` at every point of its axes, which broadcast to one shape."""
        candidates = [rows for rows in self.measurements(launch.kernel) if _same_dtypes(rows.dtypes, launch.dtypes)]
        return predict(launch, candidates, interpolate=self.interpolate)


def predict(launch: Launch, candidates: Sequence[Measurements], *, interpolate: bool = True) -> LaunchTime:
    """Seconds of ``launch`` from rows of its kernel and dtypes, preferred layouts first."""
    query, widths = _point(launch)
    shape = query[0].shape
    unknown = np.full(shape, ANALYTIC)
    best = LaunchTime(np.full(shape, np.nan), unknown, expected_errors(unknown))
    for rows in candidates:
        distinct, _ = rows.structures
        (equal,) = np.nonzero((distinct == widths).all(axis=1))
        if equal.size:
            logarithms, codes = rows.surface(int(equal[0])).at(query)
            best = best.better(_answer(launch, rows, int(equal[0]), logarithms, codes, interpolate))
    if interpolate and (best.codes == ANALYTIC).any():
        for rows in candidates:
            found = _from_other_widths(rows, query, widths)
            if found is not None:
                best = best.better(_answer(launch, rows, *found, interpolate))
    return best


def _answer(
    launch: Launch, rows: Measurements, structure: int, logarithms: FloatArray, codes: Codes, interpolate: bool
) -> LaunchTime:
    if not interpolate:
        codes = np.where(codes == MEASURED, MEASURED, ANALYTIC)
    sizes = _with_free_sizes(launch.coordinates, rows, structure)
    seconds = rows.analytic(launch.kernel.op_at(rows.layout, sizes, rows.dtypes)) * np.exp(logarithms)
    return LaunchTime(np.where(codes == ANALYTIC, np.nan, seconds), codes, expected_errors(codes))


def _from_other_widths(
    rows: Measurements, query: Sequence[FloatArray], widths: FloatArray
) -> tuple[int, FloatArray, Codes] | None:
    """The nearest structure, and the ratios of the nearest few that reach each point, averaged."""
    distinct, _ = rows.structures
    if not widths.size:
        return None
    with np.errstate(divide="ignore"):
        distances = np.abs(np.log2(distinct / widths)).sum(axis=1)
    near = np.argsort(distances, kind="stable")[:NEIGHBOURS]
    near = near[(distances[near] <= WIDTH_REACH) & (distances[near] > 0.0)]
    if not near.size:
        return None
    total, weights = np.zeros(query[0].shape), np.zeros(query[0].shape)
    for structure in near:
        logarithms, codes = rows.surface(int(structure)).at(query)
        weight = np.where(codes == ANALYTIC, 0.0, distances[structure] ** -2.0)
        total = total + weight * logarithms
        weights = weights + weight
    codes = np.where(weights > 0.0, EXTRAPOLATED, ANALYTIC)
    return int(near[0]), total / np.where(weights > 0.0, weights, 1.0), codes


def _point(launch: Launch) -> tuple[list[FloatArray], FloatArray]:
    """Axes as arrays of one shape, and widths, which are the same at every point."""
    axes = [np.asarray(launch.coordinates[name], dtype=np.float64) for name in launch.kernel.axes]
    query = [np.array(axis) for axis in np.broadcast_arrays(*axes)]
    widths = [float(np.mean(launch.coordinates[name])) for name in launch.kernel.widths]
    return query, np.array(widths)


def _with_free_sizes(coordinates: Mapping[str, object], rows: Measurements, structure: int) -> dict[str, FloatArray]:
    """The launch's sizes, and of names that no op decides (a pool of cache blocks) what rows of the structure have."""
    row = int(np.argmax(rows.structures[1] == structure))
    free = {name: values[row] for name, values in rows.sizes.items() if name not in coordinates}
    return {**free, **{name: np.asarray(value, dtype=np.float64) for name, value in coordinates.items()}}


def _same_dtypes(rows: Mapping[str, str], launch: Mapping[str, str]) -> bool:
    return all(rows.get(name, dtype) == dtype for name, dtype in launch.items())
