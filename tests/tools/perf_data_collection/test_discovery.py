"""Which files of a profiling directory are parsed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensor_cast.errors import ModelingError
from tools.perf_data_collection.parsers.discovery import profile_files


def touch(root: Path, *names: str) -> list[Path]:
    paths = [root / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return paths


def test_a_file_is_taken_whatever_its_name(tmp_path: Path) -> None:
    (path,) = touch(tmp_path, "mine.txt")
    assert profile_files(path) == ([path], [])


def test_a_directory_is_searched_in_sorted_order(tmp_path: Path) -> None:
    wanted = touch(tmp_path, "a/Kernel_Details_rank1.csv", "a/kernel_details.csv", "b/op_summary_slice_0_2025.csv")
    touch(tmp_path, "a/operator_details.csv", "a/kernel_details.json", "b/op_statistic_2025.csv")
    assert profile_files(tmp_path) == (wanted, [])


def test_torch_npu_copies_are_not_counted_twice(tmp_path: Path) -> None:
    details, copy, other = touch(
        tmp_path,
        "host_1_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
        "host_1_ascend_pt/PROF_0_x/mindstudio_profiler_output/op_summary_2025.csv",
        "host_2_ascend_pt/PROF_0_y/mindstudio_profiler_output/op_summary_2025.csv",
    )
    assert profile_files(tmp_path) == ([details, other], [copy])
    # The copy itself may still be asked for.
    assert profile_files(copy.parent) == ([copy], [])


def test_names_are_found_in_any_case_and_packed_files_where_nothing_is_unpacked(tmp_path: Path) -> None:
    wanted = touch(tmp_path, "a/KERNEL_DETAILS.CSV", "b/kernel_details.csv", "c/kernel_details.csv.gz")
    touch(tmp_path, "b/kernel_details.csv.gz", "b/kernel_details.csv.txt")
    assert profile_files(tmp_path) == (wanted, [])


def test_a_packed_copy_does_not_hide_what_it_is_of(tmp_path: Path) -> None:
    packed, summary = touch(
        tmp_path,
        "host_1_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv.zip",
        "host_1_ascend_pt/PROF_0_x/mindstudio_profiler_output/op_summary_2025.csv",
    )
    assert profile_files(tmp_path) == ([packed, summary], [])


def test_a_directory_that_may_not_be_looked_into_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, "kernel_details.csv", "private/kernel_details.csv")
    real = os.scandir

    def refuse(path: str) -> Iterator[os.DirEntry[str]]:
        if str(path).endswith("private"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ModelingError, match=r"private cannot be read: there is no permission") as failure:
        profile_files(tmp_path)
    assert failure.value.exit_status == 1


def test_nothing_to_parse(tmp_path: Path) -> None:
    with pytest.raises(ModelingError, match=r"profiling path .*absent does not exist"):
        profile_files(tmp_path / "absent")
    touch(tmp_path, "trace_view.json")
    with pytest.raises(ModelingError, match=r"holds no kernel_details\*\.csv or op_summary_\*\.csv"):
        profile_files(tmp_path)
