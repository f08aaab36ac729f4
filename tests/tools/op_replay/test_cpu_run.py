"""start_microbench.py on this machine's CPU, from the command line to the file and the report."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tensor_cast.performance_model.profiling_database.statistics import duration_us
from tensor_cast.performance_model.profiling_database.table import read_table
from tests.tools.op_replay.small_rows import SMALL_ROWS, cells, row, write_database

CPU = ("--backend", "cpu")
SLOW = cells(
    ["400000,1,4 FLOAT", "1,8,1,4 FLOAT", "400000,1 FLOAT", "1 INT32", "1 INT32", "1,1 INT32"],
    ["400000,1,2 INT32"],
    Runtime_actual_seq_lengths_kv_values="8",
)
"""An indexer's row that a CPU works on for many seconds, token by token."""
QUICK = cells(
    ["2,1,4 FLOAT", "1,8,1,4 FLOAT", "2,1 FLOAT", "1 INT32", "1 INT32", "1,1 INT32"],
    ["2,1,2 INT32"],
    Runtime_actual_seq_lengths_kv_values="8",
)
IMPOSSIBLE = cells(["3,8 FLOAT", "5,9 FLOAT"], ["3,5 FLOAT"])
TOO_LARGE = cells(["4000000,1000000 DT_BF16", "4000000,1000000 DT_BF16"], ["4000000,1000000 DT_BF16"])


def durations(directory, kernel, column="Average Duration(us)"):
    table = read_table(directory / f"{kernel}.csv")
    place = table.columns.index(column) if column in table.columns else None
    return [duration_us(row[place]) if place is not None else None for row in table.rows]


def wait_for_started_rows(database, count):
    """The journal of a run, once so many of its rows were started."""
    journal = database / ".replay_journal.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (journal.exists() and journal.read_text().count('"started"') == count):
        time.sleep(0.05)
    return journal


def test_a_run_measures_writes_back_reports_and_keeps_what_fails(tmp_path, start):
    database = tmp_path / "db"
    add = [
        {**SMALL_ROWS["Add"][0], "Profiling Average Duration(us)": "1.5", "Mine": "kept"},
        SMALL_ROWS["Add"][1],
    ]
    write_database(database, "Add", add)
    write_database(database, "MatMulV2", [IMPOSSIBLE, *SMALL_ROWS["MatMulV2"][:2], TOO_LARGE])
    write_database(database, "GreaterEqual", SMALL_ROWS["Add"][:1])
    untouched = (database / "GreaterEqual.csv").read_bytes()
    result = start(*CPU, "--repeat-count", "3")
    assert result.returncode == 0, result.stderr
    assert [value is not None for value in durations(database, "Add")] == [True, True]
    assert [value is not None for value in durations(database, "MatMulV2")] == [False, True, True, False]
    table = read_table(database / "Add.csv")
    assert [row[table.columns.index("Mine")] for row in table.rows] == ["kept", ""]
    assert (database / "GreaterEqual.csv").read_bytes() == untouched
    assert json.loads((tmp_path / "status.json").read_text()) == {
        "success": ["Add_run.py", "MatMulV2_run.py"],
        "failed": [],
        "skipped": [],
    }
    assert "| Rows updated | 4 |" in result.stdout
    assert "line 5 skipped, " in result.stdout
    assert "GiB are free" in result.stdout
    assert "line 2 failed, 3,8;5,9 -> 3,5: (3, 8) and (5, 9) give no 3,5" in result.stdout
    assert "Measured on CPU" in result.stdout
    assert sorted(path.name for path in database.iterdir() if "lock" not in path.name) == [
        "Add.csv",
        "GreaterEqual.csv",
        "MatMulV2.csv",
        "reports",
    ]
    assert "[operator 1/2, row 1/6" in result.stderr

    # nothing is left to do but the two impossible rows: with them gone, the next run starts nothing at all
    pruned = start(*CPU, "--update-mode", "missing-only", "--prune-empty-duration-rows")
    assert pruned.returncode == 0, pruned.stderr
    assert "| Rows deleted | 2 |" in pruned.stdout
    complete = start(*CPU, "--update-mode", "missing-only")
    assert complete.returncode == 0
    assert complete.stdout.splitlines() == [
        "Add: all 2 rows of Add.csv have a valid duration, skipped.",
        "MatMulV2: all 2 rows of MatMulV2.csv have a valid duration, skipped.",
        "Nothing to measure: 2 files are complete.",
    ]
    assert complete.stderr == ""


