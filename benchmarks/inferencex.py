"""How InferenceX ran its servers and its client, which the tables of its runs do not say.

From the recipes and the client of github.com/SemiAnalysisAI/InferenceX (``benchmarks/``, ``utils/bench_serving``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WORKLOADS = {(1024, 1024), (1024, 8192), (8192, 1024)}
"""Longest prompt and output of its three workloads."""

# --random-range-ratio 0.8: both lengths are drawn evenly from 0.8 to 1 times the longest.
MEAN_SHARE = 0.9

# Recipes with --kv-cache-dtype fp8, fp8_e4m3, or kv_cache_config: dtype: fp8, for quantised models.
FP8_CACHE = {
    ("trtllm", "deepseek-ai/DeepSeek-R1", "h200_sxm"),
    ("trtllm", "deepseek-ai/DeepSeek-R1", "b200_sxm"),
    ("trtllm", "meta-llama/Llama-3.1-70B", "b200_sxm"),
    ("vllm", "meta-llama/Llama-3.1-70B", "b200_sxm"),
    ("vllm", "moonshotai/Kimi-K2.5", "b300_sxm"),
    ("sglang", "deepseek-ai/DeepSeek-R1", "b200_sxm"),
    ("sglang", "deepseek-ai/DeepSeek-R1", "b300_sxm"),
    ("sglang", "zai-org/GLM-5", "b200_sxm"),
    ("sglang", "zai-org/GLM-5", "b300_sxm"),
    ("sglang", "Qwen/Qwen3.5-397B-A17B", "h200_sxm"),
    ("sglang", "Qwen/Qwen3.5-397B-A17B", "b200_sxm"),
    ("sglang", "Qwen/Qwen3.5-397B-A17B", "b300_sxm"),
}
"""Engine, model and system of the recipes that keep the KV cache in FP8."""

# attention_dp_config: timeout_iters, enable_balance: prompts wait until every rank has one.
BALANCE_STEPS = 60.0
# --scheduler-recv-interval: SGLang looks for new prompts once in so many decode steps.
OFTEN, SELDOM = 10.0, 30.0
# From as many requests in flight the recipes change from the one to the other.
MANY_REQUESTS = 16
# batch_wait_timeout_iters: 20, in the recipe of Llama 70B for prompts and outputs of 1024 on fewer than 8 devices.
BATCH_STEPS = 20.0


def ran(row: Mapping[str, Any]) -> bool:
    """Whether a row is one of its runs: its rows alone state a size of attention DP and have its lengths."""
    return row["attention_dp_size"] is not None and (row["isl"], row["osl"]) in WORKLOADS


def is_of_dump(row: Mapping[str, Any]) -> bool:
    """Whether a row comes from the dump of the runs' database, which has those without drafts alone.

    Earlier lists mix both under one name. Where they differ from the dump by over 2 %, 141 of their 148 rows have the
    shorter time per token, by up to two thirds, and the other seven are of other versions of an engine.
    """
    return str(row["silicon_data_source"]).startswith("db-dump")


def keeps_fp8_cache(row: Mapping[str, Any], model: str) -> bool:
    """Whether a row is a run of ``model`` by a recipe that keeps the KV cache of quantised models in FP8."""
    return ran(row) and (row["backend"], model, row["system"]) in FP8_CACHE


def wait_steps(row: Mapping[str, Any], model: str, in_flight: float, *, tp: int, dp: int) -> float:
    """Steps of the server that a prompt waits for others to share its step with, by the recipe's settings."""
    if not ran(row):
        return 0.0
    if row["backend"] == "sglang":
        # It arrives at any time of the interval; an engine that looks at every step lets it wait for half of one too.
        return (_steps_between_looks(row, model, in_flight, tp) - 1.0) / 2.0
    if row["backend"] != "trtllm":
        return 0.0
    if dp > 1:
        return BALANCE_STEPS
    batched = model == "meta-llama/Llama-3.1-70B" and (row["isl"], row["osl"]) == (1024, 1024) and tp < 8
    return BATCH_STEPS if batched else 0.0


def _steps_between_looks(row: Mapping[str, Any], model: str, in_flight: float, tp: int) -> float:
    """``--scheduler-recv-interval`` of SGLang's recipes; 1 is SGLang's own."""
    by_load = OFTEN if in_flight < MANY_REQUESTS else SELDOM
    match model, row["system"], row["gemm_quant_mode"]:
        case "deepseek-ai/DeepSeek-R1", "b200_sxm" | "b300_sxm", mode:
            return OFTEN if mode == "fp8" and tp == 4 else by_load
        case "zai-org/GLM-5", "b200_sxm", "nvfp4":
            return OFTEN
        case "Qwen/Qwen3.5-397B-A17B", "b300_sxm", "fp8":
            return OFTEN
        case "Qwen/Qwen3.5-397B-A17B", "b200_sxm", "nvfp4":
            return SELDOM
        case "Qwen/Qwen3.5-397B-A17B", "b200_sxm" | "b300_sxm", _:
            return by_load
    return 1.0
