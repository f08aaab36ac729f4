"""Runs the benchmark's ranks as torchrun would, one scenario after another, in forks of one process.

Importing torch takes seconds; it is done once here. Reads scenarios as JSON from stdin, prints what became of them.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch  # noqa: F401  # imported before the forks

from tools.perf_data_collection.comm_bench import generate_comm_microbench, measure, session


def _no_data_on_rank_1(rank: int) -> None:
    if rank == 1:
        measure.fill = lambda *arguments: None  # type: ignore[assignment]


def _rank_1_never_arrives(rank: int) -> None:
    if rank == 1:
        measure.launcher = lambda *arguments: lambda: time.sleep(60)  # type: ignore[assignment]


def _rank_1_hears_late(rank: int) -> None:
    real = session.Session.hear_leader

    def late(self: session.Session, topic: str, patience: int = 1) -> str:
        time.sleep(0.3)
        return real(self, topic, patience)

    if rank == 1:
        session.Session.hear_leader = late  # type: ignore[method-assign]


def _no_memory_on_rank_1(rank: int) -> None:
    real = measure.allocate

    def allocate(op: str, message_bytes: int, *others: Any) -> Any:
        if message_bytes == 2048 and rank == 1:
            raise RuntimeError(f"{'not enough memory: ' * 6}you tried to allocate 70368744177664 bytes.")
        return real(op, message_bytes, *others)

    measure.allocate = allocate


def _npu(rank: int) -> None:
    import standin_torch_npu

    standin_torch_npu.install(rank, Path(os.environ["STANDIN_LOG"]))


def _host_b_from_rank_1(rank: int) -> None:
    socket.gethostname = lambda: "node-b" if rank else "node-a"
    session.socket.gethostname = socket.gethostname


PATCHES: dict[str, Callable[[int], None]] = {
    "no data on rank 1": _no_data_on_rank_1,
    "rank 1 never arrives": _rank_1_never_arrives,
    "no memory on rank 1": _no_memory_on_rank_1,
    "rank 1 hears late": _rank_1_hears_late,
    "npu": _npu,
    "two hosts": _host_b_from_rank_1,
}


def run(scenario: dict[str, Any]) -> dict[str, Any]:
    """Statuses and outputs of all ranks of a scenario; ranks in ``absent`` are not started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = {
        rank: _fork(scenario, rank, port) for rank in range(scenario["ranks"]) if rank not in scenario.get("absent", ())
    }
    results = {}
    for rank, (pid, output) in started.items():
        _, status = os.waitpid(pid, 0)
        results[str(rank)] = {"status": os.waitstatus_to_exitcode(status), "output": output.read_text()}
        output.unlink()
    return results


def _fork(scenario: dict[str, Any], rank: int, port: int) -> tuple[int, Path]:
    output = Path(f"{scenario['scratch']}/rank{rank}.out")
    pid = os.fork()
    if pid:
        return pid, output
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(scenario["ranks"]),
        LOCAL_WORLD_SIZE=str(scenario["ranks"]),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        **scenario.get("environment", {}),
    )
    for patch in scenario.get("patches", ()):
        PATCHES[patch](rank)
    own = scenario.get("own_arguments", {}).get(str(rank), [])
    status = generate_comm_microbench.main([*scenario["arguments"], *own])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    print(json.dumps({name: run(scenario) for name, scenario in json.load(sys.stdin).items()}))
