"""Which measured serving runs cannot have computed their prompts, and so took them from a cache of prefixes."""

from __future__ import annotations

from typing import Literal

import numpy as np

from benchmarks.measured_serving import FloatArray, MeasuredRuns, ServingTime, columns
from tensor_cast.estimate import Estimate
from tensor_cast.ops import Collective
from tensor_cast.quantity import Quantity

COMPUTED = 0.6
"""Share of the matrix peak that prompts may need: of the public runs all but one engine's on one model need 58 %."""


def matrix_share(time: ServingTime, runs: MeasuredRuns) -> FloatArray:
    """Share of the matrix peak that the prompts of measured runs need, in the time that memory traffic leaves.

    Requests start as others end, so each replica computes the prompts of all its requests while one is answered. In the
    same time every token reads weights and caches. Over ``COMPUTED``, prompts came from a cache of prefixes instead.
    """
    concurrency, _, output, _ = columns(runs.loads)
    answer = runs.ttft_s + (output - 1.0) * runs.tpot_s
    reading = (output - 1.0) * _least_time_s(time.decode, "bytes")
    computing = concurrency / (runs.config.deployment.dp_size or 1) * _least_time_s(time.prefill, "matrix_flops")
    return np.asarray(computing / np.maximum(answer - reading, 1e-9))


def _least_time_s(estimate: Estimate, figure: Literal["bytes", "matrix_flops"]) -> Quantity:
    """Seconds of a step's memory traffic or matrix products at the device's peak."""
    device = estimate.device
    seconds: Quantity = 0.0
    for kernel in estimate.kernels:
        op = kernel.op
        if isinstance(op, Collective) or (figure == "matrix_flops" and not np.any(op.matrix_flops)):
            continue
        rate = device.memory_bandwidth if figure == "bytes" else device.matrix_rate(op.matrix_dtype)
        seconds = seconds + kernel.count * getattr(op, figure) / rate
    return seconds
