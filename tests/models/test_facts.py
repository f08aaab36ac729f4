"""Parameters, weights, caches and FLOPs from a config alone, against figures worked out apart from this code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensor_cast.deployment import Deployment
from tensor_cast.errors import ModelingError
from tensor_cast.models.facts import ModelFacts, model_facts
from tensor_cast.models.families import read_spec

QWEN3_8B = {
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
# head_dim is not hidden / heads, which would be 80.
QWEN3_4B = QWEN3_8B | {"hidden_size": 2560, "intermediate_size": 9728, "tie_word_embeddings": True}
QWEN3_06B = QWEN3_8B | {
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "intermediate_size": 3072,
    "tie_word_embeddings": True,
}
QWEN25_7B = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
PHI_4 = {
    "model_type": "phi3",
    "hidden_size": 5120,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 10,
    "intermediate_size": 17920,
    "vocab_size": 100352,
    "tie_word_embeddings": False,
}
LLAMA_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
LLAMA_70B = LLAMA_8B | {
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "intermediate_size": 28672,
}
MIXTRAL_8X7B = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": None,
    "intermediate_size": 14336,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
QWEN3_235B = {
    "model_type": "qwen3_moe",
    "hidden_size": 4096,
    "num_hidden_layers": 94,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "first_k_dense_replace": 3,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "num_nextn_predict_layers": 1,
    "tie_word_embeddings": False,
}
KIMI_K2 = DEEPSEEK_V3 | {
    "model_type": "kimi_k2",
    "first_k_dense_replace": 1,
    "n_routed_experts": 384,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "vocab_size": 163840,
    "num_nextn_predict_layers": 0,
}
DEEPSEEK_V2_LITE = DEEPSEEK_V3 | {
    "model_type": "deepseek_v2",
    "hidden_size": 2048,
    "num_hidden_layers": 27,
    "first_k_dense_replace": 1,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "q_lora_rank": None,
    "vocab_size": 102400,
    "num_nextn_predict_layers": 0,
}
GPT_OSS_120B = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "vocab_size": 201088,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "tie_word_embeddings": False,
}
GPT_OSS_20B = GPT_OSS_120B | {
    "num_hidden_layers": 24,
    "num_local_experts": 32,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}


def facts_of(config: dict[str, Any], **options: Any) -> ModelFacts:
    formats = {name: options.pop(name) for name in tuple(options) if name not in ("tp", "context_length")}
    spec = read_spec(config, name="a model", where="its config")
    return model_facts(spec, deployment=Deployment(**formats), **options)


# Embedding and head, then each layer; counted too by building the reference classes on the meta device.
TOTALS = [
    # 2 x 151936 x 4096 + 36 (2 x 4096 x 4096 + 2 x 4096 x 1024 + 256 + 3 x 4096 x 12288 + 2 x 4096) + 4096
    (QWEN3_8B, 8_190_735_360),
    # 151936 x 2560 + 36 (2 x 2560 x 4096 + 2 x 2560 x 1024 + 256 + 3 x 2560 x 9728 + 2 x 2560) + 2560
    (QWEN3_4B, 4_022_468_096),
    # 2 x 152064 x 3584 + 28 (2 x 3584^2 + 2 x 3584 x 512 + 3584 + 1024 + 3 x 3584 x 18944 + 2 x 3584) + 3584
    (QWEN25_7B, 7_615_616_512),
    # 2 x 100352 x 5120 + 40 (2 x 5120^2 + 2 x 5120 x 1280 + 3 x 5120 x 17920 + 2 x 5120) + 5120
    (PHI_4, 14_659_507_200),
    # 2 x 32000 x 4096 + 32 (41943040 + 8 x 3 x 4096 x 14336 + 8 x 4096 + 2 x 4096) + 4096
    (MIXTRAL_8X7B, 46_702_792_704),
    # 2 x 151936 x 4096 + 94 (2 x 4096 x 8192 + 2 x 4096 x 512 + 256 + 128 x (4096 + 3 x 4096 x 1536) + 8192) + 4096
    (QWEN3_235B, 235_093_634_560),
    (GPT_OSS_120B, 116_829_156_672),
    # A null q_lora_rank: one 2048 x 3072 projection.
    (DEEPSEEK_V2_LITE, 15_706_484_224),
    # The checkpoint's router correction biases (58 x 256, 60 x 384) are left out.
    (DEEPSEEK_V3, 671_026_404_352),
    (KIMI_K2, 1_026_408_209_408 - 60 * 384),
]


@pytest.mark.parametrize(("config", "total"), TOTALS)
def test_total_parameters(config: dict[str, Any], total: int) -> None:
    assert facts_of(config).parameters.total == pytest.approx(total, rel=1e-6 if config is KIMI_K2 else 0.0)


@pytest.mark.parametrize(
    ("config", "active"),
    [
        # 46,702,792,704 less 6 of 8 experts in 32 layers, 3 x 4096 x 14336 each.
        (MIXTRAL_8X7B, 46_702_792_704 - 32 * 6 * 3 * 4096 * 14336),
        (QWEN3_235B, 235_093_634_560 - 94 * 120 * 3 * 4096 * 1536),
        (DEEPSEEK_V3, 671_026_404_352 - 58 * 248 * 3 * 7168 * 2048),
        (QWEN3_8B, 8_190_735_360),
    ],
)
def test_active_parameters(config: dict[str, Any], active: int) -> None:
    assert facts_of(config).parameters.active == active


@pytest.mark.parametrize(
    ("config", "bytes_per_token"),
    [
        (QWEN3_8B, 36 * 2 * 8 * 128 * 2),
        (QWEN3_4B, 36 * 2 * 8 * 128 * 2),
        (DEEPSEEK_V3, 61 * (512 + 64) * 2),  # one latent and one rotary key, no value
        (DEEPSEEK_V2_LITE, 27 * (512 + 64) * 2),
    ],
)
def test_kv_bytes_per_token(config: dict[str, Any], bytes_per_token: int) -> None:
    assert facts_of(config).kv_bytes_per_token == bytes_per_token


def test_kv_bytes_per_rank() -> None:
    # The latent has no heads to share out: each of 8 ranks holds it.
    assert facts_of(DEEPSEEK_V3, tp=8).kv_bytes_per_token_per_rank == 70_272
    # 4 KV heads on 16 ranks: each rank holds one.
    assert facts_of(QWEN3_235B, tp=16).kv_bytes_per_token_per_rank == 94 * 2 * 128 * 2


def test_kv_bytes_of_a_sequence() -> None:
    assert facts_of(LLAMA_70B, context_length=131_072).kv_bytes_per_sequence == 131_072 * 80 * 2 * 8 * 128 * 2
    # 12 layers keep all tokens, 12 the last 128.
    layer = 2 * 8 * 64 * 2
    facts = facts_of(GPT_OSS_20B, context_length=131_072)
    assert facts.kv_bytes_per_sequence == 12 * layer * (131_072 + 128)
    assert facts.kv_bytes_per_token == 24 * layer
    assert facts.kv_bytes_beyond_windows == 12 * layer
    # 1,000 tokens occupy 8 blocks of 128.
    assert facts_of(QWEN3_8B, context_length=1000, block_size=128).kv_bytes_per_sequence == 1024 * 147_456
    assert facts_of(QWEN3_8B).kv_bytes_per_sequence is None
    assert facts_of(QWEN3_8B, quantize_attention="INT8").kv_bytes_per_token == 147_456 / 2


def test_weight_bytes() -> None:
    # The tied embedding is stored once.
    assert facts_of(QWEN3_06B).weight_bytes == 1_192_099_840
    # gpt-oss: 114,661,785,600 expert weights of 4.25 bits (one E8M0 scale for 32), the rest in bfloat16.
    quantised = facts_of(GPT_OSS_120B, quantize_linear="MXFP4", quantize_non_expert_linear="DISABLED")
    assert quantised.weight_bytes == 114_661_785_600 * 4.25 / 8 + (116_829_156_672 - 114_661_785_600) * 2
    assert facts_of(QWEN3_8B, tp=8).weight_bytes_per_rank == pytest.approx(
        facts_of(QWEN3_8B).weight_bytes / 8, rel=1e-3
    )


def test_flops_per_token() -> None:
    # 2 (32 (4096 x 6144 + 4096^2 + 3 x 4096 x 14336) + 4096 x 128256); the embedding is looked up.
    facts = facts_of(LLAMA_8B)
    assert facts.flops.linear == 15_009_316_864
    # Score and value, a multiply-add each, in 32 layers of 32 heads of 128.
    assert facts.flops.attention_per_context_token == 32 * 32 * 128 * 4


def test_json_keys() -> None:
    document = facts_of(QWEN3_8B | {"a_new_key": 1}, tp=2, context_length=10).to_dict()
    assert document["parameters"] == {"total": 8_190_735_360, "active": 8_190_735_360}
    assert document["kv_cache"]["bytes_per_token"] == 147_456
    assert document["kv_cache"]["bytes_per_token_per_rank"] == 73_728
    assert document["kv_cache"]["bytes_per_sequence"] == 1_474_560
    assert document["state_bytes_per_sequence"] == 0
    assert document["ignored_keys"] == ["a_new_key"]
    assert document["model_type"] == document["family"] == "qwen3"
    assert sum(part["parameters"] for part in document["parts"]) == 8_190_735_360
    json.dumps(document, allow_nan=False)


def test_a_tensor_parallel_size_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ModelingError, match="--tp-size 3 does not divide"):
        facts_of(QWEN3_8B, tp=3)


CASES = Path(__file__).parents[3] / "shared" / "cases" / "architecture.jsonl"
FIGURES = {
    "param_count": lambda facts: facts.parameters.total,
    "active_param_count": lambda facts: facts.parameters.active,
    "kv_bytes_per_token": lambda facts: facts.kv_bytes_per_token,
    "kv_bytes_per_token_per_rank": lambda facts: facts.kv_bytes_per_token_per_rank,
    "flops_per_token": lambda facts: facts.flops.linear,
    "recurrent_state_bytes": lambda facts: facts.state_bytes_per_sequence,
}


def _cases() -> list[dict[str, Any]]:
    """Cases of language models that a wider collection beside the checkout holds; none where it is absent."""
    if not CASES.is_file():
        return []
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    return [case for case in cases if case["kind"] in FIGURES and "model_type" in case["config"]]


def test_the_wider_collection_agrees() -> None:
    wrong = {}
    for case in _cases():
        config = dict(case["config"])
        facts = facts_of(config, tp=config.pop("tensor_parallel", 1))
        figure = FIGURES[case["kind"]](facts)
        if figure != pytest.approx(case["right_value"], rel=case["rel_tolerance"], abs=0):
            wrong[case["id"]] = figure
    assert wrong == {}
