"""Kernels of NVIDIA devices and of an Ascend A3 die: the analytic model beside published device times."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks import measured_a3
from benchmarks.accuracy_rows import Aim, Group, Row
from benchmarks.kernel_notes import Work, noted
from benchmarks.measured_kernels import SET_ASIDE, SYSTEMS, is_fitted, ops_of_table, row_key
from tensor_cast.devices import DeviceProfile, get_device
from tensor_cast.errors import ModelingError
from tensor_cast.ops import Attention, Collective, GroupedMatMul, MatMul, Op
from tensor_cast.performance_model.error import error_band
from tensor_cast.performance_model.timing import analytic_timer

NVIDIA_SOURCE = "kernel tables of aiconfigurator-core 0.12.0"
A3_SOURCE = "device times in vLLM serving traces of one Ascend 910C die"
OF_ONE_KIND = (
    *("system", "kernel", "op", "backend", "kernel_source", "dtype", "kv_dtype", "head_dim", "window", "distribution"),
    "num_gpus",
)


def nvidia_groups(rows: Iterable[Mapping[str, Any]]) -> list[Group]:
    """Rows of ``kernels_nvidia.csv``, by kind of kernel."""
    groups = {
        "gemm": Group("gemm", "GEMM, NVIDIA, bf16", NVIDIA_SOURCE, aim=Aim(median=0.1, mean=0.18)),
        "gemm_quantised": Group(
            "gemm_quantised", "GEMM, NVIDIA, FP8 and NVFP4", NVIDIA_SOURCE, aim=Aim(median=0.1, mean=0.18)
        ),
        "context_attention": Group(
            "attention_prefill", "Attention, NVIDIA, prefill", NVIDIA_SOURCE, aim=Aim(median=0.1)
        ),
        "generation_attention": Group(
            "attention_decode", "Attention, NVIDIA, decode", NVIDIA_SOURCE, aim=Aim(median=0.1)
        ),
        "moe": Group("moe", "Expert layers, NVIDIA", NVIDIA_SOURCE, aim=Aim(median=0.2)),
        "nccl": Group("collectives", "Collectives, NVIDIA", NVIDIA_SOURCE, aim=Aim(median=0.2)),
    }
    groups["custom_allreduce"] = groups["nccl"]
    compared = Comparison()
    for row in rows:
        kind = row["kernel"]
        if kind == "gemm" and row["dtype"] != "bfloat16":
            kind = "gemm_quantised"
        group = groups[kind]
        if row["kernel_source"] in SET_ASIDE:
            group.unpriced[SET_ASIDE[row["kernel_source"]]] += 1
            continue
        device = get_device(SYSTEMS[row["system"]])
        if row["kernel"] == "nccl":
            # NCCL has no all-reduce at one go, which the product prices because engines have one.
            device = replace(device, collective=replace(device.collective, one_shot_s=0.0))
        kind = tuple(row[name] for name in OF_ONE_KIND)
        compared.add(group, row_key(row), kind, ops_of_table(row), device, row["latency_us"] * 1e-6)
    return compared.noted(_distinct(groups.values()))


def a3_groups(kernels: Iterable[Mapping[str, Any]], collectives: Iterable[Mapping[str, Any]]) -> list[Group]:
    """Rows of ``kernels_a3.csv`` and ``comm_a3.csv``."""
    device = get_device(measured_a3.DEVICE)
    matmul = Group("a3_matmul", "Matrix products, Ascend A3", A3_SOURCE, aim=Aim(median=0.15))
    vector = Group("a3_vector", "Vector kernels, Ascend A3", A3_SOURCE, aim=Aim(median=0.25))
    comm = Group("a3_collectives", "Collectives, Ascend A3", A3_SOURCE, aim=Aim(median=0.15))
    compared = Comparison()
    for row in kernels:
        ops = measured_a3.ops_of_row(row)
        group = matmul if row["kernel"] in measured_a3.MATMULS else vector
        if isinstance(ops, str):
            group.unpriced[ops] += 1
        else:
            # A weight of four dimensions is tiled; a kernel alone and one within a model find other caches.
            ranks = tuple(shape.count(",") for shape in row["input_shapes"].split(";"))
            kind = (row["kernel"], row["variant"], row["input_dtypes"], row["mode"], ranks)
            compared.add(group, measured_a3.row_key(row), kind, ops, device, row["mean_us"] * 1e-6)
    for row in collectives:
        ops = measured_a3.collective_of_row(row)
        if isinstance(ops, str):
            comm.unpriced[ops] += 1
        else:
            kind = (row["op"], row["num_devices"])
            compared.add(comm, measured_a3.collective_key(row), kind, ops, device, row["duration_us"] * 1e-6)
    return compared.noted([matmul, vector, comm])


@dataclass(frozen=True)
class Comparison:
    """Groups of kernels that are being filled, with the work of each of their rows, by the group's name."""

    work: dict[str, list[Work]] = field(default_factory=dict)

    def add(
        self, group: Group, key: str, kind: Hashable, ops: Sequence[Op], device: DeviceProfile, measured_s: float
    ) -> None:
        """Price ``ops`` together and add them to ``group``; the band is that of the op that the row is about."""
        timer = analytic_timer(device)
        try:
            timings = [timer(op) for op in ops]
        except ModelingError as error:
            group.unpriced[str(error)] += 1
            return
        predicted = sum(float(timing.time.total_s) for timing in timings)
        main = next(
            (i for i, op in enumerate(ops) if isinstance(op, GroupedMatMul | MatMul | Attention | Collective)), 0
        )
        band = replace(
            timings[main], time=replace(timings[main].time, wait_s=predicted - float(timings[main].time.total_s))
        )
        low, high = error_band(ops[main], band, device)
        group.rows.append(Row(key, measured_s, predicted, is_fitted(key), float(low), float(high)))
        flops = sum(float(op.matrix_flops) for op in ops)
        moved = sum(float(op.sent_bytes if isinstance(op, Collective) else op.bytes) for op in ops)
        self.work.setdefault(group.name, []).append(Work(kind, flops, moved))

    def noted(self, groups: Iterable[Group]) -> list[Group]:
        """The groups with what their rows say of each other."""
        return [replace(group, rows=noted(group.rows, self.work.get(group.name, []))) for group in groups]


def _distinct(groups: Iterable[Group]) -> list[Group]:
    found: list[Group] = []
    for group in groups:
        if all(group is not other for other in found):
            found.append(group)
    return found
