"""The order in which rows are measured."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tools.perf_data_collection.grid_generator.axes import TOKENS
from tools.perf_data_collection.grid_generator.sampling import ends, measuring_order, spread


def column(*values: float) -> np.ndarray:
    return np.array(values)[:, np.newaxis]


def test_ends_first_then_the_middle_of_the_widest_gap() -> None:
    # Powers of two from 1 to 256: after both ends 2^4 is farthest, then 2^2 and 2^6.
    points = column(*(2.0**power for power in range(9)))
    order = spread(points, np.random.default_rng(0), starts=ends(points))
    assert order[:3].tolist() == [0, 8, 4]
    assert set(order[3:5].tolist()) == {2, 6}
    assert sorted(order.tolist()) == list(range(9))


def test_full_tiles_come_sooner_than_their_neighbours() -> None:
    generator = np.random.default_rng(0)
    order = measuring_order(column(64.0), column(*map(float, TOKENS)), 0, generator)
    first = [TOKENS[index] for index in order[:8]]
    assert first[:2] == [1, 32768]
    assert len({16, 32, 64, 128, 256} & set(first)) >= 2


def test_fewer_structures_are_measured_well_instead_of_all_badly() -> None:
    # 100 widths of 20 points, 90 rows: nine points of ten widths, which lie apart.
    widths, points = column(*(2.0 ** (index / 10) for index in range(100))), column(*(2.0**p for p in range(20)))
    order = measuring_order(widths, points, 90, np.random.default_rng(1))[:90]
    structures, counts = np.unique(order // 20, return_counts=True)
    assert counts.tolist() == [9] * 10
    assert np.diff(structures).min() >= 4


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 60), st.integers(0, 5))
def test_every_candidate_is_there_once_and_a_seed_repeats(structures: int, points: int, rows: int, seed: int) -> None:
    widths = column(*(float(index + 1) for index in range(structures)))
    axis = column(*(2.0**index for index in range(points)))
    orders = [measuring_order(widths, axis, rows, np.random.default_rng(seed)) for _ in range(2)]
    assert sorted(orders[0].tolist()) == list(range(structures * points))
    assert orders[0].tolist() == orders[1].tolist()
