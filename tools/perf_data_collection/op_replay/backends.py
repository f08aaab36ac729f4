"""Where rows run, and who measures them there."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch

from tensor_cast.errors import ModelingError
from tools.perf_data_collection.op_replay.layouts import FRACTAL_NZ_CODE


class Backend(Protocol):
    """A device that rows run on."""

    name: str
    default_warmup: int

    def place(self, tensor: torch.Tensor, *, is_fractal: bool) -> torch.Tensor:
        """A host tensor moved to the device."""

    def measure(self, call: Callable[[], Any], warmup: int, repeat: int) -> list[float]:
        """Microseconds of ``repeat`` runs after ``warmup`` unmeasured ones; empty where an outside profiler records.

        The device is synchronised after every run.
        """

    def free_bytes(self) -> int:
        """Memory that is left for operands."""

    def describe(self) -> str:
        """The device in words."""


class CpuBackend:
    """Timed runs of the operation in torch: a call's wall time with Python's dispatch in it."""

    name = "cpu"
    default_warmup = 1

    def place(self, tensor: torch.Tensor, *, is_fractal: bool) -> torch.Tensor:
        """The tensor itself: the fractal layout is the NPU's business, the operation is the same without."""
        return tensor

    def measure(self, call: Callable[[], Any], warmup: int, repeat: int) -> list[float]:
        for _ in range(warmup):
            call()
        times = []
        for _ in range(repeat):
            start = time.perf_counter_ns()
            call()
            times.append((time.perf_counter_ns() - start) / 1e3)
        return times

    def free_bytes(self) -> int:
        try:
            lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
        except (OSError, StopIteration):
            return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def describe(self) -> str:
        return f"CPU {_processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


class CudaBackend:
    """Kernel times of torch's profiler, summed over the kernels that one run launches."""

    name = "cuda"
    default_warmup = 1

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise ModelingError(
                "torch sees no CUDA device: install a CUDA build of torch on a machine with a GPU, "
                "or use --backend cpu."
            )

    def place(self, tensor: torch.Tensor, *, is_fractal: bool) -> torch.Tensor:
        return tensor.cuda()

    def measure(self, call: Callable[[], Any], warmup: int, repeat: int) -> list[float]:
        from torch.profiler import ProfilerActivity, profile

        for _ in range(warmup):
            call()
        torch.cuda.synchronize()
        times = []
        for _ in range(repeat):
            with profile(activities=[ProfilerActivity.CUDA]) as recorded:
                call()
                torch.cuda.synchronize()
            times.append(float(sum(event.self_device_time_total for event in recorded.key_averages())))
        return times

    def free_bytes(self) -> int:
        return int(torch.cuda.mem_get_info()[0])

    def describe(self) -> str:
        return f"GPU {torch.cuda.get_device_name()}, torch {torch.__version__}"


class NpuBackend:
    """Launches for msprof, which runs around this process and records every one of them."""

    name = "npu"
    default_warmup = 0

    def __init__(self) -> None:
        from tools.perf_data_collection.op_replay.npu import require_npu

        self._torch_npu: Any = require_npu()
        self._torch_npu.npu.config.allow_internal_format = True
        self._npu = self._torch_npu.npu

    def place(self, tensor: torch.Tensor, *, is_fractal: bool) -> torch.Tensor:
        on_host: Any = tensor
        moved: torch.Tensor = on_host.npu()
        if is_fractal:
            moved = self._torch_npu.npu_format_cast(moved, FRACTAL_NZ_CODE)
        return moved

    def measure(self, call: Callable[[], Any], warmup: int, repeat: int) -> list[float]:
        for _ in range(warmup + repeat):
            call()
            self._npu.synchronize()
        return []

    def free_bytes(self) -> int:
        return int(self._npu.mem_get_info()[0])

    def describe(self) -> str:
        return f"NPU {self._npu.get_device_name()}, torch {torch.__version__}"


BACKENDS: dict[str, Callable[[], Backend]] = {"npu": NpuBackend, "cuda": CudaBackend, "cpu": CpuBackend}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
