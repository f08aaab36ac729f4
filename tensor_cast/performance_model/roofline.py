"""Analytic time of compute kernels: matrix units, vector units and memory, how far they overlap, and a fixed cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from math import prod

import numpy as np

from tensor_cast.devices.profile import DeviceProfile, KernelClass, KernelCost
from tensor_cast.ops import Attention, Elementwise, GroupedMatMul, MatMul, Op, StateAttention
from tensor_cast.performance_model.tiles import attention_times, matmul_time
from tensor_cast.quantity import Quantity, ceil_div

CONVOLUTIONS = ("conv2d", "conv3d")
"""Products that gather their first operand from a grid, in kernels of their own."""
BOUNDS = ("matrix", "vector", "memory", "comm", "fixed", "wait")
"""What a kernel's time is bound by; the order is the code in ``KernelTime.bound``."""


@dataclass(frozen=True)
class KernelTime:
    """Seconds of one launch and their parts.

    ``total_s`` is the largest of the first four, plus ``unhidden_s`` (what of the others did not hide behind it), plus
    ``fixed_s`` and ``wait_s``.
    """

    matrix_s: Quantity
    vector_s: Quantity
    memory_s: Quantity
    comm_s: Quantity
    fixed_s: Quantity
    wait_s: Quantity = 0.0
    unhidden_s: Quantity = 0.0

    @cached_property
    def busy_s(self) -> Quantity:
        """Time without the fixed cost."""
        largest = np.maximum(np.maximum(self.matrix_s, self.vector_s), np.maximum(self.memory_s, self.comm_s))
        return largest + self.unhidden_s

    @cached_property
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
    cost = device.kernels[cost_key(op, device)]
    matrix, vector = _work_times(op, cost, device)
    memory = op.bytes / (device.memory_bandwidth * cost.memory_efficiency)
    fixed: Quantity = cost.fixed_s
    if cost.start_s and op.inputs:
        cores, busy = _vector_cores(op, cost, device.vector_cores)
        fixed = fixed + cost.start_s * cores
        memory = memory / busy
    unhidden: Quantity = 0.0
    if cost.overlap < 1.0:
        unhidden = (1.0 - cost.overlap) * (matrix + vector + memory - np.maximum(np.maximum(matrix, vector), memory))
    return KernelTime(matrix, vector, memory, 0.0, fixed, unhidden_s=unhidden)


def cost_key(op: Op, device: DeviceProfile) -> str:
    """The row of a device's ``kernels`` that prices ``op``: ``matmul``, ``matmul_fp8``, ``attention_prefill_full``."""
    return device.kernel_key(kernel_class(op), *cost_variants(op))


def cost_variants(op: Op) -> tuple[str, ...]:
    """Variants of its class that ``op`` belongs to, the more telling first."""
    if isinstance(op, StateAttention):
        return ("state",)
    if isinstance(op, Attention) and op.diffusion:
        older = ("fa2",) if op.name == "flash_attention_2" else ()
        return (op.matrix_dtype, *older, "full")
    if isinstance(op, MatMul) and op.name in CONVOLUTIONS:
        return (op.matrix_dtype, "conv")
    if isinstance(op, MatMul | GroupedMatMul):
        weights = {t.dtype for t in op.inputs if t.role == "weight" and len(t.shape) > 1} - {op.matrix_dtype}
        return (*(f"{op.matrix_dtype}_{dtype}" for dtype in sorted(weights)), op.matrix_dtype)
    return ("flat",) if isinstance(op, Elementwise) and op.flat else (op.matrix_dtype,)


def _vector_cores(op: Op, cost: KernelCost, cores: int) -> tuple[Quantity, Quantity]:
    """Cores that a vector kernel starts, and what share of all cores is busy while it runs.

    Rows go to a core each, wave after wave; the last wave leaves cores idle. Elements of a flat kernel are shared out
    evenly.
    """
    if cost.share_bytes:
        started = np.minimum(np.maximum(ceil_div(op.bytes, cost.share_bytes), 1.0), cores)
        return started, started / cores
    rows = _rows(op)
    return np.minimum(rows, cores), rows / (ceil_div(rows, cores) * cores)


def _rows(op: Op) -> Quantity:
    """Rows of the activation that has most: an embedding has one row of indices and writes many."""
    activations = (tensor for tensor in (*op.inputs, *op.outputs) if tensor.role == "activation")
    one: Quantity = 1.0
    return reduce(np.maximum, (prod(tensor.shape[:-1], start=1.0) for tensor in activations), one)


def _work_times(op: Op, cost: KernelCost, device: DeviceProfile) -> tuple[Quantity, Quantity]:
    """Seconds of the matrix units and of the vector units."""
    vector_rate = device.vector_rate("float32") * cost.vector_efficiency
    vector: Quantity = op.vector_flops / vector_rate
    if not isinstance(op, MatMul | GroupedMatMul | Attention):
        return 0.0, vector
    rate, cores = device.matrix_rate(op.matrix_dtype) * cost.matrix_efficiency, device.matrix_cores
    if isinstance(op, StateAttention):
        return op.matrix_flops / rate, vector
    if isinstance(op, Attention):
        return attention_times(op, cost, rate, vector_rate, cores)
    return matmul_time(op, cost, rate, cores), vector
