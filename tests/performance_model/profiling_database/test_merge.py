"""Merging newly profiled rows into what a file holds."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_cast.performance_model.profiling_database.merge import MergeCounts, ProfiledRow, merge_profile
from tensor_cast.performance_model.profiling_database.schema import KEY_COLUMNS, PROFILE_COLUMNS, kernel_columns
from tensor_cast.performance_model.profiling_database.table import Table

BuildRow = Callable[..., ProfiledRow]


def cell(table: Table, row: int, column: str) -> str:
    return table.cells(table.rows[row])[column]


def test_a_new_file_has_the_contracts_columns_and_the_order_of_appearance(measured_row: BuildRow) -> None:
    table, counts = merge_profile(None, "Add", [measured_row("8", 2.0), measured_row("4", 1.0)])
    assert table.columns == list(kernel_columns("Add"))
    assert [cell(table, row, "Input Shapes") for row in (0, 1)] == ['"8"', '"4"']
    assert table.rows[0] == [*measured_row("8", 2.0).base, *measured_row("8", 2.0).profile]
    assert counts == MergeCounts(new=2)


def test_known_rows_change_their_profile_alone(measured_row: BuildRow) -> None:
    columns = [*KEY_COLUMNS, "Average Duration(us)", "MicroBench aicore_time(us)", "my note"]
    old = Table(
        columns,
        [
            ["4", "DT_FLOAT", "FORMAT_ND", '"4"', "FLOAT", "ND", "7.5", "3.0", "kept"],  # the same row, spelt otherwise
            ["16", "FLOAT", "ND", "16", "FLOAT", "ND", "", "", "generated"],
        ],
    )
    table, counts = merge_profile(old, "Add", [measured_row("4", 1.25), measured_row("8", 2.0)])
    assert counts == MergeCounts(new=1, updated=1)
    assert [row[table.columns.index("my note")] for row in table.rows] == ["kept", "generated", ""]
    assert cell(table, 0, "Input Shapes") == "4"
    assert cell(table, 0, "Average Duration(us)") == "7.5"
    assert cell(table, 0, "MicroBench aicore_time(us)") == "3.0"
    assert cell(table, 0, "Profiling Average Duration(us)") == "1.250000"
    assert cell(table, 1, "Profiling Average Duration(us)") == ""
    assert table.columns[:9] == ["OP State", "Accelerator Core", *KEY_COLUMNS, "Average Duration(us)"]
    assert old.columns == columns
    assert len(old.rows) == 2


def test_measuring_again_replaces_and_does_not_pool(measured_row: BuildRow) -> None:
    first, _ = merge_profile(None, "Add", [measured_row("4", 1.0, count=100)])
    second, counts = merge_profile(first, "Add", [measured_row("4", 3.0, count=2)])
    assert counts == MergeCounts(updated=1)
    assert cell(second, 0, "Profiling Average Duration(us)") == "3.000000"
    assert cell(second, 0, "Profiling Duration Count") == "2"


def test_rows_of_different_dtypes_stay_apart(measured_row: BuildRow) -> None:
    table, counts = merge_profile(None, "Add", [measured_row("4;", 1.0), measured_row("4;", 2.0, dtype="INT64")])
    assert counts.new == 2
    assert [cell(table, row, "Input Data Types") for row in (0, 1)] == ["FLOAT", "INT64"]


def test_of_two_equal_rows_the_first_is_updated(measured_row: BuildRow) -> None:
    once, _ = merge_profile(None, "Add", [measured_row("4", 1.0)])
    twice = Table(once.columns, [list(once.rows[0]), list(once.rows[0])])
    table, counts = merge_profile(twice, "Add", [measured_row("4", 2.0)])
    assert counts == MergeCounts(updated=1)
    assert [cell(table, row, "Profiling Average Duration(us)") for row in (0, 1)] == ["2.000000", "1.000000"]


def test_attention_with_known_lengths_is_not_overwritten_by_shapes_alone(measured_row: BuildRow) -> None:
    kernel = "FusedInferAttentionScore"
    known = measured_row("8,4,128", 58.2, avg_seq_len="4096", metadata_completeness="runtime_values")
    old, _ = merge_profile(None, kernel, [known])
    plain = measured_row("8,4,128", 20.0, metadata_completeness="profile_shapes_only", block_table_shape="8,512")
    table, counts = merge_profile(old, kernel, [plain])
    assert counts == MergeCounts(new=1)
    assert [cell(table, row, "Runtime avg_seq_len") for row in (0, 1)] == ["4096", ""]
    assert cell(table, 1, "Runtime block_table_shape") == "8,512"
    again, counts = merge_profile(table, kernel, [plain])
    assert counts == MergeCounts(unchanged=1)
    assert again == table


def test_attention_rows_without_runtime_columns_get_them(measured_row: BuildRow) -> None:
    row = measured_row("8,4,128", 20.0, metadata_completeness="profile_shapes_only", source_profile="run_1")
    old = Table(list(KEY_COLUMNS), [list(row.base[2:])])
    table, _ = merge_profile(old, "FusedInferAttentionScore", [row])
    assert cell(table, 0, "Runtime source_profile") == "run_1"


ROWS = st.lists(
    st.tuples(st.integers(1, 6), st.floats(0.001, 1e6), st.sampled_from(["FLOAT", "DT_BF16", "INT64"])), max_size=8
)


@settings(deadline=None)
@given(old=ROWS, new=ROWS)
def test_merging_twice_is_merging_once(old: list[tuple[int, float, str]], new: list[tuple[int, float, str]]) -> None:
    def rows(drawn: list[tuple[int, float, str]]) -> list[ProfiledRow]:
        unique = {(size, dtype): mean for size, mean, dtype in drawn}
        return [
            ProfiledRow(
                ("dynamic", "AI_CORE", f'"{size}"', dtype, "ND", f'"{size}"', dtype, "ND"),
                (f"{mean:.6f}", *["0.000000"] * (len(PROFILE_COLUMNS) - 2), "1"),
            )
            for (size, dtype), mean in unique.items()
        ]

    before, _ = merge_profile(None, "Add", rows(old))
    once, first = merge_profile(before, "Add", rows(new))
    twice, second = merge_profile(once, "Add", rows(new))
    assert twice == once
    assert second == MergeCounts(unchanged=len(rows(new)))
    assert len(once.rows) == len(before.rows) + first.new
    assert first.new + first.updated + first.unchanged == len(rows(new))
