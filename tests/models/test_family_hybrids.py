"""Hybrids of attention and recurrent layers: which layers hold what, and how many bytes."""

from __future__ import annotations

import pytest

from tensor_cast.deployment import Deployment
from tensor_cast.errors import ModelingError
from tensor_cast.layers.linear_attention import GatedDeltaNet, Mamba2
from tensor_cast.models import load_spec
from tensor_cast.models.facts import model_facts
from tensor_cast.models.families import read_spec
from tensor_cast.models.spec import ModelSpec

QWEN3_NEXT = {
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "full_attention_interval": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "vocab_size": 151936,
}
QWEN3_5_27B = {
    "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text",
        "hidden_size": 5120,
        "num_hidden_layers": 64,
        "full_attention_interval": 4,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "intermediate_size": 17408,
        "vocab_size": 248320,
        "mamba_ssm_dtype": "float32",
    },
}


def read(config: dict[str, object]) -> ModelSpec:
    return read_spec(config, name="model", where="config.json")


def test_qwen3_next_keeps_keys_and_values_in_every_fourth_layer() -> None:
    spec = read(QWEN3_NEXT)
    linear = [index for index, layer in enumerate(spec.layers) if isinstance(layer.attention, GatedDeltaNet)]
    assert linear == [index for index in range(48) if index % 4 != 3]
    # 12 layers x keys and values of 2 heads of 256, bfloat16.
    assert model_facts(spec).kv_bytes_per_token == 12 * 2 * 2 * 256 * 2


def test_qwen3_5_state_does_not_grow_with_the_context() -> None:
    # 48 layers: a 128 x 128 state for each of 48 value heads, and 3 taps of 2 x 16 x 128 + 48 x 128 channels, float32.
    state = 48 * (48 * 128 * 128 * 4 + (2 * 16 * 128 + 48 * 128) * 3 * 4)
    assert state == 156_893_184
    assert model_facts(read(QWEN3_5_27B)).state_bytes_per_sequence == state
    halved = {**QWEN3_5_27B, "text_config": {**QWEN3_5_27B["text_config"], "mamba_ssm_dtype": "bfloat16"}}  # type: ignore[dict-item]
    assert model_facts(read(halved)).state_bytes_per_sequence == state / 2


def test_a_state_in_an_unknown_format_is_refused() -> None:
    with pytest.raises(ModelingError, match="mamba_ssm_dtype is 'int4', expected one of bfloat16"):
        read({**QWEN3_NEXT, "mamba_ssm_dtype": "int4"})


def test_nemotron_layers_follow_the_pattern() -> None:
    spec = load_spec("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    kinds = "".join(
        "M" if isinstance(layer.attention, Mamba2) else "*" if layer.attention else "E" if layer.has_experts else "-"
        for layer in spec.layers
    )
    assert kinds == "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    facts = model_facts(spec)
    # 23 Mamba2 layers: 64 heads of 64 with 128 states, float32; 3 taps of 64 x 64 + 2 x 8 x 128 channels, bfloat16.
    assert facts.state_bytes_per_sequence == 23 * (64 * 64 * 128 * 4 + (64 * 64 + 2 * 8 * 128) * 3 * 2)
    # 6 attention layers of 2 KV heads of 128.
    assert facts.kv_bytes_per_token == 6 * 2 * 2 * 128 * 2


def test_a_tensor_parallel_rank_keeps_its_share_of_the_state() -> None:
    spec = read(QWEN3_5_27B)
    whole, shared = (sum(layer.cache(tp).state_bytes for layer in spec.layers) for tp in (1, 8))
    assert shared == whole / 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hybrid_override_pattern": "MX"}, "letters among M E"),
        ({"hybrid_override_pattern": "M", "num_hidden_layers": 3}, "expected 1, the layers that the pattern lists"),
        ({"layers_block_type": ["mamba", "conv"]}, "a list of mamba"),
    ],
)
def test_a_pattern_that_says_nothing_is_refused(change: dict[str, object], message: str) -> None:
    config = {"model_type": "nemotron_h", "hidden_size": 64, "mamba_num_heads": 2, "mamba_head_dim": 32} | change
    config |= {"n_groups": 1, "ssm_state_size": 16, "conv_kernel": 4, "vocab_size": 100}
    with pytest.raises(ModelingError, match=message):
        read(config)


KIMI_LINEAR = {
    "model_type": "kimi_linear",
    "hidden_size": 2304,
    "num_hidden_layers": 27,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "intermediate_size": 9216,
    "moe_intermediate_size": 1024,
    "num_experts": 256,
    "num_experts_per_token": 8,
    "num_shared_experts": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 163840,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "kda_layers": [i for i in range(1, 28) if i not in (4, 8, 12, 16, 20, 24, 27)],
        "head_dim": 128,
        "num_heads": 32,
        "short_conv_kernel_size": 4,
    },
}


def test_kimi_linear_parameters_by_hand() -> None:
    hidden, width = 2304, 32 * 128
    delta = (
        3 * hidden * width  # queries, keys, values
        + 3 * width * 4  # convolution
        + 2 * (hidden * 128 + 128 * width)  # decay and output gate through 128 channels
        + width  # bias of the decay
        + 32  # log of A
        + hidden * 32  # writing strength
        + 128  # norm
        + width * hidden
    )
    latent = hidden * 32 * 192 + hidden * 576 + 512 + 512 * 32 * 256 + 32 * 128 * hidden
    experts = 256 * 3 * hidden * 1024 + 3 * hidden * 1024 + hidden * 256
    total = 2 * 163840 * hidden + hidden + 20 * delta + 7 * latent + 27 * 2 * hidden + 3 * hidden * 9216 + 26 * experts
    assert model_facts(read(KIMI_LINEAR)).parameters.total == total


def test_kimi_k3_is_refused_unless_it_is_asked_to_be_read_as_kimi_linear() -> None:
    with pytest.raises(ModelingError, match=r"kimi_k3 is not modelled: .*--model-family kimi_linear"):
        load_spec("moonshotai/Kimi-K3")
    spec = load_spec("moonshotai/Kimi-K3", family="kimi_linear")
    assert {"attn_res_block_size", "mla_use_output_gate", "routed_expert_hidden_size"} <= set(spec.ignored_keys)


def test_tensor_parallel_sizes_that_do_not_divide_heads_are_refused() -> None:
    with pytest.raises(ModelingError, match="--tp-size 32 does not divide"):
        model_facts(read(QWEN3_NEXT), tp=32, deployment=Deployment())


def test_what_is_kept_is_said_with_its_formula_and_the_keys_it_follows_from() -> None:
    document = model_facts(read(QWEN3_NEXT)).to_dict()
    assert [(entry["kind"], entry["layers"], entry["formula"]) for entry in document["caches"]] == [
        ("state", 36, "32 heads x 128 x 128 in float32, and 8192 channels x 3 taps in float32"),
        ("full", 12, "2 KV heads x (256 of keys + 256 of values)"),
    ]
    assert {"linear_num_value_heads", "full_attention_interval", "head_dim"} <= set(document["read_keys"])
    assert "bos_token_id" not in document["read_keys"]
