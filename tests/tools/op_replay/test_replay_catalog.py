"""Names of operators, rows and the journal."""

from __future__ import annotations

import pytest

from tensor_cast.errors import ModelingError
from tests.tools.op_replay.small_rows import SMALL_ROWS, cells, row, write_database
from tools.perf_data_collection.op_replay import catalog
from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.journal import Journal, OperatorRecord, RowRecord
from tools.perf_data_collection.op_replay.progress import Progress, duration_text
from tools.perf_data_collection.op_replay.rows import operator_files, pending_rows


def test_operators_may_be_named_four_ways():
    known = catalog.operators()
    assert len(known) == 36
    assert catalog.selected_operators(["Add", "Sort_run", "Add_run.py", "MatMulV2.csv"], known) == (
        "Add",
        "Sort",
        "MatMulV2",
    )


def test_an_unknown_operator_lists_those_available():
    with pytest.raises(
        ModelingError, match=r"'MatMulV1' cannot be replayed. Did you mean .*MatMulV2.*Available: .*Add,"
    ):
        catalog.selected_operators(["MatMulV1"], catalog.operators())


def test_files_directly_in_the_directory_come_first_and_run_directories_never(tmp_path):
    write_database(tmp_path / "deep", "Add", SMALL_ROWS["Add"])
    write_database(tmp_path / "msprof_run_x", "Add", SMALL_ROWS["Add"])
    assert operator_files(tmp_path, "Add") == [tmp_path / "deep" / "Add.csv"]
    write_database(tmp_path, "Add", SMALL_ROWS["Add"])
    assert operator_files(tmp_path, "Add") == [tmp_path / "Add.csv"]
    assert operator_files(tmp_path, "Sort") == []


def test_pending_rows_leave_out_the_measured_the_settled_and_repetitions(tmp_path):
    first, second = SMALL_ROWS["Add"][:2]
    write_database(tmp_path, "Add", [{**first, "Average Duration(us)": "2"}, second, second])
    assert [item.line for item in pending_rows(tmp_path, "Add", "all")] == [2, 3]
    [missing] = pending_rows(tmp_path, "Add", "missing-only")
    assert missing.line == 3
    assert pending_rows(tmp_path, "Add", "missing-only", {missing.identity}) == []
    with pytest.raises(FileNotFoundError, match=r"Sort.csv is nowhere below"):
        pending_rows(tmp_path, "Sort", "all")


def test_a_row_is_the_same_however_it_is_spelt_but_not_with_other_lengths():
    given = cells(["4 DT_FLOAT"], ["4 FLOAT"])
    same = {**given, "Input Data Types": "FLOAT", "Average Duration(us)": "3", "Runtime source_profile": "x"}
    assert row("Add", given).identity == row("Add", same, line=9).identity
    assert row("Add", given).identity != row("Add", {**given, "Runtime avg_seq_len": "9"}).identity
    assert row("Add", given).identity != row("Sort", given).identity


def test_cells_that_hold_no_number_say_so():
    given = row(
        "Add",
        cells(["4 FLOAT"], ["4 FLOAT"], Runtime_num_heads="many", Runtime_block_size="128.0", Runtime_x="[1, 2.0;3]"),
    )
    assert given.whole_number("Runtime block_size") == 128
    assert given.whole_number("Runtime nothing") is None
    assert given.numbers("Runtime x") == (1, 2, 3)
    with pytest.raises(RowError, match="Runtime num_heads 'many' is not a whole number"):
        given.whole_number("Runtime num_heads")


def test_of_several_records_the_last_counts_and_a_torn_line_does_not(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    assert journal.read().settled() == set()
    for state in ("started", "done"):
        journal.append(RowRecord("Add", "a", 2, "", state, signature=("1", "2")))
    journal.append(RowRecord("Add", "b", 3, "", "started"))
    journal.append(OperatorRecord("Sort", "failed", "no"))
    with journal.path.open("a") as stream:
        stream.write('{"event": "row", "operator": "Ad')
    content = journal.read()
    assert content.settled() == {"a"}
    assert content.rows["a"].signature == ("1", "2")
    assert content.unfinished("Add").identity == "b"
    assert content.operators["Sort"].reason == "no"
    journal.rewrite([content.rows["a"]])
    assert journal.read().rows == {"a": content.rows["a"]}
    assert list(tmp_path.iterdir()) == [journal.path]


def test_progress_survives_its_text_and_tells_the_time_left(capsys):
    progress = Progress(2, 5, 10, 40, started=1.0)
    assert Progress.parse(progress.text()) == progress
    progress.begin(row("Add", SMALL_ROWS["Add"][0]))
    line = capsys.readouterr().err
    assert "[operator 2/5, row 11/40, " in line
    assert " left] Add 3,8;8 -> 3,8" in line
    assert [duration_text(seconds) for seconds in (5, 65, 3700)] == ["5 s", "1 min 5 s", "1 h 1 min"]
