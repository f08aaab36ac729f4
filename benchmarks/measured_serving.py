"""Measured serving runs as requests: ``e2e_nvidia_silicon.csv``, rows of one configuration at a time.

A run keeps ``concurrency`` requests in flight. While one decodes, the prefills of the others stop it now and then:

    TPOT = step + prefill_share x (others a replica) x prefill / output length
    TTFT = prefill x (1 + queue_share x others a replica)

with the time of a decode step of all requests at half of the output, of the prefill of one request, and the engine's
shares and own times (``tensor_cast.performance_model.engine``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measured_kernels import SYSTEMS
from tensor_cast import Deployment, TextWorkload, simulate
from tensor_cast.errors import ModelingError
from tensor_cast.estimate import Estimate
from tensor_cast.performance_model.engine import Engine, get_engine
from tensor_cast.quantity import Quantity

MODELS = {
    "zhipuai/GLM-5": "zai-org/GLM-5",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Llama-3.1-8B-Instruct",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-ai/DeepSeek-R1",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-ai/DeepSeek-V3",
}
"""Checkpoints that differ from one of the catalog in their quantisation alone."""

NVFP4_CHECKPOINTS = {
    "openai/gpt-oss-120b": "openai/gpt-oss-120b",
    "Qwen/Qwen3.5-397B-A17B": "nvidia/Qwen3.5-397B-A17B-NVFP4",
    "moonshotai/Kimi-K2.5": "nvidia/Kimi-K2.5-NVFP4",
}
"""Models whose published 4-bit checkpoint the catalog has; its own config says what is quantised."""

DENSE = ("meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B", "meta-llama/Llama-3.1-70B")
# NVIDIA's NVFP4 checkpoints of these quantise routed experts and leave attention in BF16 (their model cards).
EXPERTS_ALONE = ("deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V3", "zai-org/GLM-5")
NODE = 8


@dataclass(frozen=True)
class Configuration:
    """What the rows of one call share."""

    model: str
    device: str
    engine: str
    deployment: Deployment

    @property
    def dense(self) -> bool:
        """Whether the model has no experts."""
        return self.model in DENSE


@dataclass(frozen=True)
class Load:
    """A run: requests in flight over the whole deployment, prompt and output length."""

    concurrency: float
    prompt: float
    output: float


@dataclass(frozen=True)
class ServingTime:
    """Predicted seconds, an array over the runs; ``band`` of the decode step."""

    tpot_s: Quantity
    ttft_s: Quantity
    decode: Estimate
    prefill: Estimate


def configuration(row: Mapping[str, Any]) -> Configuration | str:
    """What a row deploys, or why it cannot be told."""
    if row["mode"] != "agg":
        return "prefill and decode run on devices of their own, whose numbers and speculation are not recorded"
    model = MODELS.get(row["model_path"], row["model_path"])
    sizes = _sizes(row, dense=model in DENSE)
    if isinstance(sizes, str):
        return sizes
    scheme: dict[str, Any] = {}
    match row["gemm_quant_mode"]:
        case None:
            scheme["quantize_linear"] = "DISABLED"
        case "fp8" | "fp8_block":
            scheme["quantize_linear"] = "FP8"
        case "int4_wo":
            scheme["quantize_linear"] = "CHECKPOINT"
        case "nvfp4" if model in NVFP4_CHECKPOINTS:
            model, scheme["quantize_linear"] = NVFP4_CHECKPOINTS[model], "CHECKPOINT"
        case "nvfp4":
            scheme |= {"quantize_linear": "MXFP4", "mxfp4_group_size": 16}
            if model in EXPERTS_ALONE:
                scheme["quantize_non_expert_linear"] = "DISABLED"
        case other:
            return f"the product has no scheme {other}"
    deployment = Deployment(compile=True, engine=row["backend"], **sizes, **scheme)
    return Configuration(model, SYSTEMS[row["system"]], row["backend"], deployment)


def _sizes(row: Mapping[str, Any], *, dense: bool) -> dict[str, int] | str:
    """Parallel sizes of a row.

    Some rows have the product of TP and EP where others have TP (their ids say tp8_ep8, they 64, on nodes of 8).
    """
    tp, dp = row["tp_size"], row["attention_dp_size"]
    moe_tp, ep = row["moe_tp_size"] or 1, row["moe_ep_size"] or 1
    if dp is None:
        replicas = _concurrency(row) // row["batch_size"]
        dp = replicas if replicas > 1 and tp % replicas == 0 else 1
        tp //= dp
    root = math.isqrt(tp * dp)
    if tp * dp > NODE and moe_tp == ep == root:
        tp, dp, moe_tp = (root, 1, 1) if dp == 1 else (1, root, 1)
    world = tp * dp
    if world > NODE and not row["system"].startswith("gb"):
        return f"{world} devices are more than a node, and the network between nodes is not recorded"
    sizes = {"world_size": world, "tp_size": tp, "dp_size": dp}
    if dense:
        return sizes
    if moe_tp * ep != world:
        return "the parallel sizes of attention and experts contradict each other"
    return {**sizes, "moe_tp_size": moe_tp, "ep_size": ep}


def _concurrency(row: Mapping[str, Any]) -> int:
    stated = re.search(r"silicon_concurrency=(\d+)", row["silicon_data_source"] or "")
    return int(stated[1]) if stated else int(row["batch_size"])


def load(row: Mapping[str, Any], deployment: Deployment) -> Load:
    """How many requests a row keeps in flight, and how long they are; ``batch_size`` is that of one replica."""
    ranks = deployment.dp_size or 1
    return Load(float(row["batch_size"] * ranks), float(row["isl"]), float(row["osl"]))


def key(configuration: Configuration, run: Load) -> str:
    """What tells a run from others; repetitions of a run fall into the same half."""
    deployment = configuration.deployment
    sizes = (deployment.tp_size, deployment.dp_size, deployment.ep_size, deployment.quantize_linear)
    return "|".join(map(str, (configuration.model, configuration.device, configuration.engine, *sizes, run)))


def price(config: Configuration, runs: Iterable[Load], engine: Engine | None = None) -> ServingTime:
    """Times of several runs of one configuration, with the engine's packaged constants unless others are given.

    Raises:
        ModelingError: the product cannot price it.
    """
    engine = engine or get_engine(config.engine)
    loads = list(runs)
    concurrency, prompt, output = (
        np.array([getattr(run, name) for run in loads]) for name in ("concurrency", "prompt", "output")
    )
    ranks = float(config.deployment.dp_size or 1)
    decode = simulate(
        config.model,
        device=config.device,
        workload=TextWorkload(
            num_queries=concurrency,
            query_length=1,
            context_length=np.floor(prompt + output / 2),
            decode=True,
        ),
        deployment=config.deployment,
    )
    prefill = simulate(
        config.model,
        device=config.device,
        workload=TextWorkload(num_queries=np.full_like(prompt, ranks), query_length=prompt),
        deployment=config.deployment,
    )
    others = concurrency / ranks - 1.0
    one_prefill = prefill.total_time_s - engine.request_s
    tpot = decode.total_time_s + engine.prefill_share * others * one_prefill / output
    ttft = one_prefill * (1.0 + engine.queue_share * others) + engine.request_s
    return ServingTime(np.broadcast_to(tpot, prompt.shape), np.broadcast_to(ttft, prompt.shape), decode, prefill)


__all__ = ["Configuration", "Load", "ModelingError", "ServingTime", "configuration", "key", "load", "price"]
