"""The one result: plain data, of which table, JSON, trace and pages are views."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tensor_cast.deployment import Deployment
from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.layers.vision import is_encoder
from tensor_cast.memory import MemoryEstimate
from tensor_cast.models.spec import ModelSpec
from tensor_cast.parallelism import Parallelism
from tensor_cast.performance_model.error import Band, total_band, unmeasured_band
from tensor_cast.quantity import Quantity
from tensor_cast.timed_kernels import CollectiveEstimate, KernelEstimate, OpEstimate, TimedKernels
from tensor_cast.workload import TextWorkload


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimate(TimedKernels):
    """Time and memory of one step. Every figure is a float, or an array of the workload's broadcast shape."""

    model: ModelSpec
    device: DeviceProfile
    workload: TextWorkload
    deployment: Deployment
    parallel: Parallelism
    dtype: str
    parameters_total: int
    parameters_active: int
    collectives: tuple[CollectiveEstimate, ...]
    memory: MemoryEstimate
    warnings: tuple[str, ...] = ()
    performance_model: str = "analytic"
    idle_s: Quantity = 0.0

    @property
    def total_time_s(self) -> Quantity:
        """Seconds of the step: its kernels, and the time between and around them (``idle_s``)."""
        return self.device_time_s + self.idle_s

    @cached_property
    def error_band(self) -> Band:
        """Relative error of ``total_time_s``; what a request costs its engine is known within a factor of 2."""
        parts = self.error_parts
        if not self.workload.decode and self.deployment.engine != "none":
            parts.append((unmeasured_band(), self.idle_s))
        return total_band(parts)

    @property
    def tokens(self) -> Quantity:
        """Tokens that the step yields over the whole deployment."""
        return self.workload.num_queries * self.workload.tokens_per_sequence

    @property
    def tokens_per_s_per_device(self) -> Quantity:
        """Throughput of one device, all devices of the deployment counted."""
        return self.tokens / self.total_time_s / self.parallel.world

    @property
    def encoder_time_s(self) -> Quantity:
        """Seconds of ``total_time_s`` that a vision encoder takes, its projector included."""
        return sum((k.total_s for k in self.kernels if is_encoder(k.block)), start=0.0)

    @property
    def ttft_s(self) -> Quantity | None:
        """Time to first token, without queueing; ``None`` for a decode."""
        return None if self.workload.decode else self.total_time_s

    @property
    def tpot_s(self) -> Quantity | None:
        """Time per output token of one sequence; ``None`` for a prefill."""
        return self.total_time_s / self.workload.tokens_per_sequence if self.workload.decode else None

    @property
    def fits(self) -> Quantity:
        """Whether the fullest device holds it."""
        return self.memory.fits

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON takes it; ``docs/json.md`` describes every key."""
        from tensor_cast.estimate_json import estimate_to_dict

        return estimate_to_dict(self)


__all__ = ["CollectiveEstimate", "Estimate", "KernelEstimate", "OpEstimate"]
