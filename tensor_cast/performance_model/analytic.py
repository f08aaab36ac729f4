"""The analytic model's answer for any op."""

from __future__ import annotations

from functools import reduce

import numpy as np

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.ops import Collective, Op, Overlapped
from tensor_cast.performance_model.collectives import collective_time
from tensor_cast.performance_model.roofline import KernelTime, compute_time
from tensor_cast.quantity import Quantity


def analytic_time(op: Op, device: DeviceProfile) -> KernelTime:
    """Seconds of one launch of ``op`` on ``device``.

    Raises:
        ModelingError: the device lacks a rate or a link that the op needs.
    """
    if isinstance(op, Collective):
        return collective_time(op, device)
    if isinstance(op, Overlapped):
        return _overlapped_time(op, device)
    return compute_time(op, device)


def _overlapped_time(op: Overlapped, device: DeviceProfile) -> KernelTime:
    """A fused kernel pays one fixed cost, and the longer of its compute and its communication."""
    compute = [compute_time(part, device) for part in op.compute]
    comm = [collective_time(part, device) for part in op.collectives]
    fixed: Quantity = reduce(np.maximum, [time.fixed_s for time in (*compute, *comm)])
    busy: Quantity = sum((time.busy_s for time in compute), start=0.0)
    share = [sum((getattr(t, name) for t in compute), start=0.0) for name in ("matrix_s", "vector_s", "memory_s")]
    largest = np.maximum(np.maximum(share[0], share[1]), share[2])
    # The parts run one after another, so their busy times add; each part's own bound keeps its proportion.
    scale = busy / np.where(largest > 0.0, largest, 1.0)
    return KernelTime(
        share[0] * scale, share[1] * scale, share[2] * scale, sum((t.comm_s for t in comm), start=0.0), fixed
    )
