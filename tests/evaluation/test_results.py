from __future__ import annotations

import os
import platform
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.evaluation.naming import ResultsName
from tensor_cast.evaluation.results import put_in_place, read_json, staging_directory

NAME = ResultsName("m", "s", "d", 1, {"tp": 1, "dp": 1, "ep": 1})


def _put(root: Path, text: str, *, overwrite: bool = False) -> Path:
    with staging_directory(root) as staged:
        (staged / "figure").write_text(text)
        return put_in_place(staged, root, NAME, overwrite=overwrite)


def test_a_second_run_stands_beside_the_first(tmp_path: Path) -> None:
    places = [_put(tmp_path, text).name for text in ("one", "two", "three")]
    assert places == ["m_s_d_w1_tp1_dp1_ep1", "m_s_d_w1_tp1_dp1_ep1_run2", "m_s_d_w1_tp1_dp1_ep1_run3"]
    assert [(tmp_path / place / "figure").read_text() for place in places] == ["one", "two", "three"]


def test_overwriting_replaces_the_first_run_and_leaves_nothing_else(tmp_path: Path) -> None:
    _put(tmp_path, "old")
    place = _put(tmp_path, "new", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == [place.name]
    assert (place / "figure").read_text() == "new"


def test_somebodys_empty_directory_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / str(NAME)).mkdir()
    assert _put(tmp_path, "mine").name == f"{NAME}_run2"


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with staging_directory(tmp_path) as staged:
            (staged / "half").write_text("")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_removed_and_a_running_ones_kept(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, alive, foreign = (
        tmp_path / f".incomplete-{machine}-{process}-x"
        for machine, process in (
            (platform.node(), ended.pid),
            (platform.node(), os.getppid()),
            ("another-machine", ended.pid),
        )
    )
    for directory in (dead, alive, foreign):
        directory.mkdir()
    place = _put(tmp_path, "")
    assert sorted(tmp_path.iterdir()) == sorted([alive, foreign, place])


def test_results_can_be_read_by_others(tmp_path: Path) -> None:
    assert stat.S_IMODE(_put(tmp_path, "").stat().st_mode) == 0o755


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with (
        pytest.raises(ModelingError, match=r"Cannot write results in .*results: file exists"),
        staging_directory(tmp_path / "results"),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "expected"), [("{", r"config.json:1: this is not JSON"), ("[]", "must hold a JSON object")]
)
def test_broken_json_is_named(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ModelingError, match=expected):
        read_json(path)
