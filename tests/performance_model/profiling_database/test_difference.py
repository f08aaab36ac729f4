"""Comparing two databases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tensor_cast.performance_model.profiling_database.difference import difference
from tensor_cast.performance_model.profiling_database.merge import ProfiledRow
from tensor_cast.performance_model.profiling_database.store import update_database

BuildRow = Callable[..., ProfiledRow]


def test_rows_added_removed_and_changed(tmp_path: Path, measured_row: BuildRow) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    update_database(before, {"Add": [measured_row("1", 2.0), measured_row("2", 4.0), measured_row("3", 1.0)]})
    update_database(
        after,
        {
            "Add": [measured_row("1", 3.0), measured_row("2", 5.0, dtype="DT_FLOAT"), measured_row("9", 1.0)],
            "Mul": [measured_row("1", 1.0)],
        },
    )
    add, mul = difference(before, after)
    assert (add.kernel_type, add.only_before, add.only_after, add.equal) == ("Add", 1, 1, 0)
    assert [(row.shapes, row.before_us, row.after_us) for row in add.changed] == [("1", 2.0, 3.0), ("2", 4.0, 5.0)]
    assert add.median_ratio == pytest.approx((1.5 + 1.25) / 2)
    assert (mul.only_before, mul.only_after, mul.changed) == (0, 1, ())
    assert not add.is_equal
    assert not mul.is_equal


def test_a_database_equals_itself(tmp_path: Path, measured_row: BuildRow) -> None:
    update_database(tmp_path, {"Add": [measured_row("1", 2.0)]})
    (add,) = difference(tmp_path, tmp_path)
    assert add.is_equal
    assert (add.equal, add.median_ratio) == (1, None)


def test_a_lost_duration_is_a_change_without_a_ratio(tmp_path: Path, measured_row: BuildRow) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    update_database(before, {"Add": [measured_row("1", 2.0)]})
    update_database(after, {"Add": [measured_row("1", 0.0)]})
    (add,) = difference(before, after)
    assert [(row.before_us, row.after_us, row.ratio) for row in add.changed] == [(2.0, None, None)]
