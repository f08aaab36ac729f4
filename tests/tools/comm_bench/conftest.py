"""All runs of several ranks, started once: importing torch takes longer than they do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
QUICK = ["--warmup", "1", "--iterations", "2", "--timeout-s", "20"]


@dataclass(frozen=True)
class Run:
    """What a scenario's ranks ended with, and the directory that they wrote."""

    directory: Path
    statuses: dict[int, int]
    outputs: dict[int, str]

    def rows(self, name: str) -> list[list[str]]:
        text = (self.directory / name).read_bytes().decode()
        return [line.split(",") for line in text.split("\r\n")[1:] if line]


def _scenarios(base: Path) -> dict[str, dict[str, Any]]:
    def scenario(name: str, ranks: int, *arguments: str, **others: Any) -> dict[str, Any]:
        scratch = base / name
        scratch.mkdir()
        database = ["--database-path", str(scratch / "data")]
        return {"ranks": ranks, "scratch": str(scratch), "arguments": [*arguments, *QUICK, *database], **others}

    one_op = ["--ops", "all_reduce", "--num-devices", "2", "--bytes-grid", "1024", "2048"]
    scenarios = {
        "two": scenario("two", 2, "--num-devices", "2", "--bytes-grid", "128", "65536"),
        "four": scenario(
            "four", 4, "--num-devices", "4", "2", "8", "--bytes-grid", "1024", "--grid-shape", "3", "2", "2"
        ),
        "int8": scenario("int8", 2, "--num-devices", "2", "--bytes-grid", "1000", "--dtype", "torch.int8"),
        "tier": scenario("tier", 4, "--num-devices", "2", "4", "--topology-tier", "2", *one_op[:2], *one_op[4:]),
        "wrong": scenario("wrong", 2, *one_op, patches=["no data on rank 1"]),
        "memory": scenario("memory", 2, *one_op, patches=["no memory on rank 1"]),
        "hang": scenario("hang", 2, *one_op, patches=["rank 1 never arrives"]),
        "differ": scenario(
            "differ",
            2,
            *one_op,
            patches=["two hosts", "rank 1 hears late"],
            own_arguments={"1": ["--iterations", "7", "--bytes-grid", "1024"]},
        ),
        "absent": scenario("absent", 2, *one_op, absent=[1]),
        "npu": scenario(
            "npu",
            2,
            "--num-devices",
            "2",
            "--bytes-grid",
            "1024",
            "4096",
            patches=["npu"],
            environment={"STANDIN_LOG": str(base / "npu" / "calls.json")},
        ),
    }
    for name in ("hang", "absent"):
        scenarios[name]["arguments"] += ["--timeout-s", "2"]
    for scenario_ in scenarios.values():
        if scenario_.get("patches") != ["npu"]:
            scenario_["arguments"] += ["--backend", "gloo"]
    # The same again: rows are updated in place, and with --resume only what is missing is measured.
    two = scenarios["two"]
    scenarios["again"] = {**two, "arguments": [*two["arguments"], "--iterations", "3"]}
    scenarios["resume"] = {**two, "arguments": [*two["arguments"], "--bytes-grid", "128", "256", "65536", "--resume"]}
    late = {**two, "patches": ["rank 1 hears late"]}
    scenarios["nothing left"] = {**late, "arguments": [*two["arguments"], "--resume"]}
    scenarios["other library"] = {**late, "arguments": [*two["arguments"], "--grid-shape", "4", "2", "2"]}
    return scenarios


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """A scenario's outcome by its name."""
    pytest.importorskip("torch.distributed", reason="PyTorch is not installed")
    base = tmp_path_factory.mktemp("ranks")
    scenarios = _scenarios(base)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(HERE / "run_ranks.py")],
        input=json.dumps(scenarios),
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)

    def run(name: str) -> Run:
        ranks = {int(rank): outcome for rank, outcome in outcomes[name].items()}
        return Run(
            Path(scenarios[name]["scratch"]) / "data",
            {rank: outcome["status"] for rank, outcome in ranks.items()},
            {rank: outcome["output"] for rank, outcome in ranks.items()},
        )

    return run
