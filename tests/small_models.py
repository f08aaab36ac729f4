"""Models small enough to price by hand."""

from __future__ import annotations

from tensor_cast.models import ModelSpec
from tensor_cast.models.families import read_spec

DENSE = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}

SPARSE = {
    "model_type": "qwen3_moe",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "moe_intermediate_size": 512,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 32000,
}

LATENT = {
    "model_type": "deepseek_v3",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "moe_intermediate_size": 512,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "first_k_dense_replace": 1,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "q_lora_rank": 256,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "vocab_size": 32000,
    "num_nextn_predict_layers": 1,
}


def dense(**changes: object) -> ModelSpec:
    return read_spec({**DENSE, **changes}, name="dense", where="dense")


def sparse(**changes: object) -> ModelSpec:
    return read_spec({**SPARSE, **changes}, name="sparse", where="sparse")


def latent(**changes: object) -> ModelSpec:
    return read_spec({**LATENT, **changes}, name="latent", where="latent")
