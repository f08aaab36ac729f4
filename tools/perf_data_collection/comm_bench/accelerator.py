"""The device under the collectives: which backend is there, how a call is timed on it."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist

from tensor_cast.errors import ModelingError

Call = Callable[[], None]
_cuda: Any = torch.cuda


class Accelerator:
    """A processor with gloo: calls return when they are done, so the host's clock times them."""

    backend = "gloo"

    def __init__(self, local_rank: int) -> None:
        self.device = torch.device("cpu")

    def synchronize(self) -> None:
        """Wait until everything that was launched is done."""

    def version(self) -> str:
        """The library that the figures belong to."""
        return "gloo"

    def durations_us(
        self, call: Call, iterations: int, kernel: str, *, before_each: Call, records: bool
    ) -> list[float]:
        """Microseconds of each of ``iterations`` calls, as this rank sees them.

        All ranks of a group make the identical calls; only one whose ``records`` is true needs to return durations.
        ``kernel`` is the name that an NPU's profiler reports; ``before_each`` runs between the calls, untimed.
        """
        durations = []
        for _ in range(iterations):
            before_each()
            start = time.perf_counter()
            call()
            durations.append((time.perf_counter() - start) * 1e6)
        return durations


class Gpu(Accelerator):
    """A GPU with NCCL, timed by events in its stream. Calls are queued without a wait between them, as in a model."""

    backend = "nccl"

    def __init__(self, local_rank: int) -> None:
        count = torch.cuda.device_count()
        if local_rank >= count:
            raise ModelingError(
                f"NCCL needs a GPU a process, and this machine has {count}: start {count} processes "
                "(--nproc_per_node), or measure with --backend gloo."
            )
        torch.cuda.set_device(local_rank)
        self.device = torch.device("cuda", local_rank)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def version(self) -> str:
        return f"nccl {'.'.join(map(str, _cuda.nccl.version()))}"

    def durations_us(
        self, call: Call, iterations: int, kernel: str, *, before_each: Call, records: bool
    ) -> list[float]:
        marks = [_cuda.Event(enable_timing=True) for _ in range(iterations + 1)]
        marks[0].record()
        for mark in marks[1:]:
            before_each()
            call()
            mark.record()
        self.synchronize()
        return [start.elapsed_time(end) * 1e3 for start, end in pairwise(marks)]


def choose_backend(asked: str | None) -> str:
    """``asked``, or the backend of the accelerator that is there: hccl, nccl, else gloo.

    Raises:
        ModelingError: what was asked for is not there.
    """
    there = {"hccl": _has_npu, "nccl": _has_gpu, "gloo": dist.is_gloo_available}
    if asked is None:
        return next((backend for backend, is_there in there.items() if is_there()), "gloo")
    if not there[asked]():
        remedy = {
            "hccl": "install torch_npu and check npu-smi info",
            "nccl": "install a CUDA build of PyTorch and check nvidia-smi",
            "gloo": "install a build of PyTorch with gloo",
        }
        raise ModelingError(f"--backend {asked} is not usable on this machine: {remedy[asked]}, or leave it out.")
    return asked


def open_accelerator(backend: str, local_rank: int, timeout_s: int) -> Accelerator:
    """The device of this process.

    Raises:
        ModelingError: there is none for it.
    """
    if backend == "hccl":
        # HCCL's own limits, unless the user has set them; the shortest connection limit that it takes is 120 s.
        os.environ.setdefault("HCCL_EXEC_TIMEOUT", str(timeout_s))
        os.environ.setdefault("HCCL_CONNECT_TIMEOUT", str(max(120, timeout_s)))
        from tools.perf_data_collection.comm_bench.npu import Npu

        return Npu(local_rank)
    return Gpu(local_rank) if backend == "nccl" else Accelerator(local_rank)


def _has_npu() -> bool:
    if importlib.util.find_spec("torch_npu") is None:
        return False
    from tools.perf_data_collection.comm_bench.npu import npu_available

    return npu_available()


def _has_gpu() -> bool:
    return bool(torch.cuda.is_available() and dist.is_nccl_available())
