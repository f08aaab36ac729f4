"""Between and beyond measured points: the ratio of measured to analytic time, interpolated along each axis.

The analytic model knows how work, waves of tiles and bytes grow from one point to the next; what it gets wrong changes
slowly. So the ratio is interpolated, linearly in its logarithm over the logarithm of the axis, and multiplied with the
analytic time of the point asked for. Beyond the last measured point the ratio stays what it was there, up to
``REACH`` times further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from tensor_cast.performance_model.timing import ANALYTIC, EXTRAPOLATED, INTERPOLATED, MEASURED, Codes

FloatArray: TypeAlias = npt.NDArray[np.float64]
_Number = TypeVar("_Number", bound=np.generic)

REACH = 4.0
"""How far beyond the last measured point of an axis its ratio is believed, as a factor. Assumed."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Ratios along one axis: ``logarithms`` of measured over analytic time at ``points``, which ascend."""

    points: FloatArray
    logarithms: FloatArray

    def at(self, query: Sequence[FloatArray]) -> tuple[FloatArray, Codes]:
        """Logarithm of the ratio and source code at each value of the axis."""
        (values,) = query
        place = np.minimum(np.searchsorted(self.points, values), len(self.points) - 1)
        logarithms = np.interp(np.log(values), np.log(self.points), self.logarithms)
        first, last = self.points[0], self.points[-1]
        codes = np.full(values.shape, ANALYTIC)
        codes[(values >= first / REACH) & (values <= last * REACH)] = EXTRAPOLATED
        codes[(values > first) & (values < last)] = INTERPOLATED
        codes[self.points[place] == values] = MEASURED
        return logarithms, codes


@dataclass(frozen=True, eq=False)
class Surface:
    """Ratios over several axes: one ``slice`` of all but the last axis at each of the last axis' ``points``."""

    points: FloatArray
    slices: tuple[Curve | Surface, ...]

    def at(self, query: Sequence[FloatArray]) -> tuple[FloatArray, Codes]:
        """As ``Curve.at``; ``query`` has the values of each axis, all of one shape."""
        *inner, values = query
        found = [slice_.at(inner) for slice_ in self.slices]
        ratios = np.stack([logarithms for logarithms, _ in found])
        codes = np.stack([codes for _, codes in found])
        upper = np.minimum(np.searchsorted(self.points, values), len(self.points) - 1)
        is_inside = (values > self.points[0]) & (values < self.points[-1])
        lower = np.where(is_inside, np.maximum(upper - 1, 0), upper)
        low, high = _picked(ratios, lower), _picked(ratios, upper)
        low_code, high_code = _picked(codes, lower), _picked(codes, upper)
        # Where only one of the two neighbouring slices reaches the point, that one alone is believed.
        share = _share(self.points[lower], self.points[upper], values)
        share = np.where(low_code == ANALYTIC, 1.0, np.where(high_code == ANALYTIC, 0.0, share))
        between = np.maximum(np.minimum(low_code, high_code), INTERPOLATED)
        between = np.where(np.maximum(low_code, high_code) >= EXTRAPOLATED, np.maximum(between, EXTRAPOLATED), between)
        beyond = np.maximum(high_code, EXTRAPOLATED)
        is_near = (values >= self.points[0] / REACH) & (values <= self.points[-1] * REACH)
        code = np.where(is_inside, between, np.where(is_near, beyond, ANALYTIC))
        is_here = self.points[upper] == values
        share = np.where(is_here & (high_code != ANALYTIC), 1.0, share)
        return low + share * (high - low), np.where(is_here & (high_code != ANALYTIC), high_code, code).astype(np.int8)


def surface(axes: Sequence[FloatArray], logarithms: FloatArray) -> Curve | Surface:
    """What measured points know: ``axes`` has one array of the points' values for each axis, positive.

    Points that coincide count as one, with the mean of their logarithms.
    """
    points, place = np.unique(axes[-1], return_inverse=True)
    if len(axes) == 1:
        sums = np.bincount(place, weights=logarithms)
        return Curve(points, sums / np.bincount(place))
    return Surface(
        points,
        tuple(
            surface([axis[place == index] for axis in axes[:-1]], logarithms[place == index])
            for index in range(len(points))
        ),
    )


def _picked(stack: npt.NDArray[_Number], index: npt.NDArray[np.intp]) -> npt.NDArray[_Number]:
    picked: npt.NDArray[_Number] = np.take_along_axis(stack, index[np.newaxis], axis=0)[0]
    return picked


def _share(low: FloatArray, high: FloatArray, values: FloatArray) -> FloatArray:
    """Where ``values`` lie between their neighbours, by logarithm: 0 at ``low``, 1 at ``high``."""
    width = np.log(high / low)
    return np.where(width > 0.0, np.log(values / low) / np.where(width > 0.0, width, 1.0), 1.0)
