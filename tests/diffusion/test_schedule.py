"""Which denoiser runs in which step, and what the step cache leaves out, against loops over the steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.models.diffusion.schedule import forward_kinds, high_noise_steps
from tensor_cast.video_deployment import DitCache


def timesteps(steps: int, shift: float) -> np.ndarray:
    """Timesteps as UniPCMultistepScheduler with ``use_flow_sigmas`` computes them."""
    alphas = np.linspace(1, 1 / 1000, steps + 1)
    sigmas = 1.0 - alphas
    sigmas = np.flip(shift * sigmas / (1 + (shift - 1) * sigmas))[:-1]
    return (sigmas * 1000).astype(np.int64)


@given(steps=st.integers(1, 200), shift=st.sampled_from([1.0, 3.0, 5.0, 12.0]), boundary=st.sampled_from([0.875, 0.9]))
def test_steps_of_high_noise_as_the_scheduler_has_them(steps: int, shift: float, boundary: float) -> None:
    expected = int((timesteps(steps, shift) >= boundary * 1000).sum())
    assert high_noise_steps(float(steps), boundary, shift) == expected


def test_a_level_on_the_boundary_rounds_as_the_scheduler_does() -> None:
    # Step 11 of 111 has the level 0.999 x 100 / 111 = 0.9, which comes out just below it.
    assert high_noise_steps(111.0, 0.9, 1.0) == int((timesteps(111, 1.0) >= 900).sum()) == 11


def test_steps_of_wan_2_2() -> None:
    # Shift 3 of the diffusers pipeline, boundary 0.875: u = 0.875 / (3 - 2 x 0.875) = 0.7, so that step i of 28 is of
    # high noise while 0.999 (1 - i / 28) >= 0.7, which holds up to i = 8: nine steps.
    assert high_noise_steps(28.0, 0.875, 3.0) == 9
    assert high_noise_steps(np.array([1.0, 28.0, 40.0]), 0.875, 12.0).tolist() == [1.0, 18.0, 26.0]


@given(
    first=st.integers(0, 30),
    length=st.integers(0, 60),
    start=st.integers(0, 50),
    size=st.integers(1, 60),
    interval=st.integers(2, 9),
)
def test_cached_steps_as_a_loop_counts_them(first: int, length: int, start: int, size: int, interval: int) -> None:
    cache = DitCache(step_range=(start, start + size), step_interval=interval, block_range=(0, 1))
    counts = {"none": 0, "refresh": 0, "reuse": 0}
    since = 0
    for step in range(first, first + length):
        if not start <= step < start + size:
            counts["none"] += 1
            continue
        counts["refresh" if since % interval == 0 else "reuse"] += 1
        since += 1
    kinds = forward_kinds(float(first), float(first + length), cache)
    assert {kind.cache.mode: int(kind.steps) for kind in kinds} == counts


def test_without_a_cache_every_step_is_computed() -> None:
    (kind,) = forward_kinds(3.0, 10.0, None)
    assert (kind.cache.mode, kind.steps) == ("none", 7.0)


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"step_range": (4, 4), "step_interval": 2, "block_range": (0, 1)}, "cache_step_range 4,4 is empty"),
        ({"step_range": (0, 4), "step_interval": 1, "block_range": (0, 1)}, "must be at least 2"),
        ({"step_range": (0, 4), "step_interval": 2, "block_range": (5, 1)}, "cache_block_range 5,1 is empty"),
    ],
)
def test_bad_caches_are_refused(ranges: dict[str, object], message: str) -> None:
    from tensor_cast.errors import ModelingError

    with pytest.raises(ModelingError, match=message):
        DitCache(**ranges)  # type: ignore[arg-type]
