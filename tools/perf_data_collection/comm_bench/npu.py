"""An NPU with HCCL: a collective's time is that of its kernel in torch_npu's profiler."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch_npu  # registers torch.npu and the backend hccl

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.statistics import duration_us
from tools.perf_data_collection.comm_bench.accelerator import Accelerator, Call

_PROFILER_WARMUP = 5
_torch: Any = torch


class Npu(Accelerator):
    """One die, timed by the profiler.

    Each case has a profiler session and a directory of its own: a row in it can only be of that case, so a row that
    the profiler loses is missing and cannot shift others. Calls are queued without a wait between them, as in a model;
    a wait would let ranks drift apart, and the kernel's time would be that of waiting for the last one.
    """

    backend = "hccl"

    def __init__(self, local_rank: int) -> None:
        count = _torch.npu.device_count()
        if local_rank >= count:
            raise ModelingError(
                f"HCCL needs an NPU a process, and this machine has {count}: start {count} processes "
                "(--nproc_per_node, NPROC)."
            )
        _torch.npu.set_device(local_rank)
        self.device = torch.device("npu", local_rank)

    def synchronize(self) -> None:
        _torch.npu.synchronize()

    def version(self) -> str:
        return f"hccl, torch_npu {torch_npu.__version__}"

    def durations_us(
        self, call: Call, iterations: int, kernel: str, *, before_each: Call, records: bool
    ) -> list[float]:
        self.synchronize()
        if not records:
            for _ in range(_PROFILER_WARMUP + iterations):
                before_each()
                call()
            self.synchronize()
            return []
        with tempfile.TemporaryDirectory(prefix="comm_bench_") as directory:
            self._profile(call, iterations, directory, before_each)
            return kernel_durations_us(Path(directory), kernel)

    def _profile(self, call: Call, iterations: int, directory: str, before_each: Call) -> None:
        profiler = torch_npu.profiler
        with profiler.profile(
            activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
            schedule=profiler.schedule(wait=0, warmup=_PROFILER_WARMUP, active=iterations, repeat=1),
            on_trace_ready=profiler.tensorboard_trace_handler(directory),
            experimental_config=profiler._ExperimentalConfig(
                profiler_level=profiler.ProfilerLevel.Level1,
                aic_metrics=profiler.AiCMetrics.PipeUtilization,
                data_simplification=True,
            ),
        ) as session:
            for step in range(_PROFILER_WARMUP + iterations):
                before_each()
                call()
                if step == _PROFILER_WARMUP + iterations - 1:
                    # The last step ends the recording: its kernels must have run by then.
                    self.synchronize()
                session.step()


def kernel_durations_us(directory: Path, kernel: str) -> list[float]:
    """Durations of a collective in the kernel_details files below ``directory``; fewer than were run if some were lost.

    A collective that runs on vector cores is reported a second time under a name with ``AivKernel``, which is left out.
    """
    durations = []
    for path in sorted(directory.rglob("kernel_details.csv")):
        with path.open(encoding="utf-8-sig", newline="") as stream:
            for row in csv.DictReader(stream):
                if (row.get("Type") or "").startswith(kernel) and "AivKernel" not in (row.get("Name") or ""):
                    duration = duration_us(row.get("Duration(us)") or "")
                    if duration is not None:
                        durations.append(duration)
    return durations


def npu_available() -> bool:
    """Whether torch_npu sees an NPU."""
    return bool(_torch.npu.is_available())
