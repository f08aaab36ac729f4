"""The runs of each stage of a generation, timed: text encoders, denoisers and solver, autoencoder."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.graph import Graph
from tensor_cast.layers.dit import DenoiserBuild
from tensor_cast.models.diffusion.counts import denoiser_graph, matrix_flops, vae_graph, weight_bytes
from tensor_cast.models.diffusion.denoiser import CacheMode, Denoiser, Latent
from tensor_cast.models.diffusion.pipeline import Pipeline
from tensor_cast.models.diffusion.schedule import ForwardKind, forward_kinds, high_noise_steps
from tensor_cast.models.diffusion.vae import Pass, Vae
from tensor_cast.ops import Op, total_bytes
from tensor_cast.parallelism import RankGroup
from tensor_cast.performance_model.timing import Timer
from tensor_cast.pricing import collectives, price
from tensor_cast.quantity import Quantity
from tensor_cast.timed_kernels import KernelEstimate, TimedKernels
from tensor_cast.video_deployment import VideoDeployment, VideoParallelism
from tensor_cast.video_estimate import Run, Stage
from tensor_cast.video_workload import VideoWorkload

# Multistep solvers (UniPC of second order, its corrector included) combine about this many tensors of the latent.
SOLVER_FLOPS = 12.0
GUIDANCE_FLOPS = 3.0


@dataclass(frozen=True)
class Pricer:
    """What times kernels: a performance model of a device. ``eager``: the host launches them one by one."""

    device: DeviceProfile
    timer: Timer
    eager: bool = False


@dataclass(frozen=True)
class Denoising:
    """Runs of the denoising stage, weights of each denoiser and what the step cache keeps."""

    runs: tuple[Run, ...]
    weights: dict[str, Quantity]
    cache_bytes: Quantity


def text_runs(pipeline: Pipeline, workload: VideoWorkload, deployment: VideoDeployment, pricer: Pricer) -> list[Run]:
    """Each text encoder once, over all prompts."""
    prompts = workload.batch_size * workload.prompts
    return [
        _run(
            "text",
            name,
            encoder.graph(prompts, pipeline.prompt_tokens(workload), dtype=deployment.dtype, fused=deployment.compile),
            1.0,
            pricer,
        )
        for name, encoder in pipeline.text_encoders
    ]


def denoise_runs(
    pipeline: Pipeline,
    workload: VideoWorkload,
    deployment: VideoDeployment,
    parallel: VideoParallelism,
    pricer: Pricer,
) -> Denoising:
    """Runs of all denoisers and of the solver."""
    forwards = workload.prompts // parallel.cfg
    request = pipeline.denoiser_input(workload)
    timed: dict[tuple[Denoiser, CacheMode], Run] = {}
    kept: dict[tuple[Denoiser, CacheMode], Quantity] = {}
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
                timed[key] = _run("denoise", name, graph, 1.0, pricer)
                kept[key] = _kept_bytes(graph) * forwards
            cache_bytes = np.maximum(cache_bytes, np.where(np.greater(kind.steps, 0.0), kept[key], 0.0))
            weights.setdefault(name, timed[key].weight_bytes)
            if happens:
                runs.append(replace(timed[key], name=_forward_name(name, kind), repeats=kind.steps * forwards))
    solver = _solver_graph(pipeline, workload, deployment, parallel)
    runs.append(_run("denoise", "solver", solver, workload.sample_step, pricer))
    return Denoising(tuple(runs), weights, cache_bytes)


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


def vae_runs(pipeline: Pipeline, workload: VideoWorkload, deployment: VideoDeployment, pricer: Pricer) -> list[Run]:
    """Encoding of what is given, where the pipeline takes anything, and decoding of the result."""
    vae = pipeline.vae
    if vae is None:
        return []
    passes = [(False, latent, count) for latent, count in pipeline.given_latents(workload)]
    passes.append((True, pipeline.latent(workload), 1.0))
    return [
        run
        for decode, size, count in passes
        for run in _passes(vae, size, count, workload, deployment, pricer, decode=decode)
    ]


def _passes(
    vae: Vae,
    latent: Latent,
    count: float,
    workload: VideoWorkload,
    deployment: VideoDeployment,
    pricer: Pricer,
    *,
    decode: bool,
) -> list[Run]:
    tiling = vae.tiling if deployment.vae_tiling else None
    runs = []
    tiles = [Pass(latent, 1.0, first=True)] if tiling is None else tiling.passes(latent)
    for one in (replace(run, count=run.count * tile.count) for tile in tiles for run in vae.passes(tile.latent)):
        if not np.any(np.greater(one.count, 0.0)):
            continue
        graph = vae_graph(
            vae,
            one,
            decode=decode,
            batch=workload.batch_size,
            dtype=deployment.autoencoder_dtype,
            fused=deployment.compile,
        )
        name = f"vae.{'decode' if decode else 'encode'}"
        what = ["tile"] * (tiling is not None) + ["next frames"] * (not one.first)
        name = f"{name} ({', '.join(what)})" if what else name
        runs.append(_run("vae", name, graph, one.count * count, pricer))
    return runs


def _run(stage: Stage, name: str, graph: Graph, repeats: Quantity, pricer: Pricer) -> Run:
    kernels = [
        replace(kernel, block=f"{name}: {kernel.block}", op=replace(kernel.op, part=_reported_part(stage, kernel.op)))
        for kernel in _launched(price(graph, pricer.device, pricer.timer), pricer)
    ]
    return Run(
        kernels=tuple(kernels),
        stage=stage,
        name=name,
        repeats=repeats,
        collectives=tuple(collectives(graph, pricer.device, pricer.timer)),
        peak_bytes=graph.peak_activation_bytes(),
        matrix_flops=matrix_flops(graph),
        weight_bytes=weight_bytes(graph),
    )


def _launched(kernels: list[KernelEstimate], pricer: Pricer) -> list[KernelEstimate]:
    """``kernels`` with the time that the device waits for the host, where that launches slower than they run."""
    if not pricer.eager:
        return kernels
    launches: Quantity = sum((kernel.count for kernel in kernels), start=0.0)
    waiting = launches * pricer.device.host_launch_s - TimedKernels(tuple(kernels)).total_time_s
    gap = np.maximum(waiting, 0.0) / launches
    return [replace(kernel, gap_s=kernel.gap_s + gap) for kernel in kernels]


def _reported_part(stage: Stage, op: Op) -> str:
    """The part of the model in reports: other stages than denoising are named, the VAE by level, not by layer."""
    match stage:
        case "denoise":
            return op.part
        case "text":
            return f"text.{op.part}"
        case "vae":
            return f"vae.{'.'.join(op.part.split('.')[:2])}"
