"""What a request is told beside its figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from tensor_cast import Deployment, TextWorkload, simulate
from tensor_cast.estimate import Estimate

DENSE, SHARED, ROUTED_ALONE = "Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V3", "Qwen/Qwen3-30B-A3B"
IMAGES = "Qwen/Qwen3-VL-8B-Instruct"
DECODE: dict[str, Any] = {"num_queries": 8, "query_length": 1, "context_length": 1000, "decode": True}


def warnings(model: str, workload: dict[str, Any] | None = None, **deployment: Any) -> list[str]:
    step = TextWorkload(**{**DECODE, **(workload or {})})
    found = simulate(model, device="H200", workload=step, deployment=Deployment(**deployment)).warnings
    return [warning for warning in found if "measure" not in warning or "Not measured" in warning]


def idle(model: str, **deployment: Any) -> list[str]:
    return [warning.split(",")[0] for warning in warnings(model, **deployment) if warning.startswith("Without effect")]


@pytest.mark.parametrize(
    ("model", "options", "named"),
    [
        (DENSE, {"mxfp4_group_size": 64, "quantize_linear": "FP8"}, "mxfp4_group_size"),
        (DENSE, {"quantize_lmhead": True}, "quantize_lmhead"),
        (SHARED, {"quantize_linear": "CHECKPOINT", "quantize_lmhead": True}, "quantize_lmhead"),
        (DENSE, {"quantize_linear": "FP8", "quantize_non_expert_linear": "DISABLED"}, "the scheme of routed experts"),
        (DENSE, {"vision_tp_size": 1}, "vision_tp_size"),
        (ROUTED_ALONE, {"mlp_tp_size": 1}, "mlp_tp_size"),
        (ROUTED_ALONE, {"enable_shared_expert_tp": True}, "enable_shared_expert_tp"),
        (ROUTED_ALONE, {"enable_multistream": True, "compile": True}, "enable_multistream"),
        (DENSE, {"enable_multistream": True, "compile": True}, "enable_multistream"),
    ],
)
def test_an_option_that_a_model_has_no_use_for_is_named(model: str, options: dict[str, Any], named: str) -> None:
    assert idle(model, **options) == [f"Without effect: {named}"]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (DENSE, {}),
        (DENSE, {"quantize_linear": "FP8", "quantize_lmhead": True}),
        (DENSE, {"mlp_tp_size": 1}),
        (IMAGES, {"vision_tp_size": 1}),
        (SHARED, {"mlp_tp_size": 1, "enable_shared_expert_tp": True}),
        (SHARED, {"enable_multistream": True, "compile": True}),
        (ROUTED_ALONE, {"quantize_linear": "FP8", "quantize_non_expert_linear": "DISABLED"}),
    ],
)
def test_an_option_that_counts_is_not(model: str, options: dict[str, Any]) -> None:
    assert idle(model, **options) == []


def test_what_nothing_drafts_counts_as_accepted_and_says_so() -> None:
    (warning,) = warnings(DENSE, {"query_length": 3})
    assert warning.startswith("Nothing drafts the 3 tokens a query that the decode step verifies: all of them count")
    assert warnings(DENSE) == []


def test_a_verified_length_that_drafts_do_not_make_is_named() -> None:
    (warning,) = warnings(SHARED, {"num_mtp_tokens": 2, "mtp_acceptance_rate": 0.5}, quantize_linear="CHECKPOINT")
    assert warning.startswith("A step that drafts 2 tokens verifies 3 a query, but query_length is not 3")


def test_the_engines_assumed_figures_are_named() -> None:
    assert warnings(DENSE, engine="mindie") == ["Not measured: mindie's own time a step (assumed: as vllm-ascend)."]
    prefill = {"decode": False, "query_length": 100, "context_length": 0}
    assert warnings(DENSE, prefill, engine="vllm-ascend") == [
        "Not measured: vllm-ascend's own time a request (assumed: 0; nothing is measured)."
    ]
    assert warnings(DENSE, engine="vllm") == []


def test_uneven_experts_are_seen_of_one_engine_and_assumed_of_others() -> None:
    sizes = {"world_size": 8, "tp_size": 1, "dp_size": 8, "ep_size": 8}
    found = {name: warnings(ROUTED_ALONE, engine=name, **sizes)[0] for name in ("vllm-ascend", "trtllm")}
    assert "as vllm-ascend was seen to leave experts; --expert-skew" in found["vllm-ascend"]
    assert "as vllm-ascend was seen to leave experts, which is assumed of trtllm too;" in found["trtllm"]
    assert warnings(ROUTED_ALONE, engine="trtllm", expert_skew=1.0, **sizes) == []


@pytest.mark.parametrize("sizes", [{}, {"world_size": 4, "tp_size": 4, "moe_tp_size": 4, "ep_size": 1}])
def test_experts_of_one_rank_are_never_uneven(sizes: dict[str, int]) -> None:
    def priced(**skew: float) -> Estimate:
        deployment = Deployment(**sizes, **skew)  # type: ignore[arg-type]
        return simulate(ROUTED_ALONE, device="H200", workload=TextWorkload(**DECODE), deployment=deployment)

    assert priced(expert_skew=2.0).total_time_s == priced().total_time_s
    assert idle(ROUTED_ALONE, **sizes, expert_skew=2.0) == ["Without effect: expert_skew"]
    assert idle(ROUTED_ALONE, **sizes, expert_skew=1.0) == []


@pytest.mark.parametrize(
    ("stated", "sentence"),
    [
        ({}, "The config names no dtype: bfloat16 is assumed"),
        ({"torch_dtype": "float32"}, "The config says float32: bfloat16 is assumed"),
        ({"dtype": "int8"}, "The config says int8: bfloat16 is assumed"),
        ({"torch_dtype": "float16"}, None),
        ({"dtype": "bfloat16"}, None),
    ],
)
def test_an_assumed_dtype_is_named_unless_one_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stated: dict[str, str], sentence: str | None
) -> None:
    config = tmp_path / "config.json"
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    config.write_text(json.dumps({"model_type": "llama", "vocab_size": 256, **sizes, **stated}))
    found = warnings(str(config))
    assert [warning.startswith(str(sentence)) for warning in found] == ([True] if sentence else [])
    assert warnings(str(config), dtype="float32") == []
    assert main(["models", "show", str(config)]) == 0
    assert (f"Note: {sentence}" in capsys.readouterr().out) == (sentence is not None)
    assert main(["models", "show", str(config), "--dtype", "float32"]) == 0
    assert "is assumed" not in capsys.readouterr().out


def test_the_command_line_names_flags(capsys: pytest.CaptureFixture[str]) -> None:
    step = ("--num-queries", "4", "--query-length", "2", "--decode", "--context-length", "10")
    request = ("text-generate", DENSE, "--device", "H100", "--quantize-linear-action", "DISABLED", *step)
    assert main([*request, "--quantize-lmhead"]) == 0
    printed = capsys.readouterr().out
    assert "Warning: Without effect: --quantize-lmhead, as" in printed
    assert "(--num-mtp-tokens or --num-draft-tokens draft them)" in printed
