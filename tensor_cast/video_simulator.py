"""simulate_video(...) -> VideoEstimate: build every stage, time its kernels, measure its memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.dtypes import dtype_bytes
from tensor_cast.errors import ModelingError, did_you_mean
from tensor_cast.models.diffusion.counts import pipeline_parameters
from tensor_cast.models.diffusion.facts import flops_per_forward, video_tokens
from tensor_cast.models.diffusion.pipeline import Pipeline
from tensor_cast.pricing import check_world, device_profile, performance_timer
from tensor_cast.quantity import Quantity
from tensor_cast.unmeasured import beyond_measurements
from tensor_cast.video_deployment import VideoDeployment
from tensor_cast.video_estimate import (
    STAGES,
    ComponentMemory,
    Run,
    Stage,
    VideoEstimate,
    VideoMemory,
    repeated,
)
from tensor_cast.video_runs import Denoising, Pricer, denoise_runs, text_runs, vae_runs
from tensor_cast.video_workload import VideoWorkload


def simulate_video(
    model: str | Pipeline,
    *,
    device: str | DeviceProfile,
    workload: VideoWorkload,
    deployment: VideoDeployment | None = None,
    stages: Sequence[str] = STAGES,
    reserved_bytes: float = 0.0,
    performance_model: str = "analytic",
    database: str | Path | None = None,
    interpolate: bool = True,
) -> VideoEstimate:
    """Time and memory of a whole generation.

    Args:
        model: a catalog id, a diffusers directory, a hub id, or a structure.
        device: a profile or its name.
        workload: resolution, frames, steps; its quantities may be arrays, and then so are all figures.
        deployment: parallel sizes, quantisation, caching; by default one device, unquantised.
        stages: what is priced, of ``STAGES``; ``denoise`` always is.
        reserved_bytes: memory that something else keeps on each device.
        performance_model: where kernel times come from: ``analytic``, or ``profiling`` for measured times where a
            database has them.
        database: directory of measured times; by default the one of the device that comes with the package.
        interpolate: whether measured times also answer for sizes near the measured ones.

    Raises:
        ModelingError: the request has no answer; the message says why.
    """
    deployment = deployment or VideoDeployment()
    pipeline = _pipeline(model)
    profile = device_profile(device)
    check_world(profile, deployment.world_size)
    chosen = _stages(stages)
    pipeline.check(workload)
    parallel = deployment.parallelism(use_cfg=workload.use_cfg, heads=pipeline.denoiser.heads)
    pipeline.check_ulysses(parallel.ulysses)
    _check_cache(pipeline, deployment)
    timer = performance_timer(profile, performance_model, database, interpolate=interpolate)
    pricer = Pricer(profile, timer, eager=not deployment.compile)
    runs: list[Run] = []
    if "text" in chosen:
        runs += text_runs(pipeline, workload, deployment, pricer)
    denoising = denoise_runs(pipeline, workload, deployment, parallel, pricer)
    runs += denoising.runs
    if "vae" in chosen:
        runs += vae_runs(pipeline, workload, deployment, pricer)
    all_runs = tuple(runs)
    kernels = repeated(all_runs)
    parameters = pipeline_parameters(pipeline)
    return VideoEstimate(
        kernels=kernels,
        pipeline=pipeline,
        device=profile,
        workload=workload,
        deployment=deployment,
        parallel=parallel,
        stages=chosen,
        runs=all_runs,
        parameters=parameters,
        tokens=video_tokens(pipeline, workload, parallel.ulysses),
        flops_per_forward=flops_per_forward(pipeline, workload),
        memory=_memory(deployment, denoising, parameters, all_runs, chosen, reserved_bytes, profile),
        performance_model=performance_model,
        warnings=(
            *_warnings(pipeline, workload, deployment, chosen, profile),
            *beyond_measurements(kernels, profile),
        ),
    )


def _pipeline(model: str | Pipeline) -> Pipeline:
    if isinstance(model, Pipeline):
        return model
    from tensor_cast.models.diffusion.reader import load_pipeline

    return load_pipeline(model)


def _stages(asked: Sequence[str]) -> tuple[Stage, ...]:
    for name in asked:
        if name not in STAGES:
            raise ModelingError(f"Unknown stage {name!r}: one of {', '.join(STAGES)}.{did_you_mean(name, STAGES)}")
    return tuple(stage for stage in STAGES if stage == "denoise" or stage in asked)


def _check_cache(pipeline: Pipeline, deployment: VideoDeployment) -> None:
    cache, blocks = deployment.dit_cache, pipeline.denoiser.blocks
    if cache is not None and cache.block_range[1] > blocks:
        raise ModelingError(
            f"cache_block_range {cache.block_range[0]},{cache.block_range[1]} goes beyond the {blocks} blocks of "
            f"{pipeline.name}."
        )


def _memory(
    deployment: VideoDeployment,
    denoising: Denoising,
    parameters: dict[str, int],
    runs: tuple[Run, ...],
    stages: tuple[Stage, ...],
    reserved_bytes: float,
    device: DeviceProfile,
) -> VideoMemory:
    """Components of the priced stages stay on the device, but for a denoiser that is offloaded while it waits."""
    parts = []
    for name, count in parameters.items():
        denoises = name in denoising.weights
        stage = "denoise" if denoises else "vae" if name == "vae" else "text"
        plain = dtype_bytes(deployment.autoencoder_dtype if stage == "vae" else deployment.dtype)
        size = denoising.weights[name] if denoises else count * plain
        waits = deployment.offload_inactive_expert and denoises and name != next(iter(denoising.weights))
        parts.append(ComponentMemory(name, size, resident=stage in stages and not waits))
    activations: dict[Stage, Quantity] = {}
    for run in runs:
        # A run may happen at some points of a sweep only.
        peak = np.where(np.greater(run.repeats, 0.0), run.peak_bytes, 0.0)
        activations[run.stage] = np.maximum(activations.get(run.stage, 0.0), peak)
    return VideoMemory(
        components=tuple(parts),
        activation_bytes=activations,
        step_cache_bytes=denoising.cache_bytes,
        reserved_bytes=reserved_bytes,
        device_bytes=device.memory_bytes,
    )


def _warnings(
    pipeline: Pipeline,
    workload: VideoWorkload,
    deployment: VideoDeployment,
    stages: tuple[Stage, ...],
    device: DeviceProfile,
) -> list[str]:
    messages = []
    left_out = [name for name in pipeline.unpriced if name != "vae" or "vae" in stages]
    if left_out and len(stages) > 1:
        messages.append(f"Not priced, for want of a known config: {', '.join(left_out)}.")
    if pipeline.ignored_keys:
        messages.append(f"Config keys that are not known, ignored: {', '.join(pipeline.ignored_keys)}.")
    if len(pipeline.denoisers) == 1:
        if deployment.offload_inactive_expert:
            messages.append(f"{pipeline.name} has one denoiser: there is nothing to offload.")
        if workload.flow_shift is not None:
            messages.append(f"{pipeline.name} has one denoiser: the flow shift changes nothing.")
    if not deployment.vae_tiling and pipeline.vae is not None and pipeline.vae.tiling is None:
        messages.append(f"The VAE of {pipeline.name} never works in tiles: --no-vae-tiling changes nothing.")
    if deployment.attention_backend == "flash_attention_2" and "attention_prefill_fa2" not in device.kernels:
        messages.append(
            f"The profile of {device.name} has no costs of FlashAttention-2 apart: --attention-backend changes nothing."
        )
    default = VideoDeployment.mxfp4_group_size
    if deployment.mxfp4_group_size != default and deployment.block_scheme.granularity != "group":
        messages.append(f"--mxfp4-group-size belongs to MXFP4: {deployment.quantize_linear} has no groups of weights.")
    cache = deployment.dit_cache
    if cache is not None and np.any(np.greater_equal(cache.step_range[0], workload.sample_step)):
        messages.append(
            f"The step cache's range begins at step {cache.step_range[0]}, after the last: nothing is reused."
        )
    elif cache is not None and np.any(np.greater(cache.step_range[1], workload.sample_step)):
        messages.append(f"The step cache's range ends at {cache.step_range[1]}, after the last step.")
    if workload.flow_shift is None or pipeline.boundary_ratio is None:
        messages.extend(pipeline.notes)
    return messages
