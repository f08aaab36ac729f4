"""simulate_video(...) -> VideoEstimate: build every stage, time its kernels, measure its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tensor_cast.deployment import RankGroup
from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.dtypes import dtype_bytes
from tensor_cast.errors import ModelingError, did_you_mean
from tensor_cast.graph import Graph
from tensor_cast.layers.dit import DenoiserBuild
from tensor_cast.models.diffusion.counts import (
    denoiser_graph,
    flops_per_forward,
    matrix_flops,
    pipeline_parameters,
    vae_graph,
    weight_bytes,
)
from tensor_cast.models.diffusion.denoiser import CacheMode, Denoiser, Latent
from tensor_cast.models.diffusion.pipeline import Pipeline
from tensor_cast.models.diffusion.schedule import ForwardKind, forward_kinds, high_noise_steps
from tensor_cast.models.diffusion.vae import Vae
from tensor_cast.ops import total_bytes
from tensor_cast.pricing import check_world, collectives, device_profile, price
from tensor_cast.quantity import Quantity, ceil_div
from tensor_cast.video_deployment import VideoDeployment, VideoParallelism
from tensor_cast.video_estimate import (
    STAGES,
    ComponentMemory,
    Run,
    Stage,
    VideoEstimate,
    VideoMemory,
    VideoTokens,
    repeated,
)
from tensor_cast.video_workload import VideoWorkload

# Multistep solvers (UniPC of second order, its corrector included) combine about this many tensors of the latent.
SOLVER_FLOPS = 12.0
GUIDANCE_FLOPS = 3.0


@dataclass(frozen=True)
class _Denoising:
    """Runs of the denoising stage, weights of each denoiser and what the step cache keeps."""

    runs: tuple[Run, ...]
    weights: dict[str, Quantity]
    cache_bytes: Quantity


def simulate_video(
    model: str | Pipeline,
    *,
    device: str | DeviceProfile,
    workload: VideoWorkload,
    deployment: VideoDeployment | None = None,
    stages: Sequence[str] = STAGES,
    reserved_bytes: float = 0.0,
) -> VideoEstimate:
    """Time and memory of a whole generation.

    Args:
        model: a catalog id, a diffusers directory, a hub id, or a structure.
        device: a profile or its name.
        workload: resolution, frames, steps; its quantities may be arrays, and then so are all figures.
        deployment: parallel sizes, quantisation, caching; by default one device, unquantised.
        stages: what is priced, of ``STAGES``; ``denoise`` always is.
        reserved_bytes: memory that something else keeps on each device.

    Raises:
        ModelingError: the request has no answer; the message says why.
    """
    deployment = deployment or VideoDeployment()
    pipeline = _pipeline(model)
    profile = device_profile(device)
    check_world(profile, deployment.world_size)
    chosen = _stages(stages)
    pipeline.check(workload)
    parallel = deployment.parallelism(use_cfg=workload.use_cfg)
    pipeline.check_ulysses(parallel.ulysses)
    _check_cache(pipeline, deployment)
    runs: list[Run] = []
    if "text" in chosen:
        runs += _text_runs(pipeline, workload, deployment, profile)
    denoising = _denoise_runs(pipeline, workload, deployment, parallel, profile)
    runs += denoising.runs
    if "vae" in chosen:
        runs += _vae_runs(pipeline, workload, deployment, profile)
    all_runs = tuple(runs)
    parameters = pipeline_parameters(pipeline)
    return VideoEstimate(
        kernels=repeated(all_runs),
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
        warnings=tuple(_warnings(pipeline, workload, deployment, chosen)),
    )


def video_tokens(pipeline: Pipeline, workload: VideoWorkload, ranks: int) -> VideoTokens:
    """Tokens of one sample."""
    own = pipeline.video_tokens(workload)
    with_references = own + pipeline.reference_tokens(workload)
    return VideoTokens(
        video=own,
        text=pipeline.denoiser.condition_tokens(workload.seq_len),
        per_rank=ceil_div(with_references, ranks),
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


def _text_runs(
    pipeline: Pipeline, workload: VideoWorkload, deployment: VideoDeployment, device: DeviceProfile
) -> list[Run]:
    prompts = workload.batch_size * workload.prompts
    return [
        _run(
            "text",
            name,
            encoder.graph(prompts, workload.seq_len, dtype=deployment.dtype, fused=deployment.compile),
            1.0,
            device,
        )
        for name, encoder in pipeline.text_encoders
    ]


def _denoise_runs(
    pipeline: Pipeline,
    workload: VideoWorkload,
    deployment: VideoDeployment,
    parallel: VideoParallelism,
    device: DeviceProfile,
) -> _Denoising:
    """Runs of all denoisers and of the solver."""
    forwards = workload.prompts // parallel.cfg
    request = pipeline.denoiser_input(workload)
    timed: dict[tuple[Denoiser, CacheMode], Run] = {}
    runs: list[Run] = []
    weights: dict[str, Quantity] = {}
    cache_bytes: Quantity = 0.0
    for name, denoiser, first, last in _shares_of_steps(pipeline, workload):
        for kind in forward_kinds(first, last, deployment.dit_cache):
            happens = bool(np.any(np.greater(kind.steps, 0.0)))
            if not happens and kind.cache.mode != "none":
                continue
            key = (denoiser, kind.cache.mode)
            if key not in timed:
                graph = denoiser_graph(
                    denoiser,
                    replace(request, cache=kind.cache),
                    batch=workload.batch_size,
                    ranks=parallel.ulysses,
                    deployment=deployment,
                )
                timed[key] = _run("denoise", name, graph, 1.0, device)
                cache_bytes = np.maximum(cache_bytes, _kept_bytes(graph) * forwards)
            weights.setdefault(name, timed[key].weight_bytes)
            if happens:
                runs.append(replace(timed[key], name=_forward_name(name, kind), repeats=kind.steps * forwards))
    solver = _solver_graph(pipeline, workload, deployment, parallel)
    runs.append(_run("denoise", "solver", solver, workload.sample_step, device))
    return _Denoising(tuple(runs), weights, cache_bytes)


def _shares_of_steps(pipeline: Pipeline, workload: VideoWorkload) -> list[tuple[str, Denoiser, Quantity, Quantity]]:
    """Each denoiser with the steps that it runs: the first, and the one after the last."""
    steps = workload.sample_step
    if pipeline.boundary_ratio is None:
        return [(*pipeline.denoisers[0], 0.0, steps)]
    shift = workload.flow_shift or pipeline.flow_shift or 1.0
    middle = high_noise_steps(steps, pipeline.boundary_ratio, shift)
    first, second = pipeline.denoisers
    return [(*first, 0.0, middle), (*second, middle, steps)]


def _forward_name(name: str, kind: ForwardKind) -> str:
    return name if kind.cache.mode == "none" else f"{name} ({kind.cache.mode} cache)"


def _kept_bytes(graph: Graph) -> Quantity:
    return total_bytes(t for _, node in graph.nodes() for t in node.op.outputs if t.role == "cache")


def _solver_graph(
    pipeline: Pipeline, workload: VideoWorkload, deployment: VideoDeployment, parallel: VideoParallelism
) -> Graph:
    """What ends a step: both predictions meet, guidance combines them, the solver moves the latent."""
    latent, graph = pipeline.latent(workload), Graph()
    b = DenoiserBuild(graph=graph, dtype=deployment.dtype, deployment=deployment, batch=workload.batch_size)
    positions = workload.batch_size * latent.frames * latent.height * latent.width
    width = pipeline.denoiser.out_channels
    with graph.block("solver"):
        prediction = b.activation(positions, width)
        if workload.use_cfg:
            group = RankGroup(parallel.cfg, parallel.ulysses)
            both = b.communicate("all_gather", "guidance", prediction, group, (2.0 * positions, width))
            other = both.view(positions, width) if parallel.cfg > 1 else b.activation(positions, width)
            guided = b.activation(positions, width)
            own = both.view(positions, width)
            b.elementwise("guidance", "guidance", (own, other), (guided,), flops_per_element=GUIDANCE_FLOPS)
            prediction = guided
        history = [b.activation(positions, width, dtype="float32") for _ in range(3)]
        b.elementwise(
            "solver_step", "solver", (prediction, *history[:2]), (history[2],), flops_per_element=SOLVER_FLOPS
        )
    return graph


def _vae_runs(
    pipeline: Pipeline, workload: VideoWorkload, deployment: VideoDeployment, device: DeviceProfile
) -> list[Run]:
    """Encoding of given images, where the pipeline takes any, and decoding of the result."""
    vae = pipeline.vae
    if vae is None:
        return []
    latent = pipeline.latent(workload)
    passes: list[tuple[bool, Latent, float]] = [(True, latent, 1.0)]
    if pipeline.encodes_video:
        passes.insert(0, (False, latent, 1.0))
    if pipeline.references:
        passes.insert(0, (False, pipeline.reference_latent(workload), float(workload.reference_images or 1)))
    return [
        run
        for decode, size, count in passes
        for run in _passes(vae, size, count, workload, deployment, device, decode=decode)
    ]


def _passes(
    vae: Vae,
    latent: Latent,
    count: float,
    workload: VideoWorkload,
    deployment: VideoDeployment,
    device: DeviceProfile,
    *,
    decode: bool,
) -> list[Run]:
    tiling = vae.tiling if deployment.vae_tiling else None
    runs = []
    for one in vae.passes(latent) if tiling is None else tiling.passes(latent):
        if not np.any(np.greater(one.count, 0.0)):
            continue
        graph = vae_graph(
            vae, one, decode=decode, batch=workload.batch_size, dtype=deployment.dtype, fused=deployment.compile
        )
        name = f"vae.{'decode' if decode else 'encode'}"
        name = f"{name} (tile)" if tiling is not None else name if one.first else f"{name} (next frames)"
        runs.append(_run("vae", name, graph, one.count * count, device))
    return runs


def _run(stage: Stage, name: str, graph: Graph, repeats: Quantity, device: DeviceProfile) -> Run:
    kernels = [replace(kernel, block=f"{name}: {kernel.block}") for kernel in price(graph, device)]
    return Run(
        kernels=tuple(kernels),
        stage=stage,
        name=name,
        repeats=repeats,
        collectives=tuple(collectives(graph, device)),
        peak_bytes=graph.peak_activation_bytes(),
        matrix_flops=matrix_flops(graph),
        weight_bytes=weight_bytes(graph),
    )


def _memory(
    deployment: VideoDeployment,
    denoising: _Denoising,
    parameters: dict[str, int],
    runs: tuple[Run, ...],
    stages: tuple[Stage, ...],
    reserved_bytes: float,
    device: DeviceProfile,
) -> VideoMemory:
    """Components of the priced stages stay on the device, but for a denoiser that is offloaded while it waits."""
    plain = dtype_bytes(deployment.dtype)
    parts = []
    for name, count in parameters.items():
        denoises = name in denoising.weights
        stage = "denoise" if denoises else "vae" if name == "vae" else "text"
        size = denoising.weights[name] if denoises else count * plain
        waits = deployment.offload_inactive_expert and denoises and name != next(iter(denoising.weights))
        parts.append(ComponentMemory(name, size, resident=stage in stages and not waits))
    activations: dict[Stage, Quantity] = {}
    for run in runs:
        activations[run.stage] = np.maximum(activations.get(run.stage, 0.0), run.peak_bytes)
    return VideoMemory(
        components=tuple(parts),
        activation_bytes=activations,
        step_cache_bytes=denoising.cache_bytes,
        reserved_bytes=reserved_bytes,
        device_bytes=device.memory_bytes,
    )


def _warnings(
    pipeline: Pipeline, workload: VideoWorkload, deployment: VideoDeployment, stages: tuple[Stage, ...]
) -> list[str]:
    messages = []
    left_out = [name for name in pipeline.unpriced if name != "vae" or "vae" in stages]
    if left_out and len(stages) > 1:
        messages.append(f"Not priced, for want of a known config: {', '.join(left_out)}.")
    if pipeline.ignored_keys:
        messages.append(f"Config keys that are not known, ignored: {', '.join(pipeline.ignored_keys)}.")
    if deployment.offload_inactive_expert and len(pipeline.denoisers) == 1:
        messages.append(f"{pipeline.name} has one denoiser: there is nothing to offload.")
    cache = deployment.dit_cache
    if cache is not None and np.any(np.greater(cache.step_range[1], workload.sample_step)):
        messages.append(f"The step cache's range ends at {cache.step_range[1]}, after the last step.")
    if workload.flow_shift is None or pipeline.boundary_ratio is None:
        messages.extend(pipeline.notes)
    return messages
