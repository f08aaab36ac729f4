"""A database directory: reading what is asked for, updating all files or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.merge import MergeCounts, ProfiledRow
from tensor_cast.performance_model.profiling_database.shapes import RowKey, row_key
from tensor_cast.performance_model.profiling_database.store import Database, update_database
from tensor_cast.performance_model.profiling_database.table import read_table

BuildRow = Callable[..., ProfiledRow]
HEADER = "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,"


def key(shape: str) -> RowKey:
    return row_key(shape, "FLOAT", "ND", shape, "FLOAT", "ND")


def test_update_creates_changes_and_leaves_files(tmp_path: Path, measured_row: BuildRow) -> None:
    directory = tmp_path / "new" / "database"
    created = update_database(directory, {"Add": [measured_row("4", 1.0)], "Mul": [measured_row("4", 2.0)]})
    assert [(change.path.name, change.created, change.rows) for change in created] == [
        ("Add.csv", True, MergeCounts(new=1)),
        ("Mul.csv", True, MergeCounts(new=1)),
    ]
    untouched = (directory / "Mul.csv").stat().st_mtime_ns
    changed = update_database(directory, {"Add": [measured_row("4", 3.0)], "Mul": [measured_row("4", 2.0)]})
    assert [(change.written, change.rows) for change in changed] == [
        (True, MergeCounts(updated=1)),
        (False, MergeCounts(unchanged=1)),
    ]
    assert (directory / "Mul.csv").stat().st_mtime_ns == untouched
    assert Database(directory).rows("Add").duration_us.tolist() == [3.0]


def test_a_damaged_file_stops_the_update_before_anything_is_written(tmp_path: Path, measured_row: BuildRow) -> None:
    (tmp_path / "Mul.csv").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ModelingError, match=r"Mul\.csv is a Git LFS pointer"):
        update_database(tmp_path, {"Add": [measured_row("4", 1.0)], "Mul": [measured_row("4", 1.0)]})
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == ["Mul.csv"]


def test_only_the_files_asked_for_are_read(tmp_path: Path, measured_row: BuildRow) -> None:
    update_database(tmp_path, {"Add": [measured_row("4", 1.0)]})
    (tmp_path / "Broken.csv").write_bytes(b"")
    (tmp_path / "hcom_allReduce_.csv").write_bytes(b"message_bytes\r\n")
    (tmp_path / "Add.tmp.csv").write_bytes(b"")
    database = Database(tmp_path)
    assert database.kernel_types == ("Add", "Broken")
    assert database.rows("Add").keys == (key("4"),)
    assert database.rows("Add") is database.rows("Add")
    assert database.table("Add") == read_table(tmp_path / "Add.csv")
    with pytest.raises(ModelingError, match=r"Broken\.csv is empty"):
        database.rows("Broken")
    with pytest.raises(ModelingError, match=r"has no Ad\.csv\. Did you mean Add"):
        database.rows("Ad")


def test_first_valid_duration_of_a_row_wins(tmp_path: Path) -> None:
    rows = [
        '"""1""",FLOAT,ND,"""1""",FLOAT,ND,5.0,3.0',  # replayed
        '"""2""",FLOAT,ND,"""2""",FLOAT,ND,,3.5',  # profiled
        '"""3""",FLOAT,ND,"""3""",FLOAT,ND,0,N/A',  # neither
        '"""4""",FLOAT,ND,"""4""",FLOAT,ND,-1,inf',
        '"""5""",FLOAT,ND,"""5""",FLOAT,ND,nan,1e12',  # longer than any kernel
        '"""6""",FLOAT,ND,"""6""",FLOAT,ND,abc,6.5',
    ]
    text = HEADER + "Average Duration(us),Profiling Average Duration(us)\n" + "\n".join(rows) + "\n"
    (tmp_path / "Add.csv").write_text(text)
    found = Database(tmp_path).rows("Add")
    assert found.keys == (key("1"), key("2"), key("6"))
    assert found.duration_us.tolist() == [5.0, 3.5, 6.5]
    assert found.replayed.tolist() == [True, False, False]
    assert found.index[key("2")] == 1


def test_first_generation_files_and_further_columns(tmp_path: Path) -> None:
    # Equal shapes, different lengths in use: both rows count, and the lengths tell them apart.
    text = HEADER + (
        "Average Duration(us),Median Duration(us),avg_seq_len\n"
        '"""1""",FLOAT,ND,"""1""",FLOAT,ND,58.2,,4096\n"""1""",FLOAT,ND,"""1""",FLOAT,ND,120.5,,8192\n'
    )
    (tmp_path / "FusedInferAttentionScore.csv").write_text(text)
    found = Database(tmp_path).rows("FusedInferAttentionScore", ("Runtime avg_seq_len", "Runtime num_heads"))
    assert found.duration_us.tolist() == [58.2, 120.5]
    assert not found.replayed.any()
    assert found.extra == {"Runtime avg_seq_len": ("4096", "8192"), "Runtime num_heads": ("", "")}
    assert found.index == {key("1"): 0}


def test_file_without_key_columns_or_with_a_short_row(tmp_path: Path) -> None:
    (tmp_path / "Add.csv").write_text("Input Shapes,Average Duration(us)\n1,2\n")
    (tmp_path / "Mul.csv").write_text(HEADER + "Average Duration(us)\n1,2\n")
    database = Database(tmp_path)
    with pytest.raises(ModelingError, match=r"Add\.csv has no column 'Input Data Types', 'Input Formats'"):
        database.rows("Add")
    with pytest.raises(ModelingError, match=r"Mul\.csv, line 2: 2 cells where the header has 7"):
        database.rows("Mul")


def test_directories_that_are_no_database(tmp_path: Path) -> None:
    with pytest.raises(ModelingError, match=r"absent does not exist"):
        Database(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelingError, match=r"file is a file"):
        Database(tmp_path / "file")
    (tmp_path / "hcom_allReduce_.csv").write_text("")
    with pytest.raises(ModelingError, match=r"no kernel CSV files directly in it\.$"):
        Database(tmp_path)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "Add.csv").write_text("")
    with pytest.raises(ModelingError, match=r"no kernel CSV files directly in it\. Databases lie below it: .*below"):
        Database(tmp_path)
