"""The result of simulating a generation: plain data, of which table, JSON and trace are views."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.models.diffusion.facts import VideoTokens
from tensor_cast.models.diffusion.pipeline import Pipeline
from tensor_cast.quantity import Quantity
from tensor_cast.timed_kernels import CollectiveEstimate, KernelEstimate, TimedKernels
from tensor_cast.video_deployment import VideoDeployment, VideoParallelism
from tensor_cast.video_workload import VideoWorkload

Stage = Literal["text", "denoise", "vae"]
STAGES: tuple[Stage, ...] = ("text", "denoise", "vae")
"""Stages of a generation, in order."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Run(TimedKernels):
    """Kernels that run ``repeats`` times in a stage: a denoiser's forward, a text encoder, a pass of the VAE.

    ``peak_bytes`` are the activations of one run, ``matrix_flops`` its FLOPs and ``weight_bytes`` its weights, all on
    one rank.
    """

    stage: Stage
    name: str
    repeats: Quantity
    collectives: tuple[CollectiveEstimate, ...]
    peak_bytes: Quantity
    matrix_flops: Quantity
    weight_bytes: Quantity

    @property
    def all_runs_s(self) -> Quantity:
        """Seconds of all repeats."""
        return self.total_time_s * self.repeats


@dataclass(frozen=True)
class ComponentMemory:
    """Weights of one component on a device; not ``resident`` ones are kept elsewhere while they do not run."""

    name: str
    bytes: Quantity
    resident: bool


@dataclass(frozen=True)
class VideoMemory:
    """Bytes on one device; every rank holds the same. ``available_bytes`` is negative when it does not fit."""

    components: tuple[ComponentMemory, ...]
    activation_bytes: dict[Stage, Quantity]
    step_cache_bytes: Quantity
    reserved_bytes: float
    device_bytes: float

    @property
    def weights_bytes(self) -> Quantity:
        """Weights that stay on the device."""
        return sum((part.bytes for part in self.components if part.resident), start=0.0)

    @property
    def peak_activation_bytes(self) -> Quantity:
        """Activations of the stage that has most."""
        peak: Quantity = 0.0
        for size in self.activation_bytes.values():
            peak = np.maximum(peak, size)
        return peak

    @property
    def used_bytes(self) -> Quantity:
        """All of it, in the fullest stage."""
        return self.weights_bytes + self.peak_activation_bytes + self.step_cache_bytes + self.reserved_bytes

    @property
    def available_bytes(self) -> Quantity:
        """What the device has left."""
        return self.device_bytes - self.used_bytes

    @property
    def fits(self) -> Quantity:
        """Whether it fits: a bool, or an array of them."""
        return np.greater_equal(self.available_bytes, 0.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class VideoEstimate(TimedKernels):
    """Time and memory of a whole generation; ``kernels`` are counted over all of it.

    Every figure is a float, or an array of the workload's broadcast shape. ``parameters`` are those of each component.
    ``flops_per_forward`` are matrix FLOPs of one whole forward of one denoiser, over all ranks and without padding.
    """

    pipeline: Pipeline
    device: DeviceProfile
    workload: VideoWorkload
    deployment: VideoDeployment
    parallel: VideoParallelism
    stages: tuple[Stage, ...]
    runs: tuple[Run, ...]
    parameters: dict[str, int]
    tokens: VideoTokens
    flops_per_forward: Quantity
    memory: VideoMemory
    performance_model: str = "analytic"
    warnings: tuple[str, ...] = ()

    @property
    def stage_times_s(self) -> dict[Stage, Quantity]:
        """Seconds of each stage that is priced."""
        return {
            stage: sum((run.all_runs_s for run in self.runs if run.stage == stage), start=0.0) for stage in self.stages
        }

    @property
    def step_time_s(self) -> Quantity:
        """Average seconds of a denoising step."""
        return self.stage_times_s["denoise"] / self.workload.sample_step

    @property
    def forward_time_s(self) -> Quantity:
        """Seconds of one computed forward of the first denoiser."""
        return next(run.total_time_s for run in self.runs if run.stage == "denoise")

    @property
    def forwards(self) -> Quantity:
        """Forwards that one rank runs, those that reuse cached blocks included."""
        return self.workload.sample_step * (self.workload.prompts // self.parallel.cfg)

    @cached_property
    def collectives(self) -> tuple[CollectiveEstimate, ...]:
        """Collectives of the whole generation."""
        return tuple(
            replace(one, count=one.count * run.repeats, total_s=one.total_s * run.repeats)
            for run in self.runs
            for one in run.collectives
        )

    @property
    def fits(self) -> Quantity:
        """Whether a device holds it."""
        return self.memory.fits

    def one_of_each(self) -> TimedKernels:
        """Every run once, in order: what a trace draws."""
        return TimedKernels(tuple(kernel for run in self.runs for kernel in run.kernels))

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON takes it; ``docs/json-video.md`` describes every key."""
        from tensor_cast.video_json import video_estimate_to_dict

        return video_estimate_to_dict(self)


def repeated(runs: tuple[Run, ...]) -> tuple[KernelEstimate, ...]:
    """Kernels of all ``runs``, counted over their repeats."""
    return tuple(replace(kernel, count=kernel.count * run.repeats) for run in runs for kernel in run.kernels)
