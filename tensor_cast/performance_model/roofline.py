"""Analytic time of compute kernels: the slowest of matrix units, vector units and memory, plus a fixed cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensor_cast.devices.profile import DeviceProfile, KernelClass, KernelCost
from tensor_cast.ops import Attention, GroupedMatMul, MatMul, Op
from tensor_cast.quantity import Quantity, ceil_div, round_up

BOUNDS = ("matrix", "vector", "memory", "comm", "fixed", "wait")
"""What a kernel's time is bound by; the order is the code in ``KernelTime.bound``."""

# Rows that a matrix unit computes at once: 16 on Ascend's cube (fractal 16 x 16), 16 (mma.m16n8k16) on NVIDIA.
ROW_GRANULARITY = 16


@dataclass(frozen=True)
class KernelTime:
    """Seconds of one launch and their parts. ``total_s`` is the largest of the first four, plus ``fixed_s``."""

    matrix_s: Quantity
    vector_s: Quantity
    memory_s: Quantity
    comm_s: Quantity
    fixed_s: Quantity
    wait_s: Quantity = 0.0

    @property
    def busy_s(self) -> Quantity:
        """Time without the fixed cost."""
        return np.maximum(np.maximum(self.matrix_s, self.vector_s), np.maximum(self.memory_s, self.comm_s))

    @property
    def total_s(self) -> Quantity:
        """Time of one launch."""
        return self.busy_s + self.fixed_s + self.wait_s

    @property
    def bound(self) -> Quantity:
        """Index into ``BOUNDS`` of the largest part."""
        parts = np.broadcast_arrays(self.matrix_s, self.vector_s, self.memory_s, self.comm_s, self.fixed_s, self.wait_s)
        return np.asarray(np.argmax(np.stack(parts), axis=0), dtype=np.float64)


def kernel_class(op: Op) -> KernelClass:
    """Which of a device's cost rows applies to ``op``."""
    if isinstance(op, MatMul):
        return "matmul"
    if isinstance(op, GroupedMatMul):
        return "grouped_matmul"
    if isinstance(op, Attention):
        return "attention_decode" if op.decode else "attention_prefill"
    return "vector"


def compute_time(op: Op, device: DeviceProfile) -> KernelTime:
    """Time of a compute kernel on ``device``.

    Raises:
        ModelingError: the device has no rate for the op's matrix dtype.
    """
    cost = device.kernels[kernel_class(op)]
    flops = op.matrix_flops
    matrix: Quantity = 0.0
    if isinstance(op, MatMul | GroupedMatMul | Attention):
        rate = device.matrix_rate(op.matrix_dtype) * cost.matrix_efficiency
        matrix = flops * _tile_waste(op, cost, device.matrix_cores) / rate
    vector = op.vector_flops / (device.vector_rate("float32") * cost.vector_efficiency)
    memory = op.bytes / (device.memory_bandwidth * cost.memory_efficiency)
    return KernelTime(matrix, vector, memory, 0.0, cost.fixed_s)


def _tile_waste(op: Op, cost: KernelCost, cores: int) -> Quantity:
    """Matrix work that is really spent, over the work asked for: at least 1.

    Output is cut in tiles of ``tile_m`` x ``tile_n``, one a core at a time, so the last wave may be partly empty, and
    a tile at the edge is computed whole in units of ``ROW_GRANULARITY`` rows. Small outputs are split along k to fill
    the cores, which is why a single wave is not charged for its empty cores.
    """
    if isinstance(op, MatMul):
        return _wave_waste(op.m, op.n, op.batch, cost, cores)
    if isinstance(op, GroupedMatMul):
        active = np.maximum(op.active_groups, 1.0)
        return _wave_waste(np.maximum(op.m / active, 1.0), op.n, active, cost, cores)
    return 1.0


def _wave_waste(m: Quantity, n: Quantity, batch: Quantity, cost: KernelCost, cores: int) -> Quantity:
    rows = np.minimum(round_up(m, ROW_GRANULARITY), cost.tile_m)
    tiles = ceil_div(m, rows) * ceil_div(n, cost.tile_n) * batch
    waves = tiles / cores
    filled = np.where(waves > 1.0, np.ceil(waves) / waves, 1.0)
    return filled * tiles * rows * cost.tile_n / (m * n * batch)