def test_a_row_that_outlasts_its_limit_is_listed_and_the_rest_is_measured(tmp_path, start):
    write_database(tmp_path / "db", "LightningIndexer", [QUICK, SLOW, SMALL_ROWS["LightningIndexer"][0]])
    result = start(*CPU, "--timeout-s", "2")
    assert result.returncode == 0, result.stderr
    assert [value is not None for value in durations(tmp_path / "db", "LightningIndexer")] == [True, False, True]
    assert "It took longer than 2 s." in result.stdout


def test_fail_fast_stops_at_the_first_row_and_keeps_what_was_measured(tmp_path, start):
    write_database(tmp_path / "db", "MatMulV2", [SMALL_ROWS["MatMulV2"][0], IMPOSSIBLE, SMALL_ROWS["MatMulV2"][1]])
    write_database(tmp_path / "db", "Sort", SMALL_ROWS["Sort"])
    result = start(*CPU, "--fail-fast")
    assert result.returncode == 1
    assert [value is not None for value in durations(tmp_path / "db", "MatMulV2")] == [True, False, False]
    assert durations(tmp_path / "db", "Sort") == [None]
    assert "Sort_run.py" not in result.stdout
    resumed = start(*CPU, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert [value is not None for value in durations(tmp_path / "db", "MatMulV2")] == [True, False, True]
    assert durations(tmp_path / "db", "Sort") != [None]
    assert not list((tmp_path / "db").glob("msprof_run_*"))


def test_an_interrupted_run_writes_back_what_is_done_and_can_be_resumed(tmp_path, command, start):
    database = tmp_path / "db"
    write_database(database, "LightningIndexer", [QUICK, SLOW])
    process = subprocess.Popen(command(*CPU), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    journal = wait_for_started_rows(database, 2)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    [quick, slow] = durations(database, "LightningIndexer")
    assert quick is not None
    assert slow is None
    assert "| Rows updated | 1 |" in output
    assert "--resume goes on from here" in errors
    resumed = start(*CPU, "--resume", "--timeout-s", "1")
    assert durations(database, "LightningIndexer") == [quick, None]
    assert "It took longer than 1 s." in resumed.stdout
    assert not journal.exists()


def _heed_hangups():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def test_a_terminal_that_closes_loses_nothing(tmp_path, command):
    database = tmp_path / "db"
    write_database(database, "LightningIndexer", [QUICK, SLOW])
    # Under nohup the signal is ignored, and children inherit that.
    process = subprocess.Popen(
        command(*CPU), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_heed_hangups
    )
    wait_for_started_rows(database, 2)
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert [value is not None for value in durations(database, "LightningIndexer")] == [True, False]


def test_what_a_killed_replay_left_running_is_not_measured_beside(tmp_path, command, capsys):
    """The run goes on without the one who started it: a second one waits for its end, then takes what it measured."""
    from tools.perf_data_collection import start_microbench

    database = tmp_path / "db"
    write_database(database, "LightningIndexer", [QUICK, SLOW])
    process = subprocess.Popen(command(*CPU, "--timeout-s", "8"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_started_rows(database, 2)
    process.kill()
    process.wait()
    resume = ["--database-path", str(database), "--status-path", str(tmp_path / "status.json"), *CPU, "--resume"]
    assert start_microbench.main(resume) == 1
    assert "the run_all_op.py that it had started still measures: wait" in capsys.readouterr().err
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (status := start_microbench.main(resume)) != 0:
        time.sleep(0.5)
    assert status == 0
    assert [value is not None for value in durations(database, "LightningIndexer")] == [True, False]
    assert "It took longer than 8 s." in capsys.readouterr().out
    assert not list(database.glob("msprof_run_*"))


def test_a_damaged_file_costs_the_others_nothing(tmp_path, start):
    database = tmp_path / "db"
    write_database(database, "Add", SMALL_ROWS["Add"][:2])
    (database / "Sort.csv").write_bytes(b"")
    result = start(*CPU)
    assert result.returncode == 0, result.stderr
    assert None not in durations(database, "Add")
    assert f"| Sort | {database / 'Sort.csv'} is empty. Nothing was written to it. |" in result.stdout
    assert (database / "Sort.csv").read_bytes() == b""


def test_tools_that_may_not_be_written_keep_the_status_in_the_database(tmp_path, command):
    write_database(tmp_path / "db", "Add", SMALL_ROWS["Add"][:1])
    flags = [*command(*CPU), "--status-path", "/dev/null/run_all_op_status.json"]
    result = subprocess.run(flags, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "- Success: 1" in result.stdout
    assert json.loads((tmp_path / "db" / "run_all_op_status.json").read_text())["success"] == ["Add_run.py"]


def test_a_profiled_npus_rows_are_not_mixed_with_a_cpus_in_silence(tmp_path, capsys):
    from tools.perf_data_collection.op_replay.microbench import _warn_of_other_device

    profiled = {**SMALL_ROWS["Add"][0], "Profiling Average Duration(us)": "1.5"}
    files = {"Add": [write_database(tmp_path, "Add", [profiled, SMALL_ROWS["Add"][1]])]}
    _warn_of_other_device(files, "cpu")
    assert capsys.readouterr().err == (
        "warning: 1 rows have times of a profiled NPU, and look-ups will take those of this machine's CPU before "
        "them: to keep the two apart, replay a copy of the database.\n"
    )
    write_database(tmp_path, "Add", SMALL_ROWS["Add"][:1])
    _warn_of_other_device(files, "cpu")
    assert capsys.readouterr().err == ""


def test_without_torch_one_sentence_says_so(tmp_path, monkeypatch, capsys):
    from tools.perf_data_collection import start_microbench
    from tools.perf_data_collection.op_replay import backends, run_all_op

    write_database(tmp_path / "db", "Add", SMALL_ROWS["Add"][:1])
    flags = ["--database-path", str(tmp_path / "db"), *CPU]
    monkeypatch.setattr(run_all_op.importlib.util, "find_spec", lambda name: None)
    assert run_all_op.main([*flags, "--status-path", str(tmp_path / "status.json")]) == 1
    assert capsys.readouterr().err == "error: Replay needs PyTorch: pip install torch.\n"
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, backends.__name__)
    assert start_microbench.main(flags) == 1
    assert capsys.readouterr().err == "error: Replay needs PyTorch: pip install torch.\n"


def test_a_missing_gpu_is_said_before_anything_is_made(tmp_path, capsys, monkeypatch):
    import torch

    from tools.perf_data_collection import start_microbench

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    write_database(tmp_path / "db", "Add", SMALL_ROWS["Add"][:1])
    assert start_microbench.main(["--database-path", str(tmp_path / "db"), "--backend", "cuda"]) == 2
    assert "torch sees no CUDA device" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "db").iterdir()] == ["Add.csv"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_a_full_disk_is_a_sentence(tmp_path):
    from tensor_cast.errors import ModelingError
    from tools.perf_data_collection.op_replay.journal import Journal, OperatorRecord
    from tools.perf_data_collection.op_replay.op_summary import OpSummaryWriter

    with pytest.raises(ModelingError, match="Cannot write /dev/full: the disk is full"):
        Journal(Path("/dev/full")).append(OperatorRecord("Add", "success"))
    writer = OpSummaryWriter(tmp_path)
    writer.add(row("Add", SMALL_ROWS["Add"][0]), "CPU", [1.0])
    writer._stream.close()
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        writer._stream = full
        with pytest.raises(ModelingError, match="the disk is full"):
            writer.add(row("Add", SMALL_ROWS["Add"][0]), "CPU", [1.0])
        writer.close()


def test_a_script_alone_prints_times_and_changes_nothing(tmp_path, command):
    path = write_database(tmp_path / "db", "RmsNorm", SMALL_ROWS["RmsNorm"])
    content = path.read_bytes()
    flags = command(*CPU, "--repeat-count", "2", script="op_replay/RmsNorm_run.py")
    result = subprocess.run(flags, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 2
    assert " us  " in result.stdout
    assert path.read_bytes() == content


def test_a_dying_process_costs_one_row(tmp_path, monkeypatch, capfd):
    """A kernel that takes its process down is recorded; the rows behind it are measured."""
    from tools.perf_data_collection.op_replay import catalog, run_all_op

    script = tmp_path / "Add_run.py"
    source = (catalog.DIRECTORY / "Add_run.py").read_text()
    deadly = "    if first.shape == (4,):\n        import os\n        os.kill(os.getpid(), 9)\n    return torch.add"
    script.write_text(
        source.replace("    return torch.add", deadly).replace(
            "parents[3]", f"parents[3] if 0 else {str(catalog.DIRECTORY.parents[2])!r}"
        )
    )
    monkeypatch.setattr(catalog, "DIRECTORY", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(catalog.__file__).rsplit("/tools/", 1)[0])
    write_database(tmp_path / "db", "Add", SMALL_ROWS["Add"][:3])
    flags = ["--database-path", str(tmp_path / "db"), *CPU, "--ops", "Add", "--status-path", str(tmp_path / "s.json")]
    assert run_all_op.main([*flags, "--profile-output", str(tmp_path / "profiles")]) == 0
    output = capfd.readouterr().out
    assert "failed   Add line 3  4; -> 4: The process ended with signal SIGKILL while it ran." in output
    [summaries] = [list((tmp_path / "profiles").glob("PROF_*/*/op_summary_*.csv"))]
    assert sum(len(path.read_text().splitlines()) - 1 for path in summaries) == 2 * 30


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--ops", "Ad"), "Operator 'Ad' cannot be replayed. Did you mean Add"),
        (("--ops", "Sort"), "has no Sort.csv: fill the database"),
        (("--repeat-count", "0"), "error: --repeat-count must be a whole number of at least 1, got '0'."),
        (("--timeout-s", "soon"), "--timeout-s must be a number of at least 1e-06 and at most 1e+06, got 'soon'"),
        (("--timeout-s", "inf"), "--timeout-s must be a number of at least 1e-06 and at most 1e+06, got 'inf'"),
        (("--backend", "tpu"), "error: --backend must be one of npu, cuda, cpu, got 'tpu'."),
        (("--database-path", ""), "error: --database-path is empty: give a path."),
    ],
)
def test_wrong_requests_are_refused_in_one_sentence(tmp_path, capsys, flags, message):
    from tools.perf_data_collection import start_microbench

    write_database(tmp_path / "db", "Add", SMALL_ROWS["Add"])
    assert start_microbench.main(["--database-path", str(tmp_path / "db"), *CPU, *flags]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1


def test_a_cpus_times_never_enter_the_packaged_databases(capsys):
    from tensor_cast.performance_model.profiling_database.paths import DATA_DIRECTORY
    from tools.perf_data_collection import start_microbench

    [packaged, *_] = sorted(DATA_DIRECTORY.glob("*/vllm_ascend/*"))
    assert start_microbench.main(["--database-path", str(packaged), *CPU]) == 2
    assert "would overwrite: copy it" in capsys.readouterr().err
    assert start_microbench.main(list(CPU)) == 2
    assert "--backend cpu needs --database-path" in capsys.readouterr().err


def test_a_dry_run_counts_and_runs_nothing(tmp_path, capsys):
    from tools.perf_data_collection import start_microbench

    write_database(
        tmp_path / "db", "Add", [{**SMALL_ROWS["Add"][0], "Average Duration(us)": "1"}, SMALL_ROWS["Add"][1]]
    )
    flags = ["--database-path", str(tmp_path / "db"), *CPU, "--dry-run"]
    assert start_microbench.main([*flags, "--update-mode", "missing-only"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Add: 1 rows to measure.",
        "1 rows would be measured on cpu; nothing was run.",
    ]
    assert start_microbench.main(flags) == 0
    assert "Add: 2 rows to measure." in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "db").iterdir()] == ["Add.csv"]


def test_two_replays_of_one_database_do_not_meet(tmp_path, capsys):
    from filelock import FileLock

    from tools.perf_data_collection import start_microbench

    write_database(tmp_path / "db", "Add", SMALL_ROWS["Add"])
    with FileLock(tmp_path / "db" / ".replay.lock"):
        assert start_microbench.main(["--database-path", str(tmp_path / "db"), *CPU]) == 1
    assert "Another replay of" in capsys.readouterr().err
