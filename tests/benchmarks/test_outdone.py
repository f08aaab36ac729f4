"""Runs that other runs show to be faulty, on loads and devices made for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.measured_serving import Configuration, Load, MeasuredRuns
from benchmarks.outdone import FACTOR, outdone
from tensor_cast import Deployment

DEPLOYMENT = Deployment(world_size=8, tp_size=8, dp_size=1, quantize_linear="FP8", engine="sglang")
FEW, MANY = Load(4.0, 8192.0, 1024.0), Load(64.0, 8192.0, 1024.0)


def runs(
    *figures: tuple[Load, float, float],
    device: str = "B200_SXM",
    model: str = "m",
    engine: str = "sglang",
    **changes: Any,
) -> MeasuredRuns:
    config = Configuration(model, device, engine, replace(DEPLOYMENT, **changes))
    ttft, tpot = (np.array([figure[index] for figure in figures]) for index in (1, 2))
    loads = tuple(load for load, _, _ in figures)
    return MeasuredRuns(config, tuple(map(repr, loads)), loads, tpot_s=tpot, ttft_s=ttft, repeats=np.ones(len(loads)))


def test_a_run_that_took_over_three_times_as_long_is_outdone() -> None:
    assert FACTOR == 3.0
    slow, quick = runs((FEW, 3.1, 30e-3)), runs((FEW, 1.0, 10.1e-3), device="H200_SXM_141GB")
    found = outdone([slow, quick])
    assert found[0].ttft.tolist() == [True]
    assert found[0].tpot.tolist() == [False]
    assert (found[1].ttft.tolist(), found[1].tpot.tolist()) == ([False], [False])


def test_a_run_of_more_requests_outdoes_one_of_fewer_of_its_own_configuration() -> None:
    (found,) = outdone([runs((FEW, 5.0, 10e-3), (MANY, 1.5, 40e-3))])
    assert found.ttft.tolist() == [True, False]
    assert found.tpot.tolist() == [False, False]


@pytest.mark.parametrize(
    "other",
    [
        runs((FEW, 1.0, 1e-3), device="B300_SXM"),  # a better device
        runs((FEW, 1.0, 1e-3), device="H200_SXM_141GB"),  # as fast matrix units, and more bandwidth
        runs((FEW, 1.0, 1e-3), model="n"),
        runs((FEW, 1.0, 1e-3), engine="trtllm"),
        runs((FEW, 1.0, 1e-3), quantize_linear="MXFP4"),
        runs((FEW, 1.0, 1e-3), quantize_non_expert_linear="DISABLED"),
        runs((FEW, 1.0, 1e-3), quantize_attention="FP8"),
        runs((replace(FEW, mean_share=0.9), 1.0, 1e-3)),
        runs((FEW, 1.0, 1e-3), world_size=16, tp_size=16),
        runs((FEW, 1.0, 1e-3), dp_size=8, tp_size=1),
        runs((replace(FEW, concurrency=2.0), 1.0, 1e-3)),
        runs((replace(FEW, prompt=1024.0), 1.0, 1e-3)),
        runs((replace(FEW, output=100.0), 1.0, 1e-3)),
    ],
)
def test_a_run_with_less_to_do_or_more_to_do_it_with_says_nothing(other: MeasuredRuns) -> None:
    worse = {"B300_SXM": "H200_SXM_141GB", "H200_SXM_141GB": "H100_SXM_80GB", "B200_SXM": "B200_SXM"}
    slow = runs((FEW, 30.0, 1.0), device=worse[other.config.device])
    found = outdone([slow, other])[0]
    assert not found.ttft.any()
    assert not found.tpot.any()


def test_a_run_whose_recipe_waits_is_held_to_those_that_wait() -> None:
    waiting = replace(FEW, wait_steps=14.5)
    assert outdone([runs((waiting, 9.0, 1e-2)), runs((FEW, 1.0, 1e-2), device="H200_SXM_141GB")])[0].ttft[0] == 0
    assert outdone([runs((FEW, 9.0, 1e-2)), runs((waiting, 1.0, 1e-2), device="H200_SXM_141GB")])[0].ttft[0] == 1
