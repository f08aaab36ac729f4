"""The command from profiler files to database files."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median, pstdev

import pytest

from tensor_cast.performance_model.profiling_database import atomic, paths
from tensor_cast.performance_model.profiling_database.atomic import database_lock
from tensor_cast.performance_model.profiling_database.schema import COUNTERS, KEY_COLUMNS, kernel_columns
from tensor_cast.performance_model.profiling_database.table import read_table
from tensor_cast.performance_model.profiling_database.validation import validate
from tools.perf_data_collection.parsers import parse_kernel_details
from tools.perf_data_collection.parsers.parse_kernel_details import main

BuildProfile = Callable[..., str]
SCRIPT = Path(parse_kernel_details.__file__)
SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "contracts" / "samples"


@pytest.fixture
def parse(tmp_path: Path, profile: BuildProfile) -> Callable[..., int]:
    def run(*rows: dict[str, str], flags: tuple[str, ...] = ()) -> int:
        path = tmp_path / "run" / "kernel_details.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(profile(rows).encode())
        return main(["--profiling-path", str(path), "--database-path", str(tmp_path / "db"), *flags])

    return run


def test_bytes_of_the_database_file(
    parse: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parse({"Duration(us)": "1.0"}, {"Duration(us)": "2.0"}, {"Input Shapes": "N/A"}) == 0
    header = ",".join(kernel_columns("Add"))
    row = 'dynamic,AI_VECTOR_CORE,"""4096;""",FLOAT;FLOAT,ND;ND,"""4096""",FLOAT,ND,1.500000,1.500000,0.500000'
    expected = f"{header}\r\n{row}{',1.500000' * len(COUNTERS)},2\r\n"
    assert (tmp_path / "db" / "Add.csv").read_bytes() == expected.encode()
    assert capsys.readouterr().out.splitlines() == [
        "Profile: files read 1; rows read 3, used 2, skipped 1",
        "         1  kernels without shapes (launched raw, or profiled at Level0)",
        f"Database: {tmp_path / 'db'}",
        "  files: new 1, updated 0, unchanged 0",
        "  rows: new 1, updated 0, unchanged 0",
    ]


def test_parsing_again_updates_and_keeps_what_others_wrote(
    parse: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parse({"Duration(us)": "1.0"})
    file = tmp_path / "db" / "Add.csv"
    lines = file.read_text().split("\n")
    lines[0] = lines[0].strip() + ",Average Duration(us)"
    lines[1] = lines[1].strip() + ",0.75"
    file.write_text("\n".join(lines))
    capsys.readouterr()
    assert parse({"Duration(us)": "3.0"}, {"Type": "Mul"}) == 0
    assert "files: new 1, updated 1, unchanged 0\n  rows: new 1, updated 1, unchanged 0" in capsys.readouterr().out
    table = read_table(file)
    cells = table.cells(table.rows[0])
    assert (cells["Average Duration(us)"], cells["Profiling Average Duration(us)"]) == ("0.75", "3.000000")
    before = file.read_bytes()
    assert parse({"Duration(us)": "3.0"}, {"Type": "Mul"}) == 0
    assert "files: new 0, updated 0, unchanged 2\n  rows: new 0, updated 0, unchanged 2" in capsys.readouterr().out
    assert file.read_bytes() == before


def test_summary_counts_every_reason(
    parse: Callable[..., int], collective: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [{"Duration(us)": text} for text in ("0", "-1", "N/A", "1,892.920", "1e12")]
    assert parse({}, collective, *bad, {"Type": "N/A"}) == 0
    assert capsys.readouterr().out.splitlines()[:8] == [
        "Profile: files read 1; rows read 8, used 1, skipped 7",
        "         1  collectives",
        "         1  rows without a kernel type",
        "         1  durations with a thousands separator",
        "         1  durations that are not a number",
        "         2  durations of zero or less",
        "         1  durations above 10 minutes",
        "  Invalid durations, which entered no statistic: 5.",
    ]


def test_files_that_cannot_be_used_are_named_and_the_others_parsed(
    tmp_path: Path, profile: BuildProfile, level0: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in {
        "a": profile([{}], level0),
        "b": profile([{}]),
        "c": "version https://git-lfs.github.com/spec/v1\n",
        "d": "",
        "e": profile([{"Input Shapes": "N/A", "Type": "N/A"}]),
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel_details.csv").write_bytes(text.encode())
    assert main(["--profiling-path", str(tmp_path), "--database-path", str(tmp_path / "db")]) == 0
    output = capsys.readouterr()
    warnings = output.err.splitlines()
    assert len(warnings) == 4
    assert all(warning.startswith(f"warning: {tmp_path}") for warning in warnings)
    assert [("has no shapes" in text, "LFS" in text, "empty" in text, "gives no row" in text) for text in warnings] == [
        (True, False, False, False),
        (False, True, False, False),
        (False, False, True, False),
        (False, False, False, True),
    ]
    assert "files read 1;" in output.out
    assert "could not be used (see the warnings): 4." in output.out


def test_nothing_usable_writes_nothing(
    parse: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = dict.fromkeys(["Type", "Input Shapes", "Output Shapes", "Duration(us)"], "N/A")
    assert parse(nothing, nothing) == 2
    error = capsys.readouterr().err
    assert "kernel_details.csv gives no row (2 kernels without shapes (launched raw, or profiled at Level0)): " in error
    assert "profile again with profiler_level Level1" in error
    assert not (tmp_path / "db").exists()


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            [{"Duration(us)": "1,892.920"}],
            "(1 durations with a thousands separator): parse the file as the profiler wrote it.",
        ),
        # Other rows may lack shapes too: what is wrong with those that have them is what to mend.
        ([{"Duration(us)": "-1"}, {"Input Shapes": "N/A"}], "parse the file as the profiler wrote it."),
        ([{"Type": "hcom_allReduce_"}], "(1 collectives): profile steps of a model; comm_bench measures collectives."),
        ([], "kernel_details.csv has a header and no rows."),
    ],
)
def test_nothing_usable_for_another_reason(
    parse: Callable[..., int], rows: list[dict[str, str]], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parse(*rows) == 2
    assert sentence in capsys.readouterr().err


def test_directory_without_profiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profiling-path", str(tmp_path), "--database-path", str(tmp_path / "db")]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path} holds no kernel_details*.csv or op_summary_*.csv: give the directory that the profiler "
        "wrote, after its analysis has finished.\n"
    )


def test_attention_gets_its_runtime_columns(parse: Callable[..., int], tmp_path: Path) -> None:
    slots = ["16,4,128", "900,128,128", "900,128,128", "", "", "16", "16", *[""] * 7, "16,512", *[""] * 16]
    row = {"Type": "FusedInferAttentionScore", "Input Shapes": f'"{";".join(slots)}"'}
    assert parse({**row, "Duration(us)": "N/A"}, row) == 0
    table = read_table(tmp_path / "db" / "FusedInferAttentionScore.csv")
    assert tuple(table.columns) == kernel_columns("FusedInferAttentionScore")
    cells = table.cells(table.rows[0])
    assert cells["Runtime source_profile"] == "run"
    assert cells["Runtime block_table_shape"] == "16,512"
    assert cells["Runtime avg_seq_len"] == ""


def test_default_path_follows_device_and_versions(
    tmp_path: Path, profile: BuildProfile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paths.database_directory, "__kwdefaults__", {"data_directory": tmp_path / "data"})
    (tmp_path / "kernel_details.csv").write_bytes(profile([{}]).encode())
    flags = ["--profiling-path", str(tmp_path), "--device", "ATLAS_800_A2_376T_64G"]
    versions = ["--vllm-version", "v0.18.0", "--torch-version", "2.9.0+cpu", "--cann-version", "8.5.0"]
    assert main([*flags, *versions]) == 0
    stack = tmp_path / "data" / "ATLAS_800_A2_376T_64G" / "vllm_ascend" / "vllm0.18.0_torch2.9.0_cann8.5.0"
    assert (stack / "Add.csv").is_file()
    monkeypatch.setattr(paths, "detected_versions", lambda _parts: {})
    capsys.readouterr()
    assert main(flags) == 2
    assert "version of vLLM-Ascend and PyTorch and CANN was not found" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "--profiling-path"),
        (("--profiling-path", "x", "--device", "H100"), "--device must be one of ATLAS_800_A2_376T_64G, "),
        (("--profiling-path", "x", "--databse-path", "y"), "no argument --databse-path. Did you mean --database-path"),
        (("--profiling-path", "x", "--database-path", ""), "--database-path is empty"),
        (("--profiling-path", ""), "--profiling-path is empty"),
        (("--profiling-path", "x", "--cann-version", "../8.5"), "'../8.5' is not a version"),
    ],
)
def test_wrong_flags(flags: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(flags) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1


def test_no_wait_gives_up_while_another_run_writes(
    parse: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with database_lock(tmp_path / "db"):
        assert parse({}, flags=("--no-wait",)) == 1
    assert "Another run is changing" in capsys.readouterr().err
    assert list((tmp_path / "db").glob("*.csv")) == []


def test_disk_full_says_so_and_changes_nothing(
    parse: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parse({})
    before = (tmp_path / "db" / "Add.csv").read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert parse({"Duration(us)": "9"}, {"Type": "Mul"}) == 1
    assert "the disk is full; nothing was changed" in capsys.readouterr().err
    assert (tmp_path / "db" / "Add.csv").read_bytes() == before
    assert [path.name for path in (tmp_path / "db").iterdir() if path.name != atomic.LOCK_NAME] == ["Add.csv"]


def test_a_kernel_name_longer_than_a_file_name_is_said(
    parse: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parse({}, {"Type": "triton_poi_fused_" + "add_" * 70}) == 1
    assert "the file name is too long; nothing was changed" in capsys.readouterr().err
    assert list((tmp_path / "db").glob("*.csv")) == []


def test_script_runs_by_path_from_anywhere_without_an_installation(tmp_path: Path, profile: BuildProfile) -> None:
    (tmp_path / "kernel_details.csv").write_bytes(profile([{}]).encode())
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str(SCRIPT), "--profiling-path", "kernel_details.csv", "--database-path", "db"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert (tmp_path / "db" / "Add.csv").is_file()


def test_help_needs_no_table_library() -> None:
    program = (
        "import sys; from tools.perf_data_collection.parsers import parse_kernel_details as p\n"
        "try: p.main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'polars', 'filelock', 'rich', 'torch'} & set(sys.modules)\n"
    )
    root = SCRIPT.parents[3]
    subprocess.run([sys.executable, "-c", program], cwd=root, check=True, stdout=subprocess.DEVNULL)


def test_interrupt_leaves_the_old_database(tmp_path: Path, profile: BuildProfile) -> None:
    (tmp_path / "kernel_details.csv").write_bytes(profile([{}]).encode())
    program = (
        "import os, sys, time\n"
        "from tools.perf_data_collection.parsers.parse_kernel_details import main\n"
        "def wait(_): print('writing', flush=True); time.sleep(60)\n"
        "os.fsync = wait\n"
        f"sys.exit(main(['--profiling-path', {str(tmp_path)!r}, '--database-path', {str(tmp_path / 'db')!r}]))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=SCRIPT.parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGINT)
        error = process.stderr.read()
    assert (process.returncode, error) == (130, "Interrupted.\n")
    assert [path.name for path in (tmp_path / "db").iterdir()] == [atomic.LOCK_NAME]


def by_hand(path: Path) -> dict[str, dict[tuple[str, ...], list[float]]]:
    """Durations by kernel type and key cells, read with the csv module alone."""
    durations: dict[str, dict[tuple[str, ...], list[float]]] = {}
    with path.open(encoding="utf-8-sig", newline="") as stream:
        for row in csv.DictReader(stream):
            kernel_type = row.get("Type") or row["OP Type"]
            if (
                None in row.values()
                or "N/A" in (row["Input Shapes"], row["Output Shapes"])
                or kernel_type.startswith("hcom")
            ):
                continue
            key = tuple(row[column] for column in KEY_COLUMNS)
            duration = float(row.get("Duration(us)") or row["Task Duration(us)"])
            durations.setdefault(kernel_type, {}).setdefault(key, []).append(duration)
    return durations


OWN_ROWS = (
    {"Duration(us)": "1.5"},
    {"Duration(us)": "2.25"},
    {"Type": "Mul", "Duration(us)": "7"},
    {"Type": "Mul", "Input Data Types": "INT32;INT32", "Duration(us)": "9"},
    {"Duration(us)": "4"},
)


@pytest.mark.parametrize(
    "name", ["own", *sorted(path.name for path in SAMPLES.glob("*.csv") if "database" not in path.name)]
)
def test_profiles_by_hand(name: str, tmp_path: Path, profile: BuildProfile, capsys: pytest.CaptureFixture[str]) -> None:
    """A profile of this file, and each published sample that is beside the checkout, added up in another way."""
    path = SAMPLES / name
    if name == "own":
        path = tmp_path / "run" / "kernel_details.csv"
        path.parent.mkdir()
        path.write_bytes(profile(OWN_ROWS).encode())
    tmp_path = tmp_path / "database"
    status = main(["--profiling-path", str(path), "--database-path", str(tmp_path)])
    output = capsys.readouterr()
    if "level0" in name or "skill_cann85" in name:
        assert status == 2
        assert "profile again with" in output.err
        return
    assert status == 0
    assert validate(tmp_path) == []
    # The 2023 files hold one row that lost its duration cell, so that every later cell is shifted.
    damaged = " 1  lines with another number of cells than the header" in output.out
    assert damaged == ("test_" in name)
    expected = by_hand(path)
    assert sorted(path.stem for path in tmp_path.glob("*.csv")) == sorted(expected)
    for kernel_type, rows in expected.items():
        table = read_table(tmp_path / f"{kernel_type}.csv")
        found = [table.cells(row) for row in table.rows]
        assert [tuple(cells[column] for column in KEY_COLUMNS) for cells in found] == list(rows)
        for cells, durations in zip(found, rows.values(), strict=True):
            assert float(cells["Profiling Average Duration(us)"]) == pytest.approx(fmean(durations), abs=1e-6)
            assert float(cells["Profiling Median Duration(us)"]) == pytest.approx(median(durations), abs=1e-6)
            assert float(cells["Profiling Std Duration(us)"]) == pytest.approx(pstdev(durations), abs=2e-6)
            assert cells["Profiling Duration Count"] == str(len(durations))
