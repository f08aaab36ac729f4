"""Whole steps: published times of Ascend servers, and serving runs on NVIDIA devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from benchmarks import measured_serving as serving
from benchmarks.accuracy_rows import Group, Row
from benchmarks.measured_kernels import is_fitted
from tensor_cast import Deployment, ModelingError, TextWorkload, simulate

STEPS_SOURCE = "regression cases published by Ascend/msmodeling, most of them stated as measured on hardware"
SERVING_SOURCE = "serving runs published with aiconfigurator-core 0.12.0 (Apache-2.0)"
FEW_OTHERS = 3
# A first token of more than this is the queue of a stalled server.
STALLED_S = 10.0

# What is known of rows that are far off.
NOTES = {
    "qwen3-vl-32b-prefill": "the measured time needs more than 70 % of the matrix peak with communication for nothing",
    "qwen3.5-27b-3515-prefill": "kernels of the gated delta rule are priced as ideal: no measurement of one",
    "qwen3.5-27b-1610-decode": "kernels of the gated delta rule are priced as ideal: no measurement of one",
    "kimi-k2.5-1080p-prefill": "experts in W4A8: unpacking of 4-bit weights and uneven routing are not priced",
    "kimi-k2.5-3.5k-prefill": "experts in W4A8: unpacking of 4-bit weights and uneven routing are not priced",
}


def request_of_step(case: Mapping[str, Any]) -> tuple[TextWorkload, Deployment] | str:
    """Workload and deployment of a case of ``ascend_steps.json``, or why it is not a text step.

    In a decode the image is part of the context: its pixels are merged 32 x 32 to a token (Qwen3-VL: patches of 16,
    merged 2 x 2).
    """
    if case["kind"] != "text":
        return "a diffusion step: see the generations of the diffusion models"
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
        num_mtp_tokens=case.get("num_mtp_tokens", 0),
        **images,
    )
    sizes = {name: case[name] for name in ("dp_size", "ep_size", "moe_dp_size", "block_size") if name in case}
    deployment = Deployment(
        world_size=case["world_size"],
        tp_size=case["tp_size"],
        quantize_linear=case["quantize_linear_action"],
        compile=case.get("do_compile", False),
        **sizes,
        **dict.fromkeys(case.get("compilation_config", ()), True),
    )
    return workload, deployment


def steps(cases: Iterable[Mapping[str, Any]]) -> Group:
    """Cases of ``ascend_steps.json``: kernels and the gaps between them, without an engine."""
    group = Group("ascend_steps", "Steps, Ascend (analytic)", STEPS_SOURCE, aim="mean 8 %, none over 20 %")
    for case in cases:
        request = request_of_step(case)
        if isinstance(request, str):
            group.unpriced[request] += 1
            continue
        workload, deployment = request
        try:
            estimate = simulate(case["model"], device=case["device"], workload=workload, deployment=deployment)
        except ModelingError as error:
            group.unpriced[str(error)] += 1
            continue
        group.rows.append(
            Row(
                case["name"],
                case["measured_s"],
                float(estimate.total_time_s),
                is_fitted(case["name"]),
                float(estimate.error_low),
                float(estimate.error_high),
                NOTES.get(case["name"], ""),
            )
        )
    return group


def serving_groups(rows: Iterable[Mapping[str, Any]]) -> list[Group]:
    """Rows of ``e2e_nvidia_silicon.csv``: time per output token by kind of model, and time to first token."""
    dense = Group("tpot_dense", "TPOT, NVIDIA, dense models", SERVING_SOURCE, aim="mean 14 %")
    sparse = Group("tpot_moe", "TPOT, NVIDIA, MoE and MLA", SERVING_SOURCE, aim="mean 22 %")
    first = Group("ttft", "TTFT, NVIDIA, at most 4 requests a replica", SERVING_SOURCE, aim="mean 20 %")
    runs: dict[serving.Configuration, dict[str, tuple[serving.Load, list[Mapping[str, Any]]]]] = {}
    for row in rows:
        config = serving.configuration(row)
        if isinstance(config, str):
            sparse.unpriced[config] += 1
            continue
        run = serving.load(row, config.deployment)
        runs.setdefault(config, {}).setdefault(serving.key(config, run), (run, []))[1].append(row)
    for config, by_key in runs.items():
        group = dense if config.dense else sparse
        try:
            time = serving.price(config, [run for run, _ in by_key.values()])
        except ModelingError as error:
            group.unpriced[str(error)] += sum(len(repeats) for _, repeats in by_key.values())
            continue
        bands = [
            (np.broadcast_to(estimate.error_low, len(by_key)), np.broadcast_to(estimate.error_high, len(by_key)))
            for estimate in (time.decode, time.prefill)
        ]
        for index, (key, (run, repeats)) in enumerate(by_key.items()):
            # Repetitions of one run, by other containers or under another id, count once: their median.
            tpot, ttft = (np.median([row[f"silicon_{name}_ms"] for row in repeats]) * 1e-3 for name in ("tpot", "ttft"))
            fitted = is_fitted(key)
            (low, high), (first_low, first_high) = bands
            group.rows.append(Row(key, tpot, float(time.tpot_s[index]), fitted, float(low[index]), float(high[index])))
            others = run.concurrency / (config.deployment.dp_size or 1) - 1.0
            if others > FEW_OTHERS:
                continue
            if ttft > STALLED_S:
                first.unpriced["a first token after more than 10 s is the queue of a stalled server"] += 1
                continue
            predicted = float(time.ttft_s[index])
            first.rows.append(Row(key, ttft, predicted, fitted, float(first_low[index]), float(first_high[index])))
    return [dense, sparse, first]
