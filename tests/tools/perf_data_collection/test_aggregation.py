"""From kernel rows to measured rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_cast.performance_model.profiling_database.merge import ProfiledRow
from tools.perf_data_collection.parsers import aggregation
from tools.perf_data_collection.parsers.aggregation import Aggregation
from tools.perf_data_collection.parsers.kernel_file import open_kernel_file, read_chunks

BuildProfile = Callable[..., str]
Aggregate = Callable[..., Aggregation]


@pytest.fixture
def aggregate(tmp_path: Path, profile: BuildProfile) -> Aggregate:
    def build(*rows: dict[str, str], chunk_bytes: int = 1 << 20) -> Aggregation:
        path = tmp_path / "kernel_details.csv"
        path.write_bytes(profile(rows).encode())
        result = Aggregation()
        for chunk in read_chunks(open_kernel_file(path), chunk_bytes):
            result.add(chunk.frame)
        return result

    return build


def only_row(result: Aggregation, kernel_type: str = "Add") -> ProfiledRow:
    (row,) = result.measured_rows()[kernel_type]
    return row


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_statistics_by_hand(aggregate: Aggregate, chunk_bytes: int) -> None:
    rows = [
        {"Duration(us)": "1.0", "aicore_time(us)": "4"},
        {"Duration(us)": "2.0", "aicore_time(us)": "N/A"},
        {"Duration(us)": "3.0\t", "aicore_time(us)": "8"},
        {"Duration(us)": " 6.0", "aicore_time(us)": ""},
    ]
    row = only_row(aggregate(*rows, chunk_bytes=chunk_bytes))
    assert row.base == ("dynamic", "AI_VECTOR_CORE", '"4096;"', "FLOAT;FLOAT", "ND;ND", '"4096"', "FLOAT", "ND")
    # mean 12/4; median (2+3)/2; variance (4+1+0+9)/4 = 3.5.
    assert row.profile[:3] == ("3.000000", "2.500000", f"{math.sqrt(3.5):.6f}")
    # Counters average the rows that have one: (4+8)/2; every row has 1.5 of the others.
    assert row.profile[3:5] == ("6.000000", "1.500000")
    assert row.profile[-1] == "4"


def test_rows_of_other_dtypes_or_formats_are_other_rows(aggregate: Aggregate) -> None:
    result = aggregate(
        {},
        {"Input Data Types": "INT64;INT64"},
        {"Input Formats": "NCL;ND"},
        {"Output Data Types": "FLOAT16"},
        {"Input Data Types": "DT_FLOAT;FLOAT", "Input Formats": "FORMAT_ND;ND", "Input Shapes": "4096;"},
    )
    rows = result.measured_rows()["Add"]
    assert [row.profile[-1] for row in rows] == ["2", "1", "1", "1"]
    # The first spelling is kept.
    assert rows[0].base[2:5] == ('"4096;"', "FLOAT;FLOAT", "ND;ND")


def test_order_is_that_of_first_appearance(aggregate: Aggregate) -> None:
    result = aggregate(
        {"Type": "Mul"}, {"Output Shapes": '"9"'}, {"Output Shapes": '"1"'}, {"Output Shapes": '"9"'}, chunk_bytes=400
    )
    rows = result.measured_rows()
    assert list(rows) == ["Mul", "Add"]
    assert [row.base[5] for row in rows["Add"]] == ['"9"', '"1"']


def test_numbered_triton_kernels_are_one(aggregate: Aggregate) -> None:
    result = aggregate({"Type": "muls_add_kernel_0"}, {"Type": "muls_add_kernel_1"})
    assert only_row(result, "muls_add_kernel").profile[-1] == "2"


def test_state_and_core_are_the_first_that_say_something(aggregate: Aggregate) -> None:
    row = only_row(aggregate({"OP State": "N/A", "Accelerator Core": ""}, {"OP State": "static"}, chunk_bytes=1))
    assert row.base[:2] == ("static", "AI_VECTOR_CORE")


def test_shapes_without_literal_quotes_get_them(aggregate: Aggregate) -> None:
    row = only_row(aggregate({"Input Shapes": "2,3;4", "Output Shapes": ""}))
    assert (row.base[2], row.base[5]) == ('"2,3;4"', '""')


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"Type": "hcom_allReduce_", "Input Shapes": "N/A"}, aggregation.COLLECTIVE),
        ({"Type": "HcomAllReduce"}, aggregation.COLLECTIVE),
        ({"Type": "allgatherAicpuKernel", "Accelerator Core": "HCCL"}, aggregation.COLLECTIVE),
        ({"Input Shapes": "N/A"}, aggregation.NO_SHAPES),
        ({"Output Shapes": ' "n/a" '}, aggregation.NO_SHAPES),
        ({"Type": "N/A"}, aggregation.NO_TYPE),
        ({"Type": ""}, aggregation.NO_TYPE),
        ({"Duration(us)": "1,892.920"}, aggregation.SEPARATED),
        ({"Duration(us)": "N/A"}, aggregation.NOT_A_NUMBER),
        ({"Duration(us)": ""}, aggregation.NOT_A_NUMBER),
        ({"Duration(us)": "nan"}, aggregation.NOT_A_NUMBER),
        ({"Duration(us)": "0.000"}, aggregation.NOT_POSITIVE),
        ({"Duration(us)": "-3.5"}, aggregation.NOT_POSITIVE),
        ({"Duration(us)": "-inf"}, aggregation.NOT_POSITIVE),
        ({"Duration(us)": "inf"}, aggregation.ABSURD),
        ({"Duration(us)": "1764246877073569.640"}, aggregation.ABSURD),
    ],
)
def test_rows_that_cannot_be_used_are_counted_and_enter_nothing(
    aggregate: Aggregate, row: dict[str, str], reason: str
) -> None:
    result = aggregate({}, row, {})
    assert result.skipped == {reason: 1}
    assert (result.rows_read, result.rows_used) == (3, 2)
    assert only_row(result).profile[:3] == ("2.000000", "2.000000", "0.000000")


def test_ten_minutes_are_the_longest_duration(aggregate: Aggregate) -> None:
    result = aggregate({"Duration(us)": "600000000"}, {"Duration(us)": "600000000.1"})
    assert result.skipped == {aggregation.ABSURD: 1}
    assert only_row(result).profile[0] == "600000000.000000"


@settings(deadline=None)
@given(durations=st.lists(st.floats(0.001, 1e6), min_size=1, max_size=30), size=st.integers(1, 12))
def test_statistics_do_not_depend_on_the_split(durations: list[float], size: int) -> None:
    import polars as pl

    from tensor_cast.performance_model.profiling_database.schema import COUNTERS, KEY_COLUMNS

    frame = pl.DataFrame({"Type": ["Add"] * len(durations), "Duration(us)": [repr(value) for value in durations]})
    frame = frame.with_columns(
        *(pl.lit("1").alias(name) for name in (*KEY_COLUMNS, "OP State", "Accelerator Core")),
        *(pl.lit(1.0).alias(name) for name in COUNTERS),
    )
    result = Aggregation()
    for start in range(0, len(durations), size):
        result.add(frame.slice(start, size))
    mean, median, deviation = map(float, only_row(result).profile[:3])
    assert mean == pytest.approx(statistics.fmean(durations), rel=1e-9, abs=1e-6)
    assert median == pytest.approx(statistics.median(durations), rel=1e-9, abs=1e-6)
    assert deviation == pytest.approx(statistics.pstdev(durations), rel=1e-6, abs=1e-5)
