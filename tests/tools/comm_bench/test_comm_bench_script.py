"""run_comm_bench.sh with a torchrun that only writes down how it was called."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.perf_data_collection import comm_bench

SCRIPT = Path(comm_bench.__file__).with_name("run_comm_bench.sh")
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the script needs bash")


class Outcome:
    def __init__(self, done: subprocess.CompletedProcess[str], log: Path) -> None:
        self.status = done.returncode
        self.text = done.stdout + done.stderr
        self.calls = [line.split() for line in log.read_text().splitlines()] if log.exists() else []

    def flag(self, name: str) -> list[list[str]]:
        """Values of a flag in every call."""
        found = []
        for call in self.calls:
            if f"--{name}" in call:
                place = call.index(f"--{name}") + 1
                end = next((i for i in range(place, len(call)) if call[i].startswith("--")), len(call))
                found.append(call[place:end])
        return found

    def ports(self) -> list[int]:
        return [int(word.split("=")[1]) for call in self.calls for word in call if word.startswith("--master_port=")]


def start(tmp_path: Path, *arguments: str, torchrun: str = "", **variables: str) -> Outcome:
    launcher = tmp_path / "torchrun"
    log = tmp_path / "calls"
    launcher.write_text(f'#!/usr/bin/env bash\necho "$*" >> {log}\n{torchrun}\n')
    launcher.chmod(0o755)
    ours = ("NNODES", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "NPROC", "QUICK", "RESUME", "TIMEOUT_S")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**environment, "TORCHRUN": str(launcher), **variables},
        check=False,
    )
    return Outcome(done, log)


def test_one_node_runs_the_standard_set(tmp_path: Path) -> None:
    run = start(tmp_path)
    assert run.status == 0, run.text
    assert run.ports() == list(range(29700, 29712))
    assert run.flag("num-devices") == [["16"], ["8"], ["4"], ["2"]] * 3
    ops = [["all_reduce"], ["all_gather", "reduce_scatter"], ["all_to_all"]]
    assert run.flag("ops") == [each for each in ops for _ in range(4)]
    assert run.flag("grid-shape") == [["48", "8", "2"]] * 12
    assert run.flag("database-path") == [["./hccl_bench_data"]] * 12
    assert all(
        call[0] == f"--nproc_per_node={devices[0]}"
        for call, devices in zip(run.calls, run.flag("num-devices"), strict=True)
    )
    # 128 B to 512 MiB in powers of two: 2^7 to 2^29.
    assert run.flag("bytes-grid")[0] == [str(2**power) for power in range(7, 30)]
    assert (tmp_path / "hccl_bench_data").is_dir()


def test_a_failing_session_is_reported_after_the_others_ran(tmp_path: Path) -> None:
    run = start(tmp_path, "out", torchrun='[[ "$*" == *29702* ]] && exit 3; exit 0')
    assert run.status == 1
    assert len(run.calls) == 12
    assert "all_reduce over 4 failed with exit status 3" in run.text
    assert "1 sessions failed:\n  all_reduce over 4" in run.text


def test_a_crash_while_closing_is_harmless_only_when_all_rows_were_written(tmp_path: Path) -> None:
    written = "echo '23 of 23 rows measured, written to x'; exit 139"
    assert start(tmp_path, torchrun=written).status == 0
    assert start(tmp_path, torchrun="exit 139").status == 1
    assert start(tmp_path, torchrun=f"echo 'failed: one'; {written}").status == 1


def test_several_nodes_measure_groups_between_pods(tmp_path: Path) -> None:
    run = start(tmp_path, QUICK="1", NNODES="48", NODE_RANK="3", MASTER_ADDR="node0")
    assert run.status == 0, run.text
    assert run.ports() == [29701, 29702, 29703]
    # 48 x 16 dies are 768: powers of two from 32, then 384 and 768.
    assert run.flag("num-devices") == [["32", "64", "128", "256", "512", "384", "768"]] * 3
    assert run.flag("topology-tier") == [["0"]] * 3
    assert run.flag("bytes-grid")[0] == ["1024", "65536", "1048576", "16777216", "268435456"]
    for word in ("--nnodes=48", "--node_rank=3", "--master_addr=node0", "--nproc_per_node=16"):
        assert all(word in call for call in run.calls)
    assert run.flag("database-path")[0] == ["./hccl_bench_inter_pod_v8.5"]


def test_its_variables_reach_the_sessions(tmp_path: Path) -> None:
    variables = {"NNODES": "4", "NODE_RANK": "0", "MASTER_ADDR": "h", "MASTER_PORT": "30000", "NPROC": "8"}
    run = start(tmp_path, "out", "--dtype", "torch.int8", RESUME="1", TIMEOUT_S="60", **variables)
    assert run.ports() == [30001, 30002, 30003]
    assert run.flag("num-devices") == [["32"]] * 3
    assert run.flag("timeout-s") == [["60"]] * 3
    assert run.flag("dtype") == [["torch.int8"]] * 3
    assert run.flag("resume") == [[]] * 3


def test_a_node_that_does_not_come_is_said(tmp_path: Path) -> None:
    silent = "echo 'DistStoreError: Timed out after 301 seconds waiting for clients. 1/2 clients joined.' >&2; exit 1"
    run = start(tmp_path, torchrun=silent, NNODES="2", NODE_RANK="0", MASTER_ADDR="node0")
    assert run.status == 1
    assert len(run.calls) == 3
    assert "not all 2 nodes met at node0 within 300 s: start this script on every node" in run.text


@pytest.mark.parametrize(
    ("variables", "status", "words"),
    [
        ({"NNODES": "2"}, 2, "NODE_RANK is not set"),
        ({"NNODES": "2", "NODE_RANK": "0"}, 2, "MASTER_ADDR is not set"),
        ({"NNODES": "2", "NODE_RANK": "2", "MASTER_ADDR": "h"}, 2, "NODE_RANK 2 is not below NNODES 2"),
        ({"NNODES": "two"}, 2, "NNODES must be a whole number, not 'two'"),
        ({"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "h", "NPROC": "8"}, 1, "fewer than the 32"),
    ],
)
def test_wrong_variables_start_nothing(tmp_path: Path, variables: dict[str, str], status: int, words: str) -> None:
    run = start(tmp_path, **variables)
    assert (run.status, run.calls) == (status, [])
    assert words in run.text


def test_help_and_flags_in_the_place_of_the_directory_start_nothing(tmp_path: Path) -> None:
    shown = start(tmp_path, "--help")
    assert (shown.status, shown.calls) == (0, [])
    assert shown.text.startswith("Measure the standard set of collectives")
    assert shown.text.splitlines()[-1].startswith("Exit status: 0 all sessions")
    refused = start(tmp_path, "--dtype", "torch.int8")
    assert (refused.status, refused.calls) == (2, [])
    assert "the first argument is the directory OUT, not '--dtype'" in refused.text
    assert [path.name for path in tmp_path.iterdir()] == ["torchrun"]


def test_without_a_launcher_nothing_starts(tmp_path: Path) -> None:
    run = start(tmp_path, TORCHRUN="no-such-torchrun")
    assert run.status == 2
    assert "no-such-torchrun is not there: pip install 'msmodeling[torch]'" in run.text
    assert not (tmp_path / "hccl_bench_data").exists()


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    run = start(tmp_path, "file/out")
    assert run.status == 2
    assert "the directory file/out cannot be made" in run.text
