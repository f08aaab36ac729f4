"""``msmodeling perf-db``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cli import perf_db
from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.merge import ProfiledRow
from tensor_cast.performance_model.profiling_database.store import update_database

Run = Callable[..., int]


@pytest.fixture
def run() -> Run:
    def call(*words: str | Path) -> int:
        parser = argparse.ArgumentParser()
        perf_db.add_parser(parser.add_subparsers())
        return perf_db.run(parser.parse_args(["perf-db", *map(str, words)]))

    return call


def database(directory: Path, durations: Sequence[float], deviation: str = "0.000000") -> Path:
    rows = [
        ProfiledRow(
            ("dynamic", "AI_VECTOR_CORE", f'"{size}"', "FLOAT", "ND", f'"{size}"', "FLOAT", "ND"),
            (f"{duration:.6f}", f"{duration:.6f}", deviation, *["0.000000"] * 25, "3"),
        )
        for size, duration in enumerate(durations, start=1)
    ]
    update_database(directory, {"Add": rows})
    return directory


def test_stats(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database(tmp_path, [1.0, 2.0])
    assert run("stats", tmp_path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(lines[0].split()) == "kernel rows measured replayed both empty timed duplicates invocations"
    assert lines[1].split() == ["Add", "2", "2", "0", "0", "0", "100%", "0", "6"]
    assert lines[2] == "Kernel types: 1. Rows: 2; measured in a profile 2, replayed 0, both 0, empty 0."
    assert lines[3].startswith("Kernels that can be replayed and have no file: AddRmsNormBias, ArgMaxV2, ")


def test_stats_lists_suspicious_rows_up_to_the_limit(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database(tmp_path, [1.0, 2.0], deviation="9.000000")
    assert run("stats", tmp_path, "--limit", "1") == 0
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "Suspicious rows: 2.",
        "  Add.csv:2: 1: the profile's deviation 9 us exceeds its mean 1 us",
        "  … and 1 more (--limit)",
    ]


def test_validate(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database(tmp_path, [1.0])
    assert run("validate", tmp_path) == 0
    assert capsys.readouterr().out == f"{tmp_path} keeps the format.\n"
    path = tmp_path / "Add.csv"
    path.write_bytes(path.read_bytes().replace(b",1.000000", b",-1.000000", 1))
    assert run("validate", tmp_path) == 1
    assert capsys.readouterr().out == (
        f"{path}:2: Profiling Average Duration(us): -1.000000 is negative\nViolations: 1, files that have any: 1.\n"
    )


def test_diff(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = database(tmp_path / "a", [1.0, 4.0, 7.0]), database(tmp_path / "b", [2.0, 5.0])
    assert run("diff", before, before) == 0
    assert capsys.readouterr().out == "No difference. Files: 1, rows: 3.\n"
    assert run("diff", before, after, "--limit", "1") == 1
    lines = capsys.readouterr().out.splitlines()
    # Ratios 2/1 and 5/4: median 1.625.
    assert lines[1].split() == ["Add", "1", "0", "0", "2", "1.625"]
    assert lines[2:] == [
        "Largest changes:",
        "  Add 1: 1.000 us -> 2.000 us  x2.000",
        "  … and 1 more (--limit)",
    ]


def test_errors(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelingError, match="absent does not exist"):
        run("stats", tmp_path / "absent")
    with pytest.raises(SystemExit):
        run("stats", tmp_path, "--limit", "-1")
    assert "must be a whole number of at least 0, got '-1'" in capsys.readouterr().err


_COLLECTIVES = "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps\r\n"


def test_collectives_count_too(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two databases that only differ in a measured collective differ; collectives alone are a database too."""
    before, after = database(tmp_path / "a", [1.0]), database(tmp_path / "b", [1.0])
    (after / "hcom_allReduce_.csv").write_text(f"{_COLLECTIVES}1024,2,DT_BF16,2,10.00,0.10\r\n", newline="")
    assert run("diff", before, after) == 1
    assert capsys.readouterr().out.splitlines()[1].split() == ["hcom_allReduce_", "0", "1", "0", "0", "-"]
    (before / "hcom_allReduce_.csv").write_text(f"{_COLLECTIVES}1024,2,DT_BF16,2,8.00,0.13\r\n", newline="")
    assert run("diff", before, after) == 1
    assert capsys.readouterr().out.splitlines()[-1] == (
        "  hcom_allReduce_ 1024 bytes, 2 devices, DT_BF16, tier 2: 8.000 us -> 10.000 us  x1.250"
    )
    assert run("stats", after) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Measured rows of collectives: hcom_allReduce_ 1."
    (after / "Add.csv").unlink()
    assert run("stats", after) == 0
    assert capsys.readouterr().out == "Measured rows of collectives: hcom_allReduce_ 1.\n"


@pytest.mark.parametrize("command", ["accuracy", "plot"])
def test_a_directory_that_is_not_there_is_said_first(run: Run, tmp_path: Path, command: str) -> None:
    with pytest.raises(ModelingError, match=r"The database directory .*none does not exist\."):
        run(command, tmp_path / "none")
    file = tmp_path / "a.csv"
    file.write_text("")
    with pytest.raises(ModelingError, match="is a file; give the directory"):
        run(command, file)
