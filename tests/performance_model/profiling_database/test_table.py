"""Reading database files, with a sentence for every bad one, and writing them byte for byte."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.table import Table, read_table, table_bytes

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)


@settings(deadline=None)
@given(rows=st.lists(st.lists(TEXT, min_size=3, max_size=3), max_size=6))
def test_writing_then_reading_is_the_identity(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]) -> None:
    path = tmp_path_factory.mktemp("table") / "Add.csv"
    table = Table(["Input Shapes", "EP Size", "my column"], rows)
    path.write_bytes(table_bytes(table))
    assert read_table(path) == table


def test_bytes_of_a_file() -> None:
    table = Table(["OP State", "Input Shapes", "Output Shapes"], [["dynamic", '"4096;"', '""']])
    assert table_bytes(table) == b'OP State,Input Shapes,Output Shapes\r\ndynamic,"""4096;""",""""""\r\n'


def test_byte_order_mark_line_feeds_and_blank_lines_are_read_over(tmp_path: Path) -> None:
    path = tmp_path / "Add.csv"
    path.write_bytes(b"\xef\xbb\xbfOP State,EP Size\ndynamic,1\n\nstatic,2")
    assert read_table(path) == Table(["OP State", "EP Size"], [["dynamic", "1"], ["static", "2"]])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", r"Add.csv is empty\.$"),
        (b"\r\n \n", r"Add.csv is empty\.$"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", r"Git LFS pointer.*git lfs pull"),
        ("OP State,a\n".encode("utf-16"), r"UTF-16"),
        (b"\x7fELF\x00\x00,", r"binary file"),
        (b"PK\x03\x04\x00\x00,", r"is packed \(zip\): unpack it, and give what comes out"),
        (gzip.compress(b"OP State,a\n"), r"is packed \(gzip\)"),
        (bz2.compress(b"OP State,a\n"), r"is packed \(bzip2\)"),
        (lzma.compress(b"OP State,a\n"), r"is packed \(xz\)"),
        (b"OP State,a\n" + b"1,2\n" * 2000 + b"\x00" * 9, r"holds NUL bytes"),
        (b"OP State,a\r1,2\r", r"lines that end with CR alone"),
        (b"OP State;Input Shapes\n1;2\n", r"not separated by commas"),
        ("OP State,a\n形,1\n".encode("gbk"), r"not UTF-8"),
        (b"OP State,a,a\n1,2,3\n", r"column 'a' more than once"),
        (b"OP State,a\n1,2\n1\n", r"line 3: 1 cells where the header has 2"),
    ],
)
def test_bad_files_get_one_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "Add.csv"
    path.write_bytes(content)
    with pytest.raises(ModelingError, match=sentence):
        read_table(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelingError, match=r"Add.csv does not exist"):
        read_table(tmp_path / "Add.csv")


def test_directory_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ModelingError, match=r"cannot be read: Is a directory") as failure:
        read_table(tmp_path)
    assert failure.value.exit_status == 1
