"""Microsoft Phi: dense Phi-3 and Phi-4, and Phi-3.5-MoE with LayerNorms and biases."""

from __future__ import annotations

from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.models import parts
from tensor_cast.models.checkpoint import ModuleNames
from tensor_cast.models.config import Config
from tensor_cast.models.llama import dense
from tensor_cast.models.moe import mixture_of_experts
from tensor_cast.models.spec import ModelSpec

MODULES = ModuleNames(experts=("block_sparse_moe.experts.0.w1", "block_sparse_moe.experts"))


def phi3(config: Config, name: str) -> ModelSpec:
    """Phi-3, Phi-3.5-mini and Phi-4; fused projections do not change what is computed, and there are no biases."""
    window = config.optional_integer("sliding_window")
    config.has("attention_bias")
    return dense(config, name, "phi3", qkv_bias=False, output_bias=False, window=window)


def phimoe(config: Config, name: str) -> ModelSpec:
    """Phi-3.5-MoE and Phi-mini-MoE: every layer sparse, LayerNorms with biases."""
    bias = config.boolean("attention_bias", False)
    attention = parts.grouped_query_attention(
        config, qkv_bias=bias, output_bias=bias, window=config.optional_integer("sliding_window")
    )
    config.settled("expert_dropout")
    moe = mixture_of_experts(
        config,
        config.integer("num_local_experts", 16),
        config.integer("num_experts_per_tok", 2),
        config.integer("intermediate_size"),
    )
    layer = DecoderLayer(attention.hidden, attention, moe, norm="layer")
    return parts.spec(
        config,
        name=name,
        family="phimoe",
        layers=(layer,) * config.integer("num_hidden_layers"),
        vocabulary=parts.vocabulary(config, head_bias=config.boolean("lm_head_bias", False)),
        norm="layer",
        modules=MODULES,
    )
