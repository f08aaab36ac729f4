"""From op_summary files to measurements."""

from __future__ import annotations

import pytest

from tests.tools.op_replay.small_rows import cells
from tools.perf_data_collection.op_replay.journal import RowRecord
from tools.perf_data_collection.op_replay.measurements import Launch, measure, read_launches
from tools.perf_data_collection.op_replay.op_summary import OpSummaryWriter
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.signature import signature

ROW = cells(["4,8 FLOAT", "() FLOAT"], ["4,8 FLOAT"])
NOTHING = {**ROW, **{name: "N/A" for name in ROW if "put" in name}}


def launch(given, duration, kernel="Add", **counters):
    return Launch(kernel, given, duration, counters)


def record(given, identity, launches, process="1", kernel="Add", line=2):
    return RowRecord(
        kernel, identity, line, "", "done", launches=launches, process=process, signature=signature(kernel, given)
    )


def test_the_shortest_duration_and_the_mean_of_each_counter_count():
    launches = [launch(ROW, 3.0, aic_mac_ratio=0.2), launch(ROW, 2.0, aic_mac_ratio=0.4), launch(ROW, 4.0)]
    [found] = measure([launches], [record(ROW, "a", 3)]).rows
    assert (found.duration_us, found.identity) == (2.0, None)
    assert found.counters == {"aic_mac_ratio": pytest.approx(0.3)}


def test_launches_of_several_processes_are_one_group():
    [found] = measure([[launch(ROW, 3.0)], [launch(ROW, 2.0)]], []).rows
    assert found.duration_us == 2.0


def test_rows_of_equal_operands_are_told_apart_by_their_order():
    records = [record(ROW, "short", 2), record(ROW, "long", 1)]
    found = measure([[launch(ROW, 5.0), launch(ROW, 4.0), launch(ROW, 90.0)]], records).rows
    assert [(row.identity, row.duration_us) for row in found] == [("short", 4.0), ("long", 90.0)]


def test_kernels_without_operands_are_told_by_their_order_too():
    other = cells(["7 FLOAT"], ["7 FLOAT"])
    kernel = "split_qkv_rmsnorm_rope_kernel"
    records = [record(ROW, "a", 1, kernel=kernel), record(other, "b", 2, kernel=kernel)]
    launches = [launch(NOTHING, duration, kernel) for duration in (1.0, 3.0, 2.0)]
    found = measure([launches], records).rows
    assert [(row.identity, row.duration_us) for row in found] == [("a", 1.0), ("b", 2.0)]


def test_when_the_numbers_do_not_agree_nothing_is_guessed():
    found = measure([[launch(ROW, 5.0)]], [record(ROW, "short", 2), record(ROW, "long", 1)])
    assert found.rows == []
    assert found.warnings == ["Add: 1 launches do not fit 2 rows of equal operands; they are left out."]


def test_each_process_is_fitted_by_its_own_rows():
    records = [record(ROW, "a", 1, "1"), record(ROW, "b", 1, "2"), record(ROW, "c", 1, "2")]
    found = measure([[launch(ROW, 1.0)], [launch(ROW, 2.0), launch(ROW, 3.0)]], records).rows
    assert {row.identity: row.duration_us for row in found} == {"a": 1.0, "b": 2.0, "c": 3.0}


NINE_SLOTS = [
    cells([f"{tokens},64 INT8", "2,2,4,16,32 INT8 FRACTAL_NZ", *["-"] * 5, "2 INT64", f"{tokens} FLOAT"], ["-"])
    for tokens in (5, 6)
]
FIVE_SLOTS = [
    cells([f"{tokens},64 INT8", "2,2,4,16,32 INT8 FRACTAL_NZ", f"{tokens} FLOAT", "2 INT64"], [f"{tokens},32 INT8"])
    for tokens in (5, 6)
]
KERNEL = "GroupedMatmulSwigluQuant"


def test_rows_that_no_profile_spells_so_are_told_by_their_order():
    launches = [launch(given, time, KERNEL) for given, time in zip(FIVE_SLOTS, (1.0, 2.0), strict=True)]
    records = [record(given, name, 1, kernel=KERNEL) for given, name in zip(NINE_SLOTS, "ab", strict=True)]
    found = measure([launches], records).rows
    assert [(row.identity, row.duration_us) for row in found] == [("a", 1.0), ("b", 2.0)]
    # A row that is spelt as the profile spells it keeps its launch, and the other one gets what is left.
    found = measure([launches], [record(FIVE_SLOTS[0], "a", 1, kernel=KERNEL), records[1]]).rows
    assert {row.identity: row.duration_us for row in found} == {None: 1.0, "b": 2.0}


@pytest.mark.parametrize(
    "records",
    [
        [record(NINE_SLOTS[0], "a", 1, kernel=KERNEL)],  # one row of two launches
        [record(given, "ab"[index], 1, kernel=KERNEL) for index, given in enumerate(NINE_SLOTS[::-1])],  # 6 before 5
    ],
)
def test_launches_of_other_sizes_or_numbers_are_no_respelt_rows(records):
    found = measure([[launch(given, 1.0, KERNEL) for given in FIVE_SLOTS]], records)
    assert [row.identity for row in found.rows] == [None, None]


def test_dispatch_ffn_combine_gets_the_ep_size():
    [found] = measure([[launch(ROW, 1.0, "DispatchFFNCombine")]], [], ep_size=8).rows
    assert found.cells["EP Size"] == found.signature[-1] == "8"


def test_what_is_written_is_what_is_read(tmp_path):
    from pathlib import Path

    row = ReplayRow("Add", Path("Add.csv"), 2, ROW)
    writer = OpSummaryWriter(tmp_path, rank=3)
    writer.add(row, "CPU", [2.5, 1.25])
    writer.add(row, "CPU", [9.0])
    writer.close()
    [path] = tmp_path.glob("PROF_000003_*/mindstudio_profiler_output/op_summary_*.csv")
    text = path.read_bytes()
    assert b"\r" not in text
    assert text.splitlines()[1].count(b"\t") == 1
    [launches] = read_launches(tmp_path)
    assert [item.duration_us for item in launches] == [2.5, 1.25, 9.0]
    assert {item.kernel_type for item in launches} == {"Add"}
    assert launches[0].counters == {}
    assert signature("Add", launches[0].cells) == signature("Add", ROW)
    assert launches[0].cells["Accelerator Core"] == "CPU"


def test_a_writer_without_rows_leaves_no_file(tmp_path):
    OpSummaryWriter(tmp_path).close()
    assert list(tmp_path.iterdir()) == []
