"""Measured serving runs as requests: ``e2e_nvidia_silicon.csv``, rows of one configuration at a time.

A run keeps ``concurrency`` requests in flight. While one decodes, the prefills of others stop it now and then:

    TPOT = step + prefills between its tokens x prefill / output length
    TTFT = first + prefills before its first token, its own among them x prefill + waiting steps x step

with the time of a decode step of all requests at half of the output, of the prefill of one request, what the engine
adds to the first step of a request (``tensor_cast.performance_model.engine``), how many prefills a request meets
(``benchmarks.serving_rounds``), and the steps that a server is set to collect prompts for. Lengths are the means of
those that the client drew.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np

from benchmarks import inferencex
from benchmarks.measured_kernels import SYSTEMS
from benchmarks.serving_rounds import Company, FloatArray, company
from tensor_cast import Deployment, TextWorkload, simulate
from tensor_cast.errors import ModelingError
from tensor_cast.estimate import Estimate
from tensor_cast.models import load_spec
from tensor_cast.performance_model.engine import Engine, get_engine
from tensor_cast.quantity import Quantity

MODELS = {
    "zhipuai/GLM-5": "zai-org/GLM-5",
    "deepseek-ai/DeepSeek-V3": "deepseek-ai/DeepSeek-R1",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Llama-3.1-8B-Instruct",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-ai/DeepSeek-R1",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-ai/DeepSeek-R1",
}
"""Checkpoints that differ from one of the catalog in their weights or quantisation alone.

Most runs of DeepSeek-R1 are published a second time as DeepSeek-V3, equal to the last digit: one name makes them one.
"""

NVFP4_CHECKPOINTS = {
    "nvidia/DeepSeek-R1-NVFP4": "nvidia/DeepSeek-R1-NVFP4",
    "nvidia/DeepSeek-V3.1-NVFP4": "nvidia/DeepSeek-R1-NVFP4",
    "deepseek-ai/DeepSeek-R1": "nvidia/DeepSeek-R1-0528-NVFP4-v2",
    "openai/gpt-oss-120b": "openai/gpt-oss-120b",
    "Qwen/Qwen3.5-397B-A17B": "nvidia/Qwen3.5-397B-A17B-NVFP4",
    "moonshotai/Kimi-K2.5": "nvidia/Kimi-K2.5-NVFP4",
}
"""Models whose published 4-bit checkpoint the catalog has; its own config says what is quantised.

