"""Merging replayed durations into a file: what changes, what stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensor_cast.performance_model.profiling_database.schema import BASE_COLUMNS, COUNTERS
from tensor_cast.performance_model.profiling_database.table import Table
from tests.tools.op_replay.small_rows import cells
from tools.perf_data_collection.op_replay.measurements import Measurement
from tools.perf_data_collection.op_replay.signature import signature
from tools.perf_data_collection.op_replay.write_back import NEW_FILE_COLUMNS, measurements_for, merge_replay

PROFILED = [
    *BASE_COLUMNS,
    "Profiling Average Duration(us)",
    "Profiling Median Duration(us)",
    "Mine",
    "Profiling Average aicore_time(us)",
]
ROW_A = cells(["4,8 FLOAT", "4,8 FLOAT"], ["4,8 FLOAT"])
ROW_B = cells(["9,8 FLOAT", "9,8 FLOAT"], ["9,8 FLOAT"])


def measured(given, duration=2.5, operator="Add", identity=None, **counters):
    return Measurement(operator, signature(operator, given), given, duration, counters, identity)


def table(*rows, columns=PROFILED):
    return Table(columns, [[row.get(name, "") for name in columns] for row in rows])


def merged(given, measurements, operator="Add", mode="all", prune=False):
    return merge_replay(
        operator, Path(f"{operator}.csv"), given, measurements, update_all=mode == "all", prune_empty=prune
    )


def cell(outcome, row, column):
    return outcome.table.rows[row][outcome.table.columns.index(column)]


def test_a_known_row_gets_duration_and_counters_and_keeps_everything_else():
    old = {**ROW_A, "Profiling Average Duration(us)": "2.000000", "Mine": "kept"}
    outcome = merged(table(old), [measured(ROW_A, 2.5, **{"aicore_time(us)": 1.25})])
    assert (outcome.updated, outcome.added, outcome.unchanged) == (1, 0, 0)
    assert cell(outcome, 0, "Average Duration(us)") == "2.500000"
    assert cell(outcome, 0, "MicroBench aicore_time(us)") == "1.250000"
    assert cell(outcome, 0, "MicroBench aiv_time(us)") == ""
    assert [cell(outcome, 0, name) for name in PROFILED] == [old.get(name, "") for name in PROFILED]
    assert outcome.table.columns[:10] == [*BASE_COLUMNS, "Average Duration(us)", "Profiling Average Duration(us)"]
    place = outcome.table.columns.index("Profiling Average aicore_time(us)")
    assert outcome.table.columns[place - 1] == "MicroBench aicore_time(us)"
    assert [(gap.replay_us, gap.profile_us, gap.ratio) for gap in outcome.gaps] == [(2.5, 2.0, 1.25)]


def test_doing_it_again_changes_nothing():
    first = merged(table(ROW_A), [measured(ROW_A)])
    second = merged(first.table, [measured(ROW_A)])
    assert second.table is None
    assert (second.updated, second.unchanged) == (0, 1)


def test_unknown_rows_are_appended_in_mode_all_only():
    outcome = merged(table(ROW_A), [measured(ROW_B, 7.0)])
    assert (outcome.added, len(outcome.missing)) == (1, 1)
    assert cell(outcome, 1, "Average Duration(us)") == "7.000000"
    assert cell(outcome, 1, "Input Shapes") == '"9,8;9,8"'
    outcome = merged(table(ROW_A), [measured(ROW_B)], mode="missing-only")
    assert (outcome.added, len(outcome.missing)) == (0, 1)
    assert outcome.missing == ["9,8;9,8 -> 9,8"]


@pytest.mark.parametrize("valid", ["Average Duration(us)", "Profiling Average Duration(us)"])
@pytest.mark.parametrize(
    ("text", "is_valid"), [("3.0", True), ("0", False), ("", False), ("N/A", False), ("-1", False), ("abc", False)]
)
def test_missing_only_writes_rows_without_a_valid_duration(valid, text, is_valid):
    columns = [*BASE_COLUMNS, "Average Duration(us)", "Profiling Average Duration(us)"]
    outcome = merged(table({**ROW_A, valid: text}, columns=columns), [measured(ROW_A)], mode="missing-only")
    assert (outcome.updated, outcome.unchanged) == ((0, 1) if is_valid else (1, 0))


def test_of_equal_rows_the_first_is_taken_and_the_second_reported():
    outcome = merged(table(ROW_A, ROW_A), [measured(ROW_A)])
    assert [cell(outcome, row, "Average Duration(us)") for row in (0, 1)] == ["2.500000", ""]
    assert outcome.duplicates == ["4,8;4,8 -> 4,8"]


def test_pruning_removes_rows_that_stay_empty_and_nothing_else():
    profiled = {**ROW_B, "Profiling Average Duration(us)": "4"}
    empty = cells(["5 FLOAT"], ["5 FLOAT"])
    kept = merged(table(ROW_A, profiled, empty), [measured(ROW_A)])
    assert len(kept.table.rows) == 3
    outcome = merged(table(ROW_A, profiled, empty), [measured(ROW_A)], prune=True)
    assert [row[2] for row in outcome.table.rows] == ['"4,8;4,8"', '"9,8;9,8"']
    assert outcome.deleted == ["5 -> 5"]


def test_the_three_matrix_kernels_share_measurements_but_are_never_appended():
    known, unknown = cells(["3,8 FLOAT", "5,8 FLOAT"], ["3,5 FLOAT"]), cells(["7,8 FLOAT", "5,8 FLOAT"], ["7,5 FLOAT"])
    both = [measured(known, operator="MatMulV3"), measured(unknown, operator="MatMulV3"), measured(ROW_A)]
    offered = measurements_for("MatMulV2", both)
    assert [row.kernel_type for row in offered] == ["MatMulV3", "MatMulV3"]
    outcome = merged(table(known), offered, operator="MatMulV2")
    assert (outcome.updated, outcome.added, outcome.missing) == (1, 0, [])
    assert measurements_for("Add", both) == [both[2]]


def test_old_columns_are_renamed_or_dropped():
    columns = [*BASE_COLUMNS, "Average Duration(us)", "MicroBench Task Duration(us)", "MicroBench Kernel Duration(us)"]
    outcome = merged(table(ROW_A, columns=columns), [measured(ROW_A)])
    assert outcome.table.columns == [
        *BASE_COLUMNS,
        "Average Duration(us)",
        *(f"MicroBench {name}" for name in COUNTERS),
    ]


def test_a_new_file_has_the_sixty_two_columns():
    outcome = merged(None, [measured(ROW_A)])
    assert tuple(outcome.table.columns) == NEW_FILE_COLUMNS
    assert len(NEW_FILE_COLUMNS) == 62
    assert outcome.table.columns[8:14] == [
        "Average Duration(us)",
        "Profiling Average Duration(us)",
        "Profiling Median Duration(us)",
        "Profiling Std Duration(us)",
        "MicroBench aicore_time(us)",
        "Profiling Average aicore_time(us)",
    ]


def test_the_ep_size_of_a_file_without_one_is_filled_in_when_it_is_unique():
    given = cells(["6,64 DT_BF16"], ["6,64 DT_BF16"])
    sized = {**given, "EP Size": "4"}
    outcome = merged(table(given), [measured(sized, operator="DispatchFFNCombine")], operator="DispatchFFNCombine")
    assert outcome.table.columns[-1] == "EP Size"
    assert (cell(outcome, 0, "EP Size"), cell(outcome, 0, "Average Duration(us)")) == ("4", "2.500000")


def test_a_row_named_by_identity_is_found_among_rows_of_equal_operands():
    from tools.perf_data_collection.op_replay.rows import ReplayRow

    columns = [*BASE_COLUMNS, "Runtime avg_seq_len"]
    rows = [{**ROW_A, "Runtime avg_seq_len": length} for length in ("100", "200")]
    identity = ReplayRow("FusedInferAttentionScore", Path("x"), 3, rows[1]).identity
    outcome = merged(
        table(*rows, columns=columns),
        [measured(rows[1], 9.0, operator="FusedInferAttentionScore", identity=identity)],
        operator="FusedInferAttentionScore",
    )
    assert [cell(outcome, row, "Average Duration(us)") for row in (0, 1)] == ["", "9.000000"]
    assert outcome.duplicates == []
