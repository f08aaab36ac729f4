"""Published steps of cann-recipes-infer on Atlas A3: which request a row is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tensor_cast import Deployment, TextWorkload

DEVICE = "ATLAS_800_A3_752T_128G_DIE"
DIES = 2
MODELS = {
    "DeepSeek-R1": "deepseek-ai/DeepSeek-R1",
    "DeepSeek-V3.2-Exp": "deepseek-ai/DeepSeek-V3.2-Exp",
    "GLM-5": "zai-org/GLM-5",
    "LongCat-Flash": "meituan-longcat/LongCat-Flash-Chat",
}
# What 4-bit experts cost beside 8-bit ones was taken from the rows of this model with either.
FITTED = {("DeepSeek-V3.2-Exp", "W8A8"), ("DeepSeek-V3.2-Exp", "W4A8")}


@dataclass(frozen=True)
class Step:
    """One forward step and its measured seconds."""

    model: str
    workload: TextWorkload
    deployment: Deployment
    measured_s: float


def is_recipe(row: Mapping[str, Any]) -> bool:
    """Whether a row of ``e2e.csv`` is a step time of cann-recipes-infer on Atlas A3."""
    return (
        str(row["device"]).startswith("Atlas A3")
        and str(row["framework"]).startswith("cann-recipes")
        and row["metric"] in ("TPOT", "prefill latency")
    )


def key_of(row: Mapping[str, Any]) -> str:
    """What tells the row from others."""
    columns = ("model", "phase", "num_devices", "batch_or_concurrency", "isl", "dtype_quant")
    return " ".join(str(row[name]) for name in columns)


def is_used(row: Mapping[str, Any]) -> bool:
    """Whether a constant was taken from the row."""
    return (row["model"], row["dtype_quant"]) in FITTED


def step_of(row: Mapping[str, Any]) -> Step | str:
    """The step of a row, or why it is none.

    Attention is data parallel and experts are expert parallel over all dies (the recipes' guides). A time per output
    token is a step over the tokens that it yields: one, and the drafted ones that were accepted.
    """
    model, framework = MODELS.get(row["model"]), str(row["framework"])
    if model is None:
        return "which model it is, or how it is spread, is not recorded"
    if "micro-batch" in str(row["note"]):
        return "two micro-batches that overlap are not in the product"
    dies = int(row["num_devices"]) * DIES
    schemes = _schemes(str(row["dtype_quant"]))
    deployment = Deployment(world_size=dies, tp_size=1, dp_size=dies, ep_size=dies, compile=True, **schemes)
    if row["phase"] == "prefill":
        requests = int(str(row["batch_or_concurrency"]).split()[0])
        workload = TextWorkload(num_queries=requests, query_length=float(row["isl"]))
        return Step(model, workload, deployment, float(row["value"]) * 1e-3)
    drafted, accepted = re.search(r"MTP(\d)", framework), re.search(r"([\d.]+) accepted", framework)
    if drafted and not accepted:
        return "how many drafted tokens were accepted is not recorded"
    tokens = int(drafted[1]) if drafted else 0
    workload = TextWorkload(
        num_queries=int(str(row["batch_or_concurrency"]).split()[0]),
        query_length=1 + tokens,
        context_length=float(row["isl"]),
        decode=True,
        num_mtp_tokens=tokens,
    )
    yielded = 1.0 + (float(accepted[1]) if accepted else 0.0)
    return Step(model, workload, deployment, float(row["value"]) * 1e-3 * yielded)


def _schemes(quantisation: str) -> dict[str, str]:
    """W8A8, W8A8C8 (a KV cache of 8 bits), W4A8 (of the experts; the rest stays at W8A8)."""
    weights, cache = quantisation[:4], quantisation[4:]
    schemes = {"quantize_linear": f"{weights}_DYNAMIC", "quantize_non_expert_linear": "W8A8_DYNAMIC"}
    return {**schemes, "quantize_attention": "INT8"} if cache == "C8" else schemes