Runs that name DeepSeek-R1 are InferenceX's, whose recipes serve the second version of its 4-bit checkpoint.
"""

DENSE = ("meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B", "meta-llama/Llama-3.1-70B")
# NVIDIA's NVFP4 checkpoints of these quantise routed experts alone (the config of GLM-5.1's).
EXPERTS_ALONE = ("zai-org/GLM-5",)
# Checkpoints of NVIDIA's ModelOpt state an FP8 KV cache (kv_cache_quant_algo), which engines follow.
MODELOPT = "nvidia/"
NODE = 8
DRAFTS_UNKNOWN = "the dump of runs without drafts has others of the recipe and not these: they may have drafted tokens"


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
    """A run: requests in flight over the whole deployment, the longest prompt and output, and what the client drew.

    ``mean_share`` is the mean length over the longest; the server collects prompts for ``wait_steps`` before their own.
    """

    concurrency: float
    prompt: float
    output: float
    mean_share: float = field(default=1.0, repr=False)
    wait_steps: float = field(default=0.0, repr=False)


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
    concurrency = _concurrency(row)
    if concurrency is None:
        return "how many requests are in flight is not recorded"
    model = _model(row)
    sizes = _sizes(row, concurrency, dense=model in DENSE)
    if isinstance(sizes, str):
        return sizes
    fp8_cache = row["model_path"].startswith(MODELOPT) or inferencex.keeps_fp8_cache(row, model)
    scheme: dict[str, Any] = {}
    match row["gemm_quant_mode"]:
        case None:
            scheme["quantize_linear"] = "DISABLED"
        case "fp8" | "fp8_block":
            scheme["quantize_linear"] = "FP8"
        case "int4_wo":
            scheme["quantize_linear"] = "CHECKPOINT"
        case "nvfp4" if published := NVFP4_CHECKPOINTS.get(row["model_path"], NVFP4_CHECKPOINTS.get(model)):
            model, scheme["quantize_linear"] = published, "CHECKPOINT"
        case "nvfp4":
            scheme |= {"quantize_linear": "MXFP4", "mxfp4_group_size": 16}
            if model in EXPERTS_ALONE:
                scheme["quantize_non_expert_linear"] = "DISABLED"
        case other:
            return f"the product has no scheme {other}"
    if fp8_cache and scheme["quantize_linear"] != "DISABLED":
        scheme["quantize_attention"] = "FP8"
    deployment = Deployment(compile=True, engine=row["backend"], **sizes, **scheme)
    return Configuration(model, SYSTEMS[row["system"]], row["backend"], deployment)


def _sizes(row: Mapping[str, Any], concurrency: int, *, dense: bool) -> dict[str, int] | str:
    """Parallel sizes of a row.

    Some rows have the product of TP and EP where others have TP (their ids say tp8_ep8, they 64, on nodes of 8).
    """
    tp, dp = row["tp_size"], row["attention_dp_size"]
    moe_tp, ep = row["moe_tp_size"] or 1, row["moe_ep_size"] or 1
    if dp is None:
        replicas = concurrency // row["batch_size"]
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


def _model(row: Mapping[str, Any]) -> str:
    name: str = row["model_path"]
    return MODELS.get(name, name)


def _concurrency(row: Mapping[str, Any]) -> int | None:
    stated = re.search(r"silicon_concurrency=(\d+)", row["silicon_data_source"] or "")
    return int(stated[1]) if stated else None


def load(row: Mapping[str, Any], deployment: Deployment) -> Load:
    """How many requests a row keeps in flight, and how long they are.

    ``batch_size`` is that of one of the stated replicas (some rows state the square of their number, and a batch as
    much smaller). The concurrency may be of several deployments, so it is only the most that there can be.
    """
    dp = deployment.dp_size or 1
    in_flight = min(row["batch_size"] * (row["attention_dp_size"] or dp), _concurrency(row) or math.inf)
    return Load(
        float(in_flight),
        float(row["isl"]),
        float(row["osl"]),
        inferencex.MEAN_SHARE if inferencex.ran(row) else 1.0,
        inferencex.wait_steps(row, _model(row), in_flight, tp=deployment.tp_size or 1, dp=dp),
    )


def key(configuration: Configuration, run: Load) -> str:
    """What tells a run from others; repetitions of a run fall into the same half."""
    deployment = configuration.deployment
    sizes = (deployment.tp_size, deployment.dp_size, deployment.ep_size, deployment.quantize_linear)
    return "|".join(map(str, (configuration.model, configuration.device, configuration.engine, *sizes, run)))


@dataclass(frozen=True)
class MeasuredRuns:
    """Different runs of one configuration; times and how often each was repeated are arrays over them.

    Repetitions of one run, by other containers or under another id, count once: their median.
    """

    config: Configuration
    keys: tuple[str, ...]
    loads: tuple[Load, ...]
    tpot_s: FloatArray
    ttft_s: FloatArray
    repeats: FloatArray


def measured_runs(rows: Iterable[Mapping[str, Any]]) -> tuple[list[MeasuredRuns], Counter[str]]:
    """The runs of a table, by configuration, and why others cannot be told."""
    unknown: Counter[str] = Counter()
    configurations: dict[Configuration, dict[str, tuple[Load, list[Mapping[str, Any]]]]] = {}
    dumped: set[tuple[str, ...]] = set()
    for row in rows:
        config = configuration(row)
        if isinstance(config, str):
            unknown[config] += 1
            continue
        run = load(row, config.deployment)
        configurations.setdefault(config, {}).setdefault(key(config, run), (run, []))[1].append(row)
        if inferencex.is_of_dump(row):
            dumped.add(_recipe(config))
    found = []
    for config, by_key in configurations.items():
        known = {name: (run, _without_drafts(repeats)) for name, (run, repeats) in by_key.items()}
        if _recipe(config) in dumped and load_spec(config.model).mtp_modules:
            for name in [name for name, (_, repeats) in known.items() if not inferencex.is_of_dump(repeats[0])]:
                unknown[DRAFTS_UNKNOWN] += len(known.pop(name)[1])
        if known:
            found.append(_measured(config, known))
    return found, unknown


def _recipe(config: Configuration) -> tuple[str, ...]:
    return config.engine, config.model, config.device, config.deployment.quantize_linear


def _without_drafts(repeats: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that are known to have drafted nothing; all where that is known of none."""
    return [row for row in repeats if inferencex.is_of_dump(row)] or repeats


def _measured(config: Configuration, by_key: Mapping[str, tuple[Load, list[Mapping[str, Any]]]]) -> MeasuredRuns:
    tpot, ttft = (
        np.array([np.median([row[f"silicon_{name}_ms"] for row in repeats]) for _, repeats in by_key.values()]) * 1e-3
        for name in ("tpot", "ttft")
    )
    loads = tuple(run for run, _ in by_key.values())
    repeats = np.array([float(len(repeats)) for _, repeats in by_key.values()])
    return MeasuredRuns(config, tuple(by_key), loads, tpot, ttft, repeats)


def price(config: Configuration, runs: Iterable[Load], engine: Engine | None = None) -> ServingTime:
    """Times of several runs of one configuration, with the engine's packaged constants unless others are given.

    Raises:
        ModelingError: the product cannot price it.
    """
    engine = engine or get_engine(config.engine)
    loads = list(runs)
    concurrency, prompt, output, wait_steps = columns(loads)
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
    met = company_of(config, loads)
    first = engine.first_step_s(prefill.model.expert_layers)
    one_prefill = prefill.total_time_s - first
    tpot = decode.total_time_s + met.prompts_between(engine.prefill_share) * one_prefill / output
    ttft = first + met.prompts_before(engine.queue_share) * one_prefill + wait_steps * decode.total_time_s
    return ServingTime(np.broadcast_to(tpot, prompt.shape), np.broadcast_to(ttft, prompt.shape), decode, prefill)


def company_of(config: Configuration, loads: Iterable[Load]) -> Company:
    """The other requests of each run."""
    concurrency, prompt, _, _ = columns(runs := list(loads))
    varied = np.array([run.mean_share < 1.0 for run in runs])
    return company(config.engine, concurrency / float(config.deployment.dp_size or 1), prompt, varied)


def columns(loads: Iterable[Load]) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Requests in flight, mean prompt and output length, and steps that a prompt waits."""
    concurrency, prompt, output, share, wait_steps = np.array([astuple(run) for run in loads]).T
    return concurrency, np.floor(prompt * share), output * share, wait_steps


__all__ = [
    "Configuration",
    "FloatArray",
    "Load",
    "MeasuredRuns",
    "ModelingError",
    "ServingTime",
    "columns",
    "company_of",
    "configuration",
    "key",
    "load",
    "measured_runs",
    "price",
]
