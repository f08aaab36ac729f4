"""Counting a database's rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tensor_cast.performance_model.profiling_database.coverage import coverage
from tensor_cast.performance_model.profiling_database.merge import ProfiledRow
from tensor_cast.performance_model.profiling_database.store import update_database
from tensor_cast.performance_model.profiling_database.table import Table, read_table, table_bytes

BuildRow = Callable[..., ProfiledRow]


def add_replays(path: Path, durations: list[str]) -> None:
    table = read_table(path)
    rows = [[*row, duration] for row, duration in zip(table.rows, durations, strict=True)]
    path.write_bytes(table_bytes(Table([*table.columns, "Average Duration(us)"], rows)))


def test_rows_are_counted_by_where_their_time_comes_from(tmp_path: Path, measured_row: BuildRow) -> None:
    empty = replace(measured_row("3", 0.0), profile=("", "", "", *[""] * 25, ""))
    rows = [
        measured_row("1", 2.0, count=5),
        measured_row("2", 2.0, count=7),
        empty,
        replace(empty, base=measured_row("4", 1.0).base),
    ]
    update_database(tmp_path, {"Add": rows})
    add_replays(tmp_path / "Add.csv", ["", "2.5", "", "9.0"])
    found = coverage(tmp_path)
    (add,) = found.kernels
    assert add.states == {"measured": 1, "both": 1, "empty": 1, "replayed": 1}
    assert (add.rows, add.timed, add.invocations, add.duplicates) == (4, 3, 12, 0)
    assert found.total("both") == 1
    assert add.outliers == ()
    assert "Add" not in found.missing_kernels
    assert "Sort" in found.missing_kernels
    assert len(found.missing_kernels) == 35


def test_duplicates_and_rows_that_do_not_fit_together(tmp_path: Path, measured_row: BuildRow) -> None:
    def profiled(shape: str, mean: str, median: str, std: str) -> ProfiledRow:
        row = measured_row(shape, 1.0)
        return replace(row, profile=(mean, median, std, *row.profile[3:]))

    rows = [
        profiled("1", "1734.4", "1500.0", "2664.4"),  # deviation above the mean
        profiled("2", "10.0", "4.0", "5.0"),  # mean 2.5 times the median
        profiled("3", "10.0", "10.0", "1.0"),
    ]
    update_database(tmp_path, {"Neg": rows})
    add_replays(tmp_path / "Neg.csv", ["", "9.0", "4.9"])  # the last is less than half of its profile
    table = read_table(tmp_path / "Neg.csv")
    (tmp_path / "Neg.csv").write_bytes(table_bytes(Table(table.columns, [*table.rows, table.rows[2]])))
    (neg,) = coverage(tmp_path).kernels
    assert neg.duplicates == 1
    assert [(outlier.line, outlier.shapes) for outlier in neg.outliers] == [
        (2, '"1"'),
        (3, '"2"'),
        (4, '"3"'),
        (5, '"3"'),
    ]
    assert [outlier.reason for outlier in neg.outliers[:3]] == [
        "the profile's deviation 2664.4 us exceeds its mean 1734.4 us",
        "the profile's mean 10 us is far from its median 4 us",
        "the replay's 4.9 us is far from the profile's 10 us",
    ]


def test_attention_rows_of_other_lengths_are_no_duplicates(tmp_path: Path, measured_row: BuildRow) -> None:
    rows = [measured_row("8,4", 1.0, avg_seq_len="4096"), measured_row("8,4", 2.0, avg_seq_len="8192")]
    update_database(tmp_path, {"FusedInferAttentionScore": rows})
    (attention,) = coverage(tmp_path).kernels
    assert (attention.rows, attention.duplicates) == (2, 0)
