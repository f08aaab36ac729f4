"""A torch_npu for machines without an NPU: processors take the place of the dies, gloo that of HCCL.

It checks that the profiler is asked for what its rows need, records the calls, and writes the files that the real one
writes. A kernel's duration is 10 us and 1 us a KiB of the call's first tensor, so that a row tells which call it was.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

KERNELS = {
    "all_reduce": "hcom_allReduce_",
    "all_gather_into_tensor": "hcom_allGather_",
    "reduce_scatter_tensor": "hcom_reduceScatter_",
    "all_to_all": "hcom_alltoallv_",
}
LOST_BYTES = 4096
"""Of the first session with an all-reduce of this size one row is lost."""


class _Profile:
    """``torch_npu.profiler.profile``."""

    current: _Profile | None = None

    def __init__(self, **arguments: Any) -> None:
        assert set(arguments) == {"activities", "schedule", "on_trace_ready", "experimental_config"}
        assert arguments["activities"] == ["CPU", "NPU"]
        assert arguments["experimental_config"] == {
            "profiler_level": "Level1",
            "aic_metrics": "PipeUtilization",
            "data_simplification": True,
        }
        self.schedule = arguments["schedule"]
        self.directory = Path(arguments["on_trace_ready"])
        self.step_number = 0
        self.rows: list[tuple[str, int]] = []

    def __enter__(self) -> _Profile:
        _Profile.current = self
        return self

    def step(self) -> None:
        self.step_number += 1

    def record(self, kernel: str, size: int) -> None:
        if self.schedule["warmup"] <= self.step_number < self.schedule["warmup"] + self.schedule["active"]:
            self.rows.append((kernel, size))

    def __exit__(self, *error: object) -> None:
        _Profile.current = None
        assert self.step_number == self.schedule["warmup"] + self.schedule["active"]
        output = self.directory / "host_1_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True)
        lose_one = ("hcom_allReduce_", LOST_BYTES) in self.rows and "lost" not in LOG
        if lose_one:
            LOG.append("lost")
        with (output / "kernel_details.csv").open("w", newline="", encoding="utf-8-sig") as stream:
            writer = csv.writer(stream)
            writer.writerow(["Step Id", "Name", "Type", "Accelerator Core", "Duration(us)"])
            writer.writerow([0, "aclnnZero", "ZerosLike", "AI_VECTOR_CORE", "3.0"])
            for number, (kernel, size) in enumerate(self.rows[1:] if lose_one else self.rows):
                duration = f"{10 + size / 1024:.3f}"
                writer.writerow([number, f"{kernel}_483_{number}_1", kernel, "COMMUNICATION", duration])
                writer.writerow([number, f"{kernel}AivKernel", kernel, "AI_VECTOR_CORE", "999.0"])
                writer.writerow([number, f"{kernel}_483_{number}_2", kernel, "COMMUNICATION", "N/A"])


LOG: list[Any] = []


def install(rank: int, log: Path) -> None:
    """Put the stand-in in the place of torch_npu, and record calls of rank 0 in ``log`` when the group is left."""
    module = ModuleType("torch_npu")
    module.__spec__ = SimpleNamespace(name="torch_npu")  # type: ignore[assignment]
    module.__version__ = "2.9.0"  # type: ignore[attr-defined]
    module.profiler = SimpleNamespace(  # type: ignore[attr-defined]
        profile=_Profile,
        schedule=lambda **steps: LOG.append(steps) or steps,
        tensorboard_trace_handler=str,
        ProfilerActivity=SimpleNamespace(CPU="CPU", NPU="NPU"),
        ProfilerLevel=SimpleNamespace(Level1="Level1"),
        AiCMetrics=SimpleNamespace(PipeUtilization="PipeUtilization"),
        _ExperimentalConfig=dict,
    )
    sys.modules["torch_npu"] = module
    torch.npu = SimpleNamespace(  # type: ignore[attr-defined]
        is_available=lambda: True,
        device_count=lambda: 2,
        set_device=lambda device: LOG.append(f"device {device}"),
        synchronize=lambda: None,
    )
    from tools.perf_data_collection.comm_bench import npu

    npu.torch = SimpleNamespace(device=lambda kind, index: torch.device({"npu": "cpu"}[kind]))  # type: ignore[assignment]
    for name, kernel in KERNELS.items():
        setattr(dist, name, _recorded(getattr(dist, name), kernel))
    join, leave = dist.init_process_group, dist.destroy_process_group

    def init_process_group(backend: str, **arguments: Any) -> None:
        LOG.append(f"backend {backend}")
        join({"hccl": "gloo"}[backend], **arguments)

    def destroy_process_group() -> None:
        leave()
        if rank == 0:
            log.write_text(json.dumps(LOG))

    dist.init_process_group, dist.destroy_process_group = init_process_group, destroy_process_group


def _recorded(call: Callable[..., Any], kernel: str) -> Callable[..., Any]:
    def recorded(*tensors: Any, **arguments: Any) -> Any:
        if _Profile.current is not None:
            first = tensors[0]
            total = sum(part.nbytes for part in first) if isinstance(first, list) else first.nbytes
            _Profile.current.record(kernel, total)
        return call(*tensors, **arguments)

    return recorded
