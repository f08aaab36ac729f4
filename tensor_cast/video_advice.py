"""What would make a generation fit, each suggestion checked by simulating it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tensor_cast.errors import ModelingError
from tensor_cast.quantization import eight_bit_schemes
from tensor_cast.video_deployment import VideoDeployment
from tensor_cast.video_estimate import VideoEstimate
from tensor_cast.video_simulator import simulate_video

MAX_RANKS = 8


@dataclass(frozen=True)
class VideoRemedy:
    """A change of the deployment after which it fits, as it is typed, and the bytes that a device then needs."""

    flags: str
    changes: dict[str, Any]
    used_bytes: float


def what_would_fit(estimate: VideoEstimate) -> tuple[VideoRemedy, ...]:
    """Changes of the deployment of one point that make it fit."""
    remedies = []
    for flags, changes in _candidates(estimate):
        deployment = replace(estimate.deployment, **changes)
        used = _used_bytes(estimate, deployment)
        if used is not None:
            remedies.append(VideoRemedy(flags, changes, used))
    return tuple(remedies)


def _candidates(estimate: VideoEstimate) -> Iterator[tuple[str, dict[str, Any]]]:
    deployment, device = estimate.deployment, estimate.device
    vae = estimate.pipeline.vae
    if not deployment.vae_tiling and vae is not None and vae.tiling is not None:
        yield "the VAE in tiles (no --no-vae-tiling)", {"vae_tiling": True}
    if len(estimate.pipeline.denoisers) > 1 and not deployment.offload_inactive_expert:
        yield "--offload-inactive-expert", {"offload_inactive_expert": True}
    if not deployment.block_scheme.quantizes_weight:
        for scheme in eight_bit_schemes(device.matrix_flops)[:1]:
            yield f"--quantize-linear-action {scheme}", {"quantize_linear": scheme}
    heads = estimate.pipeline.denoiser.heads
    for ulysses in range(estimate.parallel.ulysses + 1, MAX_RANKS + 1):
        if heads % ulysses == 0:
            world = ulysses * estimate.parallel.cfg
            yield f"--world-size {world} --ulysses-size {ulysses}", {"world_size": world, "ulysses_size": ulysses}


def _used_bytes(estimate: VideoEstimate, deployment: VideoDeployment) -> float | None:
    """Memory with another deployment, if that is possible and fits."""
    try:
        changed = simulate_video(
            estimate.pipeline,
            device=estimate.device,
            workload=estimate.workload,
            deployment=deployment,
            stages=estimate.stages,
            reserved_bytes=estimate.memory.reserved_bytes,
        )
    except ModelingError:
        return None
    return float(changed.memory.used_bytes) if bool(changed.fits) else None
