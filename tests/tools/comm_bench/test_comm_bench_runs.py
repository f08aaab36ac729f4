"""The whole benchmark among real processes over loopback; an NPU's flow through a stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensor_cast.performance_model.profiling_database.communication import COMMUNICATION_FILES
from tensor_cast.performance_model.profiling_database.validation import validate
from tools.perf_data_collection.comm_bench import generate_comm_microbench

Runs = Callable[[str], Any]


def keys(rows: list[list[str]]) -> list[list[str]]:
    return [row[:4] for row in rows]


def test_two_ranks_measure_all_four_collectives(runs: Runs) -> None:
    run = runs("two")
    assert run.statuses == {0: 0, 1: 0}
    assert "8 of 8 rows measured" in run.outputs[0]
    assert run.outputs[1] == ""
    for name in COMMUNICATION_FILES.values():
        rows = run.rows(name)
        assert keys(rows)[0] == ["128", "2", "DT_BF16", "2"]
        assert all(float(row[4]) > 0.0 for row in rows)
    assert validate(run.directory) == []


def test_four_ranks_measure_groups_of_four_and_two(runs: Runs) -> None:
    # On 3 x 2 x 2 ranks 0 to 3 span the middle level, 0 and 1 the innermost.
    run = runs("four")
    assert set(run.statuses.values()) == {0}
    assert keys(run.rows("hcom_alltoallv_.csv")) == [["1024", "4", "DT_BF16", "1"], ["1024", "2", "DT_BF16", "2"]]
    assert "--num-devices 8 is left out: only 4 processes run." in run.outputs[0]


def test_another_dtype(runs: Runs) -> None:
    run = runs("int8")
    assert run.statuses == {0: 0, 1: 0}
    assert keys(run.rows("hcom_allReduce_.csv")) == [["1000", "2", "DT_INT8", "2"]]


def test_an_explicit_tier_leaves_larger_groups_out(runs: Runs) -> None:
    run = runs("tier")
    assert set(run.statuses.values()) == {0}
    assert [row[1:4] for row in run.rows("hcom_allReduce_.csv")] == [["2", "DT_BF16", "2"]] * 2
    assert "--num-devices 4 is left out" in run.outputs[0]


def test_measuring_again_updates_rows_and_resuming_adds_what_is_missing(runs: Runs) -> None:
    assert "8 of 8 rows measured" in runs("again").outputs[0]
    resumed = runs("resume")
    assert "8 of 12 rows are there already." in resumed.outputs[0]
    assert "4 of 4 rows measured" in resumed.outputs[0]
    assert [row[0] for row in resumed.rows("hcom_allGather_.csv")] == ["128", "65536", "256"]


def test_nothing_left_to_measure_is_no_failure_of_any_rank(runs: Runs) -> None:
    run = runs("nothing left")
    assert run.statuses == {0: 0, 1: 0}
    assert run.outputs == {0: "8 of 8 rows are there already.\n", 1: ""}


def test_a_wrong_sum_is_not_written(runs: Runs) -> None:
    # Rank 1 contributes nothing, so half of the 512 and of the 1024 elements of two bytes are missing.
    run = runs("wrong")
    assert run.statuses == {0: 1, 1: 1}
    assert "all_reduce of 1024 bytes over 2 ranks: 256 wrong elements on ranks 0 to 1" in run.outputs[0]
    assert not run.directory.exists()


def test_a_size_that_does_not_fit_is_left_out_and_the_others_are_measured(runs: Runs) -> None:
    run = runs("memory")
    assert run.statuses == {0: 1, 1: 1}
    assert keys(run.rows("hcom_allReduce_.csv")) == [["1024", "2", "DT_BF16", "2"]]
    # A sentence that is cut must not end in the middle of its number.
    assert "all_reduce of 2048 bytes over 2 ranks: no memory (not enough memory" in run.outputs[0]
    assert "you tried to allocate 70368744177664 bytes.)" in run.outputs[0]


def test_a_rank_that_hangs_ends_the_run_within_the_limit(runs: Runs) -> None:
    run = runs("hang")
    assert run.statuses == {0: 1, 1: 1}
    assert "all_reduce of 1024 bytes over 2 ranks was not done within 2 s" in run.outputs[0]


def test_settings_that_differ_between_nodes_are_said(runs: Runs) -> None:
    run = runs("differ")
    assert run.statuses == {0: 2, 1: 2}
    assert (
        "error: The settings are not those of rank 0 on node-a, given in brackets: on node-b rank 1 has "
        "--bytes-grid 1024 (1024 2048), --iterations 7 (2). Start the same command on every node."
    ) in run.outputs[0]


def test_a_node_that_does_not_come_is_said(runs: Runs) -> None:
    run = runs("absent")
    assert run.statuses == {0: 1}
    assert "The 2 processes did not all reach 127.0.0.1:" in run.outputs[0]
    assert "within 2 s" in run.outputs[0]


def test_rows_measured_on_another_grid_are_not_mixed_in(runs: Runs) -> None:
    run = runs("other library")
    assert run.statuses == {0: 2, 1: 1}
    assert "Rank 0 stopped the run; it says why." in run.outputs[1]
    assert "holds figures of grid shape [48, 8, 2], and these are of [4, 2, 2]" in run.outputs[0]


def test_an_npu_is_found_and_timed_by_its_profiler(runs: Runs) -> None:
    run = runs("npu")
    assert run.statuses == {0: 0, 1: 0}
    # The stand-in's kernels take 10 us and 1 us a KiB of the call's first tensor: the output of an all-gather (twice
    # its message), the tensor or the output of the others. One row of the 4096 bytes was lost and cannot shift a size.
    for name in COMMUNICATION_FILES.values():
        durations = [row[4] for row in run.rows(name)]
        assert durations == (["12.00", "18.00"] if name == "hcom_allGather_.csv" else ["11.00", "14.00"])


def test_a_lost_profiler_row_is_measured_again(runs: Runs) -> None:
    calls = json.loads((runs("npu").directory.parent / "calls.json").read_text())
    assert calls[:2] == ["device 0", "backend hccl"]
    sessions = [call for call in calls if isinstance(call, dict)]
    # Eight cases, one of them twice.
    assert sessions == [{"wait": 0, "warmup": 5, "active": 2, "repeat": 1}] * 9
    assert calls[4] == "lost"


def test_torchrun_starts_it_by_its_path(tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed")
    output = tmp_path / "out" / "one.csv"
    flags = [
        "--num-devices",
        "2",
        "--bytes-grid",
        "1024",
        "--ops",
        "all_to_all",
        "--backend",
        "gloo",
        "--timeout-s",
        "30",
    ]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run(
        [*launcher, generate_comm_microbench.__file__, *flags, "--output-csv", str(output)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"1 of 1 rows measured, written to {output}"
    assert output.read_text().splitlines()[1].startswith("1024,2,DT_BF16,2,")
