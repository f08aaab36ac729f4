"""Measured serving runs as requests: what a row deploys and loads, and what the model of a run does with it."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import inferencex, measured_serving
from benchmarks.accuracy import Columns
from benchmarks.cached_prompts import COMPUTED, matrix_share
from tensor_cast import Deployment
from tensor_cast.performance_model.engine import get_engine


def serving_row(**changes: object) -> Columns:
    row = {
        "mode": "agg", "model_path": "deepseek-ai/DeepSeek-R1", "system": "h200_sxm", "backend": "sglang", "isl": 1000,
        "osl": 500, "gemm_quant_mode": "fp8", "batch_size": 4, "tp_size": 8, "attention_dp_size": 1, "moe_tp_size": 1,
        "moe_ep_size": 8, "silicon_data_source": "x; silicon_concurrency=4",
    }  # fmt: skip
    return Columns({**row, **changes})


def test_a_serving_row_is_a_deployment_and_a_load() -> None:
    config = measured_serving.configuration(serving_row())
    assert isinstance(config, measured_serving.Configuration)
    assert config.deployment == Deployment(
        world_size=8, tp_size=8, dp_size=1, ep_size=8, moe_tp_size=1, quantize_linear="FP8", compile=True,
        engine="sglang",
    )  # fmt: skip
    assert measured_serving.load(serving_row(), config.deployment) == measured_serving.Load(4.0, 1000.0, 500.0)


def test_a_batch_of_each_stated_replica_is_no_more_than_the_concurrency() -> None:
    # 8 replicas stated as 64 with an eighth of the batch; 32 deployments of one replica; a batch of all replicas.
    for batch, dp, stated, in_flight in ((4, 64, 256, 256.0), (13, 1, 416, 13.0), (32, 64, 32, 32.0)):
        row = serving_row(
            tp_size=1, moe_tp_size=8, moe_ep_size=8, batch_size=batch, attention_dp_size=dp,
            silicon_data_source=f"silicon_concurrency={stated}",
        )  # fmt: skip
        assert measured_serving.load(row, Deployment(world_size=8, dp_size=8)).concurrency == in_flight
    assert "in flight" in str(measured_serving.configuration(serving_row(silicon_data_source="x")))


def test_a_run_published_under_two_names_is_one() -> None:
    rows = [
        serving_row(silicon_ttft_ms=100.0, silicon_tpot_ms=10.0),
        serving_row(model_path="deepseek-ai/DeepSeek-V3", silicon_ttft_ms=300.0, silicon_tpot_ms=20.0),
        serving_row(mode="disagg"),
    ]
    (runs,), unknown = measured_serving.measured_runs(rows)
    assert len(runs.keys) == 1
    assert (runs.repeats[0], runs.ttft_s[0], runs.tpot_s[0]) == pytest.approx((2, 0.2, 0.015))
    assert sum(unknown.values()) == 1


def recipe_row(source: str, tpot: float, **changes: object) -> Columns:
    lengths = {"isl": 1024, "osl": 1024, "moe_tp_size": 8, "moe_ep_size": 1, "system": "b200_sxm"}
    times = {"silicon_ttft_ms": 100.0, "silicon_tpot_ms": tpot}
    return serving_row(**{**lengths, **times, "silicon_data_source": f"{source}; silicon_concurrency=4", **changes})


def test_runs_that_drafted_tokens_are_told_by_the_dump_without_them() -> None:
    listed, dumped = recipe_row("source_file=2026-03-25.csv", 5.0), recipe_row("db-dump/2026-04-27", 10.0)
    (runs,), unknown = measured_serving.measured_runs([listed, dumped])
    assert (runs.tpot_s[0], runs.repeats[0], sum(unknown.values())) == (0.01, 1, 0)
    # Nothing of the recipe is in the dump.
    (runs,), unknown = measured_serving.measured_runs([listed])
    assert (runs.tpot_s[0], sum(unknown.values())) == (0.005, 0)
    # A configuration and a load that the dump lacks.
    on_four = recipe_row("source_file=2026-03-25.csv", 5.0, tp_size=4, moe_tp_size=4)
    longer = recipe_row("source_file=2026-03-25.csv", 5.0, osl=8192)
    (runs,), unknown = measured_serving.measured_runs([dumped, on_four, longer])
    assert runs.tpot_s.tolist() == [0.01]
    assert unknown == {measured_serving.DRAFTS_UNKNOWN: 2}


def test_a_model_without_a_module_to_draft_with_has_drafted_nothing() -> None:
    kimi = {"model_path": "moonshotai/Kimi-K2.5", "gemm_quant_mode": "int4_wo", "backend": "vllm"}
    dumped = recipe_row("db-dump/2026-04-27", 10.0, **kimi)
    longer = recipe_row("source_file=2026-03-25.csv", 9.0, osl=8192, **kimi)
    (runs,), unknown = measured_serving.measured_runs([dumped, longer])
    assert sorted(runs.tpot_s) == pytest.approx([0.009, 0.01])
    assert not unknown


def test_inferencex_draws_lengths_and_keeps_caches_in_fp8() -> None:
    changes = {"isl": 1024, "osl": 8192, "system": "b200_sxm"}
    row = serving_row(**changes)
    config = measured_serving.configuration(row)
    assert isinstance(config, measured_serving.Configuration)
    assert config.deployment.quantize_attention == "FP8"
    run = measured_serving.load(row, config.deployment)
    assert run.mean_share == 0.9
    # Which half a run is in follows from the stated lengths alone.
    assert repr(run) == "Load(concurrency=4.0, prompt=1024.0, output=8192.0)"
    other = measured_serving.configuration(serving_row(**changes, attention_dp_size=None))
    assert isinstance(other, measured_serving.Configuration)
    assert other.deployment.quantize_attention == "DISABLED"
    unquantised = measured_serving.configuration(serving_row(**changes, gemm_quant_mode=None))
    assert isinstance(unquantised, measured_serving.Configuration)
    assert unquantised.deployment.quantize_attention == "DISABLED"


@pytest.mark.parametrize(
    ("model_path", "mode", "priced", "linear", "non_expert"),
    [
        ("deepseek-ai/DeepSeek-R1", "nvfp4", "nvidia/DeepSeek-R1-0528-NVFP4-v2", "CHECKPOINT", None),
        ("deepseek-ai/DeepSeek-V3", "nvfp4", "nvidia/DeepSeek-R1-0528-NVFP4-v2", "CHECKPOINT", None),
        ("nvidia/DeepSeek-R1-NVFP4", "nvfp4", "nvidia/DeepSeek-R1-NVFP4", "CHECKPOINT", None),
        ("deepseek-ai/DeepSeek-R1", "fp8_block", "deepseek-ai/DeepSeek-R1", "FP8", None),
        ("zai-org/GLM-5", "nvfp4", "zai-org/GLM-5", "MXFP4", "DISABLED"),
    ],
)
def test_runs_in_four_bits_serve_published_checkpoints(
    model_path: str, mode: str, priced: str, linear: str, non_expert: str | None
) -> None:
    config = measured_serving.configuration(serving_row(model_path=model_path, gemm_quant_mode=mode))
    assert isinstance(config, measured_serving.Configuration)
    deployment = config.deployment
    assert (config.model, deployment.quantize_linear) == (priced, linear)
    assert deployment.quantize_non_expert_linear == non_expert


def waits(model: str, in_flight: float = 4.0, *, tp: int = 8, dp: int = 1, **changes: object) -> float:
    row = serving_row(**{"isl": 1024, "osl": 1024, **changes})
    return inferencex.wait_steps(row, model, in_flight, tp=tp, dp=dp)


def test_tensorrt_waits_for_prompts_where_its_recipe_says_so() -> None:
    llama = "meta-llama/Llama-3.1-70B"
    assert waits(llama, tp=4, backend="trtllm") == 20.0
    assert waits(llama, tp=8, backend="trtllm") == 0.0
    assert waits(llama, tp=4, backend="trtllm", osl=8192) == 0.0
    assert waits(llama, tp=4, backend="vllm") == 0.0
    assert waits("deepseek-ai/DeepSeek-R1", tp=1, dp=8, backend="trtllm", isl=8192) == 60.0
    assert waits("deepseek-ai/DeepSeek-R1", tp=1, dp=8, backend="trtllm", isl=1000) == 0.0


def test_a_load_waits_as_its_requests_in_flight_say() -> None:
    for in_flight, steps in ((4, 4.5), (16, 14.5)):
        source = f"silicon_concurrency={in_flight}"
        row = serving_row(
            isl=1024, osl=1024, system="b200_sxm", batch_size=in_flight, silicon_data_source=source, moe_tp_size=8,
            moe_ep_size=1,
        )  # fmt: skip
        assert measured_serving.load(row, Deployment(world_size=8, tp_size=8)).wait_steps == steps


def test_sglang_looks_for_prompts_as_often_as_its_recipe_says() -> None:
    # Once in 10 steps a prompt waits for 5 on average, once a step for half of one, which every engine has.
    r1, glm, qwen = "deepseek-ai/DeepSeek-R1", "zai-org/GLM-5", "Qwen/Qwen3.5-397B-A17B"
    b200, b300 = {"system": "b200_sxm"}, {"system": "b300_sxm"}
    assert (waits(r1, 4.0, **b200), waits(r1, 16.0, **b200), waits(r1, 16.0, **b300)) == (4.5, 14.5, 14.5)
    assert (waits(r1, 32.0, tp=4, **b200), waits(r1, 32.0, tp=4, gemm_quant_mode="nvfp4", **b200)) == (4.5, 14.5)
    assert (waits(r1), waits(glm, **b200), waits(qwen)) == (0.0, 0.0, 0.0)
    assert waits(glm, 64.0, gemm_quant_mode="nvfp4", **b200) == 4.5
    assert (waits(qwen, 64.0, **b200), waits(qwen, 64.0, **b300)) == (14.5, 4.5)
    assert (waits(qwen, gemm_quant_mode="nvfp4", **b200), waits(qwen, gemm_quant_mode=None, **b300)) == (14.5, 4.5)
    assert waits(r1, isl=1000, **b200) == 0.0


def test_a_wait_is_steps_before_the_first_token() -> None:
    config = measured_serving.configuration(serving_row())
    assert isinstance(config, measured_serving.Configuration)
    loads = [measured_serving.Load(4.0, 1000.0, 500.0, wait_steps=steps) for steps in (0.0, 20.0)]
    time = measured_serving.price(config, loads)
    step = np.broadcast_to(time.decode.total_time_s, 2)[0]
    assert time.ttft_s[1] - time.ttft_s[0] == pytest.approx(20.0 * step)
    assert time.tpot_s[1] == time.tpot_s[0]


def test_sglangs_requests_of_one_length_go_in_rounds() -> None:
    config = measured_serving.configuration(serving_row())
    assert isinstance(config, measured_serving.Configuration)
    one, four, drawn = (
        measured_serving.Load(requests, 1000.0, 500.0, mean_share=share)
        for requests, share in ((1.0, 1.0), (4.0, 1.0), (4.0, 0.9))
    )
    assert np.isnan(measured_serving.company_of(config, [four, drawn]).batch_share).tolist() == [False, True]
    alone, together = measured_serving.price(config, [one, four]).ttft_s
    first = get_engine("sglang").first_step_s(58)
    assert together - first == pytest.approx(4.0 * (alone - first))


def test_prompts_that_take_more_than_the_matrix_units_have_are_cached() -> None:
    llama = {
        "model_path": "meta-llama/Llama-3.1-8B-Instruct", "backend": "vllm", "gemm_quant_mode": None, "batch_size": 8,
        "isl": 4096, "osl": 101, "tp_size": 1, "moe_ep_size": 1, "silicon_data_source": "silicon_concurrency=8",
    }  # fmt: skip
    # 8 prompts of 4096 tokens: 8.03e9 weights less the embedding and all heads but one, 2 FLOP each, and 32 layers of
    # 4 x 4096 FLOP a causal pair of tokens, at 989 TFLOP/s; 100 steps read 16 GB of weights at 4.8 TB/s and caches.
    weights = 8.03e9 - 2 * 128256 * 4096
    flops = 8 * (2 * weights * 4096 + 2 * 128256 * 4096 + 32 * 4 * 4096 * 4096 * 4097 / 2)
    reading = 100 * (2 * (weights + 128256 * 4096) + 8 * 4146 * 32 * 2 * 1024 * 2) / 4.8e12
    slow, fast = (serving_row(**llama, silicon_ttft_ms=100.0, silicon_tpot_ms=tpot) for tpot in (20.0, 8.0))
    for row, seconds in ((slow, 2.1), (fast, 0.9)):
        (runs,), _ = measured_serving.measured_runs([row])
        share = matrix_share(measured_serving.price(runs.config, runs.loads), runs)
        assert share[0] == pytest.approx(flops / 989.5e12 / (seconds - reading), rel=0.03)
        assert (share[0] > COMPUTED) == (row is fast)


def test_tp_times_ep_is_told_from_tp() -> None:
    config = measured_serving.configuration(serving_row(tp_size=64, moe_tp_size=8))
    assert isinstance(config, measured_serving.Configuration)
    assert (config.deployment.tp_size, config.deployment.ep_size, config.deployment.moe_tp_size) == (8, 8, 1)


def test_what_a_row_does_not_say_is_not_guessed() -> None:
    assert "contradict" in str(measured_serving.configuration(serving_row(tp_size=2, moe_ep_size=4)))
    assert "speculation" in str(measured_serving.configuration(serving_row(mode="disagg")))
