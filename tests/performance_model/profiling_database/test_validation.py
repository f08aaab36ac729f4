"""Every break of the format has a file, a line and a column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.merge import ProfiledRow
from tensor_cast.performance_model.profiling_database.schema import kernel_columns
from tensor_cast.performance_model.profiling_database.store import update_database
from tensor_cast.performance_model.profiling_database.validation import validate

BuildRow = Callable[..., ProfiledRow]
HEADER = (
    "OP State,Accelerator Core,Input Shapes,Input Data Types,Input Formats,"
    "Output Shapes,Output Data Types,Output Formats,Average Duration(us)"
)


def violations(directory: Path) -> list[tuple[int, str, str]]:
    return [(found.line, found.column, found.message) for found in validate(directory)]


def write(directory: Path, *lines: str, name: str = "Add.csv", end: str = "\r\n") -> None:
    (directory / name).write_text("".join(line + end for line in lines), newline="")


def test_written_files_keep_the_format(tmp_path: Path, measured_row: BuildRow) -> None:
    lengths = [measured_row("8,4", 1.0, avg_seq_len="1"), measured_row("8,4", 2.0, avg_seq_len="2")]
    update_database(tmp_path, {"Add": [measured_row("4", 1.0)], "FusedInferAttentionScore": lengths})
    assert validate(tmp_path) == []


def test_rows(tmp_path: Path) -> None:
    write(
        tmp_path,
        HEADER,
        'd,V,"""2;3""",FLOAT;FLOAT,ND;ND,"""2""",FLOAT,ND,1.5',
        'd,V,"2;3",FLOAT,ND;ND,"""2""",FLOAT,ND,-1.5',
        'd,V,N/A,N/A,N/A,"""2x3""",FLOAT,ND,abc',
        'd,V,"""2,-3""",FLOAT,ND,"""2""",FLOAT,ND,inf',
        'd,V,"""2;3""",DT_FLOAT;FLOAT,FORMAT_ND;ND,"""2""",FLOAT,ND,700000000',
        "d,V",
    )
    assert violations(tmp_path) == [
        (3, "", "has quotes that are not needed"),
        (3, "Average Duration(us)", "-1.5 is negative"),
        (3, "Input Shapes", "lacks the literal quotes around the shapes"),
        (3, "Input Data Types", "has 1 entries for 2 shapes"),
        (3, "Input Data Types", "gives no dtype for entry 1 of shape (3,)"),
        (4, "Average Duration(us)", "'abc' is not a number"),
        (4, "Input Shapes", "is N/A: a row without shapes matches nothing"),
        (4, "Output Shapes", '"2x3" does not read as shapes'),
        (5, "Average Duration(us)", "inf is not finite"),
        (5, "Input Shapes", "entry 0 has a negative dimension"),
        (6, "Average Duration(us)", "700000000 is longer than 10 minutes"),
        (6, "", "repeats line 2"),
        (7, "", "has 2 cells where the header has 9"),
    ]


def test_headers(tmp_path: Path) -> None:
    header = HEADER.replace("Output Shapes", "Output Shape").replace("Average Duration(us)", "MicroBench Duration(us)")
    write(tmp_path, header + ",Output Formats")
    assert violations(tmp_path) == [
        (1, "MicroBench Duration(us)", "is an old name, today's is 'Average Duration(us)'"),
        (1, "Output Formats", "occurs more than once"),
        (1, "Output Shapes", "is missing (is it 'Output Shape'?)"),
    ]


def test_no_duration_column_and_moved_columns(tmp_path: Path) -> None:
    columns = [name for name in kernel_columns("Add") if "Duration(us)" not in name]
    columns[8], columns[9] = columns[9], columns[8]
    write(tmp_path, ",".join(columns))
    assert violations(tmp_path) == [
        (1, "Profiling Average aic_total_cycles", "is not in its place"),
        (
            1,
            "",
            "has none of the duration columns Average Duration(us), Profiling Average Duration(us), Duration(us)",
        ),
    ]


def test_bytes(tmp_path: Path) -> None:
    (tmp_path / "Add.csv").write_bytes(b"\xef\xbb\xbf" + HEADER.encode() + b"\n")
    (tmp_path / "Mul.csv").write_bytes(HEADER.encode() + b"\r\n\xff\r\n")
    (tmp_path / "Neg.csv").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert violations(tmp_path) == [
        (1, "", "starts with a byte-order mark"),
        (1, "", "does not end with CRLF"),
        (2, "", "is not UTF-8"),
        (1, "", 'is a Git LFS pointer, not the data: fetch it with "git lfs pull".'),
    ]
    assert str(validate(tmp_path)[0]) == f"{tmp_path / 'Add.csv'}:1: starts with a byte-order mark"


def test_bytes_of_lines(tmp_path: Path) -> None:
    row = 'd,V,"""2""",FLOAT,ND,"""2""",FLOAT,ND,1.5'
    write(tmp_path, HEADER, row, row.replace("d,V", '"d",V').replace("2", "3"), name="Quoted.csv")
    (tmp_path / "Short.csv").write_bytes(f"{HEADER}\r\n{row}".encode())
    (tmp_path / "Zcr.csv").write_bytes(f"{HEADER}\r{row}\r".encode())
    assert violations(tmp_path) == [
        (3, "", "has quotes that are not needed"),
        (2, "", "does not end with CRLF"),
        (1, "", 'has lines that end with CR alone: save it again as "CSV UTF-8".'),
    ]


def test_column_names_and_places(tmp_path: Path) -> None:
    columns = [*kernel_columns("Add"), "MicroBench aicore_time(us)", "my column"]
    columns[0], columns[8] = " OP State", "Profiling Averge Duration(us)"
    write(tmp_path, ",".join(columns))
    assert violations(tmp_path) == [
        (1, " OP State", "has blanks around its name"),
        # A replay's counter lies directly before the profile's.
        (1, "Profiling Average aicore_time(us)", "is not in its place"),
        (
            1,
            "",
            "has none of the duration columns Average Duration(us), Profiling Average Duration(us), Duration(us)",
        ),
        (
            1,
            "Profiling Averge Duration(us)",
            "is not a column of the format (is it 'Profiling Average Duration(us)'?)",
        ),
    ]


def test_formats(tmp_path: Path) -> None:
    write(tmp_path, HEADER, 'd,V,"""2;"""' + ',FLOAT;INT64,NULL;ND,"""2""",FLOAT,ND,1.5')
    assert violations(tmp_path) == [(2, "Input Formats", "gives no format for entry 0 of shape (2,)")]


def test_collectives(tmp_path: Path) -> None:
    write(
        tmp_path,
        "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps",
        "1024,8,DT_BF16,1,6.40,0.16",
        "1024.5,8,DT_BF16,1,6.40,0.16",
        "1024,8,DT_BF16,1,fast,0.16",
        ",8,,1.5,6.40,0.16",
        # With a factor (n - 1) / n it would be another bandwidth than the files': 65536 B / 10 us = 6.55 GB/s.
        "65536,8,DT_BF16,1,10.00,5.73",
        name="hcom_allGather_.csv",
    )
    write(
        tmp_path,
        "num_devices,message_bytes,dtype,topology_tier,Duration(us),bandwidth_gbps",
        name="hcom_alltoallv_.csv",
    )
    write(tmp_path, "message_bytes,num_devices,dtype,Duration(us)", name="hcom_allReduce_.csv")
    assert violations(tmp_path) == [
        (3, "message_bytes", "1024.5 is not a whole number"),
        (4, "Duration(us)", "'fast' is not a number"),
        (4, "", "repeats line 2"),
        (5, "topology_tier", "1.5 is not a whole number"),
        (5, "message_bytes", "is empty"),
        (5, "dtype", "is empty"),
        (6, "bandwidth_gbps", "5.73 is not message_bytes / Duration(us): 6.55"),
        (1, "topology_tier", "is missing"),
        (1, "bandwidth_gbps", "is missing"),
        (1, "num_devices", "is not in its place"),
    ]


def test_nothing_to_check(tmp_path: Path) -> None:
    with pytest.raises(ModelingError, match="holds no CSV files"):
        validate(tmp_path)
