"""The processes that run a collective kernel together, and how they are started."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tensor_cast.errors import ModelingError
from tools.perf_data_collection.op_replay.arguments import processes_per_node
from tools.perf_data_collection.op_replay.npu import require_npu


@dataclass(frozen=True)
class Team:
    """A process and its peers; the default is a team of one. ``control`` is a CPU group for their agreements."""

    rank: int = 0
    size: int = 1
    control: Any = None

    @property
    def is_first(self) -> bool:
        """Whether this process speaks for the team."""
        return self.rank == 0

    def agrees(self, is_well: bool) -> bool:
        """Whether all processes are well; every one of them must ask."""
        if self.size == 1:
            return is_well
        import torch
        import torch.distributed as dist

        flag = torch.tensor([0 if is_well else 1])
        dist.all_reduce(flag, group=self.control)
        return int(flag.item()) == 0


def is_member() -> bool:
    """Whether torchrun started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


@contextmanager
def joined(backend: str) -> Iterator[Team]:
    """Join the team that torchrun's variables describe, over HCCL, NCCL or gloo.

    Raises:
        ModelingError: the peers cannot be reached.
    """
    import torch
    import torch.distributed as dist

    local = int(os.environ.get("LOCAL_RANK", "0"))
    if backend == "npu":
        require_npu().npu.set_device(local)
    elif backend == "cuda":
        torch.cuda.set_device(local)
    try:
        dist.init_process_group({"npu": "hccl", "cuda": "nccl", "cpu": "gloo"}[backend])
    except Exception as error:  # torch raises several kinds for peers that do not come
        raise ModelingError(f"The processes cannot reach each other: {error}", exit_status=1) from None
    try:
        control = dist.group.WORLD if backend == "cpu" else dist.new_group(backend="gloo")
        team = Team(dist.get_rank(), dist.get_world_size(), control)
        yield team
        team.agrees(True)  # a peer that leaves early breaks off what the others still wait for
    finally:
        dist.destroy_process_group()


def torchrun_command(arguments: argparse.Namespace, script: Sequence[str]) -> list[str]:
    """The command that starts a script once a process of the team."""
    port = arguments.master_port or _free_port()
    return [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nproc-per-node", str(processes_per_node(arguments)), "--nnodes", str(arguments.nnodes)),
        *("--node-rank", str(arguments.node_rank)),
        *("--master-addr", arguments.master_addr, "--master-port", str(port)),
        *script,
    ]


def run_team(arguments: argparse.Namespace, script: Sequence[str]) -> int:
    """Run a script as a team; returns torchrun's exit status."""
    environment = {**os.environ}
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes_per_node(arguments))))
    return subprocess.run(torchrun_command(arguments, script), env=environment, check=False).returncode


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
