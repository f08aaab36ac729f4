"""Profiler files of all generations, whole and damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.schema import COUNTERS
from tools.perf_data_collection.parsers.kernel_file import Chunk, open_kernel_file, read_chunks

BuildProfile = Callable[..., str]


def read(path: Path, chunk_bytes: int = 1 << 20) -> list[Chunk]:
    return list(read_chunks(open_kernel_file(path), chunk_bytes))


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "kernel_details.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def column(chunks: list[Chunk], name: str) -> list[object]:
    return [cell for chunk in chunks for cell in chunk.frame[name].to_list()]


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_every_generation_is_read(tmp_path: Path, profile: BuildProfile, generation: list[str], end: str) -> None:
    path = write(tmp_path, "\ufeff" + profile([{}, {"Duration(us)": "3.5"}], generation, end=end))
    (chunk,) = read(path)
    assert (chunk.malformed, chunk.truncated) == (0, 0)
    assert column([chunk], "Type") == ["Add", "Add"]
    assert column([chunk], "Duration(us)") == ["2.000", "3.5"]
    assert column([chunk], "Input Shapes") == ['"4096;"', '"4096;"']
    has_counter = "aiv_vec_ratio" in generation
    assert column([chunk], "aiv_vec_ratio") == ([1.5, 1.5] if has_counter else [None, None])


@pytest.mark.parametrize("chunk_bytes", [1, 300, 700, 10_000])
def test_chunks_of_any_size_give_the_same_rows(tmp_path: Path, profile: BuildProfile, chunk_bytes: int) -> None:
    durations = [f"{number}.000" for number in range(1, 21)]
    text = profile([{"Duration(us)": duration} for duration in durations])
    chunks = read(write(tmp_path, text.removesuffix("\r\n")), chunk_bytes)
    assert column(chunks, "Duration(us)") == durations
    assert sum(chunk.bytes_read for chunk in chunks) == len(text) - 2 - len(text.split("\n")[0]) - 1
    assert sum(chunk.malformed + chunk.truncated for chunk in chunks) == 0


def test_lines_with_too_few_or_too_many_cells_are_left_out(tmp_path: Path, profile: BuildProfile) -> None:
    lines = profile([{"Duration(us)": str(number)} for number in range(1, 7)]).split("\r\n")
    lines[2] = lines[2].replace(",1.5", "", 1)
    lines[3] += ",1.5"
    lines[4] += ","  # a spreadsheet's empty column
    lines[5] = lines[5].replace('"""4096;"""', '"4096', 1)  # an open quote
    lines.insert(6, "")
    chunks = read(write(tmp_path, "\r\n".join(lines)))
    assert column(chunks, "Duration(us)") == ["1", "4", "6"]
    assert [(chunk.malformed, chunk.truncated) for chunk in chunks] == [(3, 0)]


def test_lines_with_nul_bytes_are_left_out(tmp_path: Path, profile: BuildProfile) -> None:
    names = [{"Type": "Add"}, {"Type": "A\0d"}, *[{"Type": "Mul"}] * 20, {"Type": "\0" * 99}]
    # Behind the first 4 KiB, which are judged with the header.
    path = write(tmp_path, profile([*[{}] * 20, *names]))
    chunks = read(path)
    assert column(chunks, "Type") == ["Add"] * 21 + ["Mul"] * 20
    assert sum(chunk.malformed for chunk in chunks) == 2


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e999", "N/A", "", "1,000.5"])
def test_a_counter_that_is_no_quantity_is_absent(tmp_path: Path, profile: BuildProfile, text: str) -> None:
    chunks = read(write(tmp_path, profile([dict.fromkeys(COUNTERS, text)])))
    assert [column(chunks, counter) for counter in COUNTERS] == [[None]] * 25


@pytest.mark.parametrize("kept", [5, 120, -130])
def test_truncated_last_line_is_counted_as_such(tmp_path: Path, profile: BuildProfile, kept: int) -> None:
    text = profile([{"Duration(us)": "1"}, {"Duration(us)": "2"}])
    last = text.rstrip().rfind("\n") + 1
    chunks = read(write(tmp_path, text[:last] + text[last:].rstrip()[:kept]))
    assert column(chunks, "Duration(us)") == ["1"]
    assert sum(chunk.malformed for chunk in chunks) == 0
    assert sum(chunk.truncated for chunk in chunks) == 1


def test_saved_by_a_spreadsheet(tmp_path: Path, profile: BuildProfile) -> None:
    # Excel adds a byte-order mark, drops the tab and rounds the start time; the rest survives.
    text = profile([{"Start Time(us)": "1.76425E+15"}], end="\r\n")
    assert column(read(write(tmp_path, b"\xef\xbb\xbf" + text.encode())), "Duration(us)") == ["2.000"]


def test_file_without_rows(tmp_path: Path, profile: BuildProfile) -> None:
    assert read(write(tmp_path, profile([]))) == []
    assert read(write(tmp_path, profile([]).strip())) == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", r"is empty\.$"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", r"Git LFS pointer"),
        ("Type,Duration(us)\n".encode("utf-16"), r"UTF-16"),
        (b"Type;Duration(us)\nAdd;2\n", r"not separated by commas"),
        (b"Type,Duration(us)\rAdd,2\r", r"lines that end with CR alone"),
        (b"Name,Description\nAdd,adds\n", r"no column 'Type', 'Duration\(us\)', 'Input Shapes'"),
    ],
)
def test_what_is_no_profile(tmp_path: Path, content: bytes, sentence: str) -> None:
    with pytest.raises(ModelingError, match=sentence):
        open_kernel_file(write(tmp_path, content))


def test_misspelt_column_is_told_with_its_likely_name(tmp_path: Path, profile: BuildProfile) -> None:
    text = profile([{}]).replace("Input Data Types", "Input Datatypes").replace("Output Shapes", "output shapes")
    with pytest.raises(
        ModelingError, match=r"'Input Data Types' \(is it 'Input Datatypes'\?\), 'Output Shapes' \(is it"
    ):
        open_kernel_file(write(tmp_path, text))


def test_a_column_that_is_there_twice_is_not_chosen_from(tmp_path: Path, profile: BuildProfile) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_text(profile([{}]).replace("Wait Time(us)", "Duration(us)"))
    with pytest.raises(ModelingError, match=r"has the column 'Duration\(us\)' more than once: keep the right one\."):
        open_kernel_file(path)


def test_level0_is_told_what_to_profile(tmp_path: Path, profile: BuildProfile, level0: list[str]) -> None:
    with pytest.raises(ModelingError, match=r"has no shapes.*Level0.*profile again with profiler_level Level1"):
        open_kernel_file(write(tmp_path, profile([{}], level0)))


def test_other_encodings_are_named(tmp_path: Path, profile: BuildProfile) -> None:
    with pytest.raises(ModelingError, match="not UTF-8"):
        open_kernel_file(write(tmp_path, "类型,Duration(us)\n".encode("gbk")))
    with pytest.raises(ModelingError, match="not UTF-8"):
        read(write(tmp_path, profile([{"Name": "加法"}]).encode("gbk")))


def test_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(ModelingError, match="does not exist"):
        open_kernel_file(tmp_path / "kernel_details.csv")
