"""Whole steps: published times of Ascend servers, and serving runs on NVIDIA devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import measured_recipes
from benchmarks import measured_serving as serving
from benchmarks.accuracy_rows import Aim, Group, Row
from benchmarks.cached_prompts import COMPUTED, matrix_share
from benchmarks.measured_kernels import is_fitted
from benchmarks.outdone import peers
from benchmarks.serving_notes import notes
from benchmarks.video_rows import priced, request_of_case
from tensor_cast import Deployment, ModelingError, TextWorkload, simulate
from tensor_cast.devices import get_device
from tensor_cast.devices.profile import KERNEL_CLASSES, CollectiveCost, DeviceProfile, Interconnect, KernelCost
from tensor_cast.estimate import Estimate
from tensor_cast.models import load_spec
from tensor_cast.performance_model.tiles import ROW_GRANULARITY
from tensor_cast.video_estimate import VideoEstimate

STEPS_SOURCE = "regression cases published by Ascend/msmodeling, most of them stated as measured on hardware"
RECIPES_SOURCE = "performance tables of hicann/cann-recipes-infer"
SERVING_SOURCE = "serving runs published with aiconfigurator-core 0.12.0 (Apache-2.0)"
FEW_OTHERS = 3
CACHED = (
    f"prompts come from a cache of prefixes: computing them needs over {COMPUTED * 100:.0f} % of the matrix peak in "
    "the time that reading weights and caches leaves"
)
OUTDONE = (
    "a fault of the server's, as another run with no less to do on no more and no better devices took less than a "
    "third of the time"
)

# What is known of rows that are far off.
NOTES = {
    "kimi-k2.5-1080p-prefill": "4-bit experts are not measured at these sizes, nor how evenly they were used",
    "kimi-k2.5-3.5k-prefill": "4-bit experts are not measured at these sizes, nor how evenly they were used",
}
DRAFTS_UNPRICED = "its drafts are not priced: the model's configuration has no layer for them"
UNREACHABLE = "less than its kernels take at the peaks of the device and its links"


def request_of_step(case: Mapping[str, Any]) -> tuple[TextWorkload, Deployment]:
    """Workload and deployment of a text case of ``ascend_steps.json``.

    In a decode the image is part of the context: its pixels are merged 32 x 32 to a token (Qwen3-VL: patches of 16,
    merged 2 x 2).
    """
    context = case.get("context_length", 0)
    images: dict[str, int] = {}
    if "image_batch_size" in case:
        height, width = case["image_height"], case["image_width"]
        if case["decode"]:
            context += case["image_batch_size"] * round(height / 32) * round(width / 32)
        else:
            images = {name: case[name] for name in ("image_batch_size", "image_height", "image_width")}
    workload = TextWorkload(
        num_queries=case["num_queries"],
        query_length=case["query_len"],
        context_length=context,
        decode=case["decode"],
        num_mtp_tokens=case.get("num_mtp_tokens", 0) if load_spec(case["model"]).mtp_modules else 0,
        **images,
    )
    sizes = {name: case[name] for name in ("dp_size", "ep_size", "moe_dp_size", "block_size") if name in case}
    deployment = Deployment(
        world_size=case["world_size"],
        tp_size=case["tp_size"],
        quantize_linear=case["quantize_linear_action"],
        compile=case.get("do_compile", False),
        engine="vllm-ascend",
        **sizes,
        **dict.fromkeys(case.get("compilation_config", ()), True),
    )
    return workload, deployment


def at_its_peaks(device: DeviceProfile) -> DeviceProfile:
    """``device`` as no real one is: every kernel and message at the peaks, nothing beside."""
    ideal = KernelCost(1.0, 1.0, 1.0, 0.0, tiles=((ROW_GRANULARITY, ROW_GRANULARITY),))
    links = tuple(replace(level, latency_s=0.0) for level in device.interconnect.levels)
    return replace(
        device,
        kernels=dict.fromkeys(KERNEL_CLASSES, ideal),
        collective=CollectiveCost(1.0, 0.0),
        interconnect=Interconnect(links),
        launch_gap_s=0.0,
    )


def steps(cases: Iterable[Mapping[str, Any]]) -> Group:
    """Cases of ``ascend_steps.json``: text as steps of vLLM-Ascend, diffusion as kernels and the gaps between them."""
    group = Group("ascend_steps", "Steps, Ascend (analytic)", STEPS_SOURCE, aim=Aim(mean=0.08, worst=0.2))
    for case in cases:
        name, measured_s = case["name"], case["measured_s"]
        profile = get_device(case["device"])
        estimate, least = (_step(case, device) for device in (profile, at_its_peaks(profile)))
        if measured_s < least.total_time_s:
            group.unpriced[UNREACHABLE] += 1
            continue
        drafts = case.get("num_mtp_tokens", 0) > 0 and not load_spec(case["model"]).mtp_modules
        note = DRAFTS_UNPRICED if drafts else NOTES.get(name, "")
        band = float(estimate.error_low), float(estimate.error_high)
        group.rows.append(Row(name, measured_s, float(estimate.total_time_s), is_fitted(name), *band, note))
    return group


def _step(case: Mapping[str, Any], device: DeviceProfile) -> Estimate | VideoEstimate:
    if case["kind"] == "text":
        workload, deployment = request_of_step(case)
        return simulate(case["model"], device=device, workload=workload, deployment=deployment)
    return priced(request_of_case(case), device)[1]


def recipes(rows: Iterable[Mapping[str, Any]]) -> Group:
    """Rows of ``e2e.csv`` that cann-recipes-infer measured on Atlas A3: kernels and the gaps between them."""
    group = Group("ascend_recipes", "Steps of cann-recipes-infer, Ascend A3 (analytic)", RECIPES_SOURCE)
    for row in rows:
        if not measured_recipes.is_recipe(row):
            continue
        step = measured_recipes.step_of(row)
        if isinstance(step, str):
            group.unpriced[step] += 1
            continue
        estimate = simulate(
            step.model, device=measured_recipes.DEVICE, workload=step.workload, deployment=step.deployment
        )
        key = measured_recipes.key_of(row)
        fitted = measured_recipes.is_used(row)
        band = float(estimate.error_low), float(estimate.error_high)
        group.rows.append(Row(key, step.measured_s, float(estimate.total_time_s), fitted, *band))
    return group


def serving_groups(rows: Iterable[Mapping[str, Any]]) -> list[Group]:
    """Rows of ``e2e_nvidia_silicon.csv``: time per output token by kind of model, and time to first token."""
    dense, sparse, first = (
        Group(name, title, SERVING_SOURCE, aim=Aim(mean=aim), fault=OUTDONE)
        for name, title, aim in (
            ("tpot_dense", "TPOT, NVIDIA, dense models", 0.14),
            ("tpot_moe", "TPOT, NVIDIA, MoE and MLA", 0.22),
            ("ttft", "TTFT, NVIDIA, at most 4 requests a replica", 0.2),
        )
    )
    measured, unknown = serving.measured_runs(rows)
    sparse.unpriced.update(unknown)
    for runs, met in zip(measured, peers(measured), strict=True):
        group = dense if runs.config.dense else sparse
        try:
            time = serving.price(runs.config, runs.loads)
        except ModelingError as error:
            group.unpriced[str(error)] += int(runs.repeats.sum())
            continue
        computed = matrix_share(time, runs) <= COMPUTED
        of_first, of_later = notes(runs, time, met)
        bands = [
            (np.broadcast_to(estimate.error_low, len(runs.keys)), np.broadcast_to(estimate.error_high, len(runs.keys)))
            for estimate in (time.decode, time.prefill)
        ]
        for index, (key, run) in enumerate(zip(runs.keys, runs.loads, strict=True)):
            if not computed[index]:
                group.unpriced[CACHED] += int(runs.repeats[index])
                continue
            tpot, ttft = float(runs.tpot_s[index]), float(runs.ttft_s[index])
            fitted = is_fitted(key)
            (low, high), (first_low, first_high) = bands
            predicted, band = float(time.tpot_s[index]), (float(low[index]), float(high[index]))
            row = Row(key, tpot, predicted, fitted, *band, of_later[index])
            (group.faulty if met.outdone.tpot[index] else group.rows).append(row)
            others = run.concurrency / (runs.config.deployment.dp_size or 1) - 1.0
            if others > FEW_OTHERS:
                continue
            predicted, band = float(time.ttft_s[index]), (float(first_low[index]), float(first_high[index]))
            row = Row(key, ttft, predicted, fitted, *band, of_first[index])
            (first.faulty if met.outdone.ttft[index] else first.rows).append(row)
    return [dense, sparse, first]
