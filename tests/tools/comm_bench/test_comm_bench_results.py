from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.communication import read_collectives
from tensor_cast.performance_model.profiling_database.table import Table
from tensor_cast.performance_model.profiling_database.validation import validate_file
from tools.perf_data_collection.comm_bench.plan import Case
from tools.perf_data_collection.comm_bench.results import PROVENANCE_NAME, Results, _with_row, bandwidth

HEADER = "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps"
MADE_BY = {"backend": "hccl", "library": "hccl", "grid_shape": [48, 8, 2]}
CASE = Case("all_reduce", 1048576, 16, 1)


def results(directory: Path) -> Results:
    return Results(directory, None, "DT_BF16")


def lines(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\r\n")


def test_bandwidth_is_message_bytes_over_the_duration() -> None:
    # 1,048,576 bytes in 100 us are 10.48576e9 bytes/s, whatever the group.
    assert bandwidth(CASE, 100.0) == pytest.approx(10.48576)


def test_a_new_file_has_the_columns_and_the_raw_duration(tmp_path: Path) -> None:
    results(tmp_path / "new").write(CASE, 100.004, MADE_BY)
    path = tmp_path / "new" / "hcom_allReduce_.csv"
    assert lines(path) == [HEADER, "1048576,16,DT_BF16,1,100.00,10.49", ""]
    assert list(validate_file(path)) == []
    assert json.loads((tmp_path / "new" / PROVENANCE_NAME).read_text())[path.name]["durations"] == "raw"


def test_every_op_has_its_file(tmp_path: Path) -> None:
    for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        results(tmp_path).write(Case(op, 1024, 2, 2), 1.0, MADE_BY)
    assert sorted(path.name for path in tmp_path.glob("*.csv")) == [
        "hcom_allGather_.csv",
        "hcom_allReduce_.csv",
        "hcom_alltoallv_.csv",
        "hcom_reduceScatter_.csv",
    ]


def test_a_repeated_measurement_updates_its_row(tmp_path: Path) -> None:
    out = results(tmp_path)
    for size, duration in ((1024, 5.0), (2048, 6.0), (1024, 4.0)):
        out.write(Case("all_reduce", size, 16, 1), duration, MADE_BY)
    path = tmp_path / "hcom_allReduce_.csv"
    assert lines(path)[1:3] == ["1024,16,DT_BF16,1,4.00,0.26", "2048,16,DT_BF16,1,6.00,0.34"]
    assert read_collectives(path).duration_us.tolist() == [4.0, 6.0]


def test_other_groups_tiers_and_dtypes_are_other_rows(tmp_path: Path) -> None:
    for case in (CASE, Case("all_reduce", 1048576, 8, 1), Case("all_reduce", 1048576, 16, 0)):
        results(tmp_path).write(case, 5.0, MADE_BY)
    Results(tmp_path, None, "DT_INT8").write(CASE, 5.0, MADE_BY)
    assert len(read_collectives(tmp_path / "hcom_allReduce_.csv").duration_us) == 4


def test_twins_that_another_tool_appended_go_and_all_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "hcom_allReduce_.csv"
    path.write_text(
        "message_bytes,note,num_devices,dtype,topology_tier,Duration(us)\n"
        "1048576,first,16,DT_BF16,1,90\n512,small,16,DT_BF16,1,5\n1048576.0,second,16,DT_BF16,1,80\n"
    )
    results(tmp_path).write(CASE, 100.0, MADE_BY)
    assert lines(path) == [
        "message_bytes,note,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps",
        "1048576,first,16,DT_BF16,1,100.00,10.49",
        "512,small,16,DT_BF16,1,5,",
        "",
    ]


KEYS = st.tuples(*(st.integers(1, 3).map(str) for _ in range(4)))


@given(st.lists(st.tuples(KEYS, st.floats(0.1, 1e6)), max_size=12))
def test_rows_of_any_order_keep_one_row_a_key_with_the_last_figure(writes: list[tuple[tuple[str, ...], float]]) -> None:
    table = Table(HEADER.split(","), [])
    for key, duration in writes:
        table = _with_row(table, key, [f"{duration:.2f}", ""])
        assert _with_row(table, key, [f"{duration:.2f}", ""]).rows == table.rows
    assert {tuple(row[:4]): row[4] for row in table.rows} == {key: f"{duration:.2f}" for key, duration in writes}
    assert len(table.rows) == len({key for key, _ in writes})


def test_resuming_leaves_out_rows_that_have_a_duration(tmp_path: Path) -> None:
    empty = Case("all_reduce", 2048, 16, 1)
    results(tmp_path).write(CASE, 5.0, MADE_BY)
    with (tmp_path / "hcom_allReduce_.csv").open("ab") as stream:
        stream.write(b"2048,16,DT_BF16,1,,\r\n")
    assert results(tmp_path).measured([CASE, empty, Case("all_gather", 1048576, 16, 1)]) == {CASE}


@pytest.mark.parametrize("name", ["backend", "grid_shape"])
def test_figures_of_another_library_or_grid_are_not_mixed_in(tmp_path: Path, name: str) -> None:
    results(tmp_path).write(CASE, 5.0, MADE_BY)
    before = (tmp_path / "hcom_allReduce_.csv").read_bytes()
    with pytest.raises(ModelingError, match=f"holds figures of {name.replace('_', ' ')}"):
        results(tmp_path).write(CASE, 6.0, {**MADE_BY, name: "another"})
    assert (tmp_path / "hcom_allReduce_.csv").read_bytes() == before


def test_a_single_file_takes_the_place_of_the_database(tmp_path: Path) -> None:
    Results(tmp_path / "database", tmp_path / "one.csv", "DT_BF16").write(CASE, 5.0, MADE_BY)
    assert (tmp_path / "one.csv").exists()
    assert not (tmp_path / "database").exists()


def test_without_a_path_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Results(None, None, "DT_BF16").write(CASE, 5.0, MADE_BY)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "hcom_allReduce_.csv"
    path.write_text(f"{HEADER}\n1,2\n")
    with pytest.raises(ModelingError, match="line 2: 2 cells"):
        results(tmp_path).write(CASE, 5.0, MADE_BY)
    assert path.read_text() == f"{HEADER}\n1,2\n"
