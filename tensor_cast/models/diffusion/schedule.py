"""Which denoiser runs in which step, and which steps reuse cached blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensor_cast.models.diffusion.denoiser import CacheUse
from tensor_cast.quantity import Quantity, ceil_div
from tensor_cast.video_deployment import DitCache

# Training timesteps of the flow-matching schedulers (num_train_timesteps).
TRAIN_STEPS = 1000


def high_noise_steps(steps: Quantity, boundary: float, shift: float) -> Quantity:
    """Steps, of ``steps``, whose timestep is at least ``boundary`` of the training steps: the first denoiser's.

    Noise levels of UniPCMultistepScheduler with ``use_flow_sigmas``: u_i = (1 - 1/1000) (1 - i / steps), shifted to
    s u / (1 + (s - 1) u); the timestep is its whole part of 1000. Inverted at the boundary, this gives the last i.
    """
    least = np.ceil(boundary * TRAIN_STEPS - 1e-9) / TRAIN_STEPS
    unshifted = least / (shift - (shift - 1.0) * least)
    last = np.floor(steps * (1.0 - unshifted / (1.0 - 1.0 / TRAIN_STEPS)) + 1e-9)
    # Where the level meets the boundary exactly, the scheduler's own rounding decides.
    last = last - np.where(_timestep(last, steps, shift) < boundary * TRAIN_STEPS, 1.0, 0.0)
    count: Quantity = np.clip(last + 1.0, 0.0, steps)
    return count


def _timestep(index: Quantity, steps: Quantity, shift: float) -> Quantity:
    """The scheduler's timestep of a step, in its own order of operations: ``linspace`` from 1 to 1/1000, reversed."""
    spacing = np.divide(1.0 / TRAIN_STEPS - 1.0, steps)
    level = 1.0 - (1.0 + (steps - index) * spacing)
    whole: Quantity = np.floor(shift * level / (1.0 + (shift - 1.0) * level) * TRAIN_STEPS)
    return whole


@dataclass(frozen=True)
class ForwardKind:
    """Forwards that treat cached blocks alike: ``steps`` of them."""

    cache: CacheUse
    steps: Quantity


def forward_kinds(first: Quantity, last: Quantity, cache: DitCache | None) -> list[ForwardKind]:
    """The forwards of steps [first, last), which one denoiser runs, by what they do about cached blocks.

    The denoiser's first step in the cache's range is computed and kept, then every ``step_interval``-th.
    """
    if cache is None:
        return [ForwardKind(CacheUse(), last - first)]
    start, end = np.maximum(first, cache.step_range[0]), np.minimum(last, cache.step_range[1])
    inside: Quantity = np.maximum(end - start, 0.0)
    kept = ceil_div(inside, cache.step_interval)
    return [
        ForwardKind(CacheUse(), last - first - inside),
        ForwardKind(CacheUse("refresh", cache.block_range), kept),
        ForwardKind(CacheUse("reuse", cache.block_range), inside - kept),
    ]
