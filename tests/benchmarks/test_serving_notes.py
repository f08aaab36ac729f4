"""What measured runs say of one that is predicted badly."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from benchmarks.measured_serving import Configuration, Load, MeasuredRuns, ServingTime
from benchmarks.outdone import peers
from benchmarks.serving_notes import notes
from tensor_cast import Deployment

DEPLOYMENT = Deployment(world_size=8, tp_size=8, quantize_linear="FP8", engine="vllm")


def runs(requests: list[float], tpot: list[float], ttft: list[float], device: str = "B200_SXM") -> MeasuredRuns:
    loads = tuple(Load(number, 8192.0, 1024.0) for number in requests)
    config = Configuration("m", device, "vllm", DEPLOYMENT)
    return MeasuredRuns(config, tuple(map(repr, loads)), loads, np.array(tpot), np.array(ttft), np.ones(len(loads)))


def predicted(tpot: list[float], ttft: list[float]) -> ServingTime:
    return cast(ServingTime, SimpleNamespace(tpot_s=np.array(tpot), ttft_s=np.array(ttft)))


def said(measured: MeasuredRuns, time: ServingTime, *others: MeasuredRuns) -> tuple[list[str], list[str]]:
    return notes(measured, time, peers([measured, *others])[0])


def test_a_run_is_held_to_runs_with_no_less_and_no_more_to_do() -> None:
    slow, worse = runs([4.0], [20e-3], [1.2]), runs([4.0], [10e-3], [0.5], device="H200_SXM_141GB")
    assert said(slow, predicted([10e-3], [0.5]), worse) == (
        ["one with no less to do took 500.0 ms"],
        ["one with no less to do took 10.00 ms"],
    )
    # That another was quicker explains no prediction that is too long, nor does that another was slower a short one.
    assert said(slow, predicted([30e-3], [3.0]), worse) == ([""], [""])
    assert said(worse, predicted([20e-3], [2.0]), slow) == (
        ["one with no more to do took 1.200 s"],
        ["one with no more to do took 20.00 ms"],
    )
    assert said(worse, predicted([1e-3], [0.1]), slow) == ([""], [""])


def test_no_run_is_held_to_one_that_was_outdone() -> None:
    faulty, worse = runs([4.0], [20e-3], [2.0]), runs([4.0], [10e-3], [0.5], device="H200_SXM_141GB")
    assert said(worse, predicted([20e-3], [2.0]), faulty) == ([""], ["one with no more to do took 20.00 ms"])
    assert said(faulty, predicted([10e-3], [0.5]), worse)[0] == ["one with no less to do took 500.0 ms"]


def test_runs_that_differ_as_repeats_do_are_not_named() -> None:
    close: Any = runs([4.0], [10e-3 / 1.2], [1 / 1.2], device="H200_SXM_141GB")
    assert said(runs([4.0], [10e-3], [1.0]), predicted([5e-3], [0.5]), close) == ([""], [""])


def test_times_that_do_not_follow_the_load_are_named() -> None:
    same = runs([40.0, 80.0], [85e-3, 85.2e-3], [1.0, 1.0])
    words = "85.00 ms to 85.20 ms with 40 to 80 requests: the server's, whatever its load"
    assert said(same, predicted([20e-3, 25e-3], [1.0, 1.0]))[1] == [words, words]
    assert said(same, predicted([20e-3, 99e-3], [1.0, 1.0]))[1] == [words, ""]
    loads = (same.loads[0], replace(same.loads[1], prompt=1024.0))
    assert said(replace(same, loads=loads), predicted([20e-3, 25e-3], [1.0, 1.0]))[1] == ["", ""]
    # Nor do the predicted times, or the load hardly differs, or the times do.
    assert said(same, predicted([20e-3, 20.5e-3], [1.0, 1.0]))[1] == ["", ""]
    assert said(runs([40.0, 50.0], [85e-3, 85.2e-3], [1.0, 1.0]), predicted([20e-3, 25e-3], [1.0, 1.0]))[1] == ["", ""]
    assert said(runs([40.0, 80.0], [85e-3, 99e-3], [1.0, 1.0]), predicted([20e-3, 30e-3], [1.0, 1.0]))[1] == ["", ""]
