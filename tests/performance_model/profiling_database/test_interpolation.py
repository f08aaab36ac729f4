"""Ratios between and beyond measured points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.performance_model.profiling_database.interpolation import REACH, surface
from tensor_cast.performance_model.timing import ANALYTIC, EXTRAPOLATED, INTERPOLATED, MEASURED


def test_a_curve_by_hand() -> None:
    curve = surface([np.array([64.0, 4.0, 16.0])], np.log([4.0, 1.0, 2.0]))
    values = np.array([0.9, 1.0, 4.0, 8.0, 16.0, 32.0, 64.0, 256.0, 257.0])
    logarithms, codes = curve.at([values])
    # 8 lies halfway between 4 and 16 by logarithm: the ratio is sqrt(1 x 2); beyond the ends it stays.
    expected = [1.0, 1.0, 1.0, 2.0**0.5, 2.0, 8.0**0.5, 4.0, 4.0, 4.0]
    assert np.exp(logarithms) == pytest.approx(expected)
    near, far, exact, between = EXTRAPOLATED, ANALYTIC, MEASURED, INTERPOLATED
    assert codes.tolist() == [far, near, exact, between, exact, between, exact, near, far]


def test_points_that_coincide_are_one_with_their_mean() -> None:
    curve = surface([np.array([8.0, 8.0])], np.log([1.0, 4.0]))
    logarithms, codes = curve.at([np.array([8.0])])
    assert np.exp(logarithms[0]) == pytest.approx(2.0)
    assert codes.tolist() == [MEASURED]


def test_a_grid_by_hand() -> None:
    # Ratios 1, 2 (context 1024, 4096) at batch 1 and 4, 8 at batch 16.
    context, batch = np.array([1024.0, 4096.0, 1024.0, 4096.0]), np.array([1.0, 1.0, 16.0, 16.0])
    grid = surface([context, batch], np.log([1.0, 2.0, 4.0, 8.0]))
    logarithms, codes = grid.at(
        [np.array([1024.0, 2048.0, 1024.0, 2048.0, 2048.0]), np.array([1.0, 1.0, 4.0, 4.0, 64.0])]
    )
    assert np.exp(logarithms) == pytest.approx([1.0, 2.0**0.5, 2.0, 8.0**0.5, 32.0**0.5])
    assert codes.tolist() == [MEASURED, INTERPOLATED, INTERPOLATED, INTERPOLATED, EXTRAPOLATED]


def test_of_a_ragged_grid_the_slice_that_reaches_is_believed() -> None:
    context, batch = np.array([1024.0, 1e6]), np.array([1.0, 16.0])
    logarithms, codes = surface([context, batch], np.log([2.0, 9.0])).at([np.array([1024.0]), np.array([4.0])])
    assert np.exp(logarithms) == pytest.approx([2.0])
    assert codes.tolist() == [EXTRAPOLATED]


positive = st.floats(1.0, 1e6)


@given(st.lists(st.tuples(positive, positive, st.floats(0.1, 10.0)), min_size=1, max_size=12), positive, positive)
def test_a_ratio_never_leaves_the_measured_range(points: list[tuple[float, float, float]], x: float, y: float) -> None:
    first, second, ratios = (np.array(column) for column in zip(*points, strict=True))
    logarithms, codes = surface([first, second], np.log(ratios)).at([np.array([x]), np.array([y])])
    assert ratios.min() * (1 - 1e-9) <= np.exp(logarithms[0]) <= ratios.max() * (1 + 1e-9)
    outside = not (
        first.min() / REACH <= x <= first.max() * REACH and second.min() / REACH <= y <= second.max() * REACH
    )
    if outside:
        assert codes[0] == ANALYTIC
