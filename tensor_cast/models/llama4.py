"""Llama 4 text models: chunked attention between full layers without rotary embedding, interleaved experts."""

from __future__ import annotations

from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.layers.feed_forward import FeedForward
from tensor_cast.models import parts
from tensor_cast.models.config import Config
from tensor_cast.models.moe import mixture_of_experts
from tensor_cast.models.spec import ModelSpec


def llama4_text(config: Config, name: str) -> ModelSpec:
    """Scout and Maverick. Experts, routed and shared, are ``intermediate_size`` wide, dense blocks ``..._mlp``."""
    count = config.integer("num_hidden_layers")
    chunk = config.integer("attention_chunk_size", 8192)
    step = config.integer("interleave_moe_layer_step", 1)
    sparse_layers = config.indices("moe_layers", count)
    sparse = set(range(step - 1, count, step) if sparse_layers is None else sparse_layers)
    # Every fourth layer attends to everything and has no rotary embedding (Llama4TextConfig.no_rope_layers).
    interval = config.integer("no_rope_layer_interval", 4)
    rotary = config.items("no_rope_layers", None if config.values.get("no_rope_layers") == [] else count) or [
        int((index + 1) % interval != 0) for index in range(count)
    ]
    default = [parts.CHUNKED if flag else parts.FULL for flag in rotary]
    kinds = parts.layer_types(config, count, default)
    bias = config.boolean("attention_bias", False)
    # The norm on queries and keys has no weights: an L2 norm.
    config.settled("use_qk_norm", "attn_temperature_tuning", "floor_scale", "attn_scale", "for_llm_class")
    moe = mixture_of_experts(
        config,
        config.integer("num_local_experts"),
        config.integer("num_experts_per_tok", 1),
        config.integer("intermediate_size"),
        shared_intermediate=config.integer("intermediate_size"),
    )
    mlp = FeedForward(config.integer("hidden_size"), config.integer("intermediate_size_mlp"))

    def layer(index: int) -> DecoderLayer:
        attention = parts.grouped_query_attention(
            config,
            default_kv_heads=8,
            default_head_dim=128,
            qkv_bias=bias,
            output_bias=bias,
            chunk=chunk if kinds[index] == parts.CHUNKED else None,
        )
        return DecoderLayer(attention.hidden, attention, moe if index in sparse else mlp)

    return parts.spec(
        config,
        name=name,
        family="llama4",
        layers=tuple(layer(index) for index in range(count)),
        vocabulary=parts.vocabulary(config),
    )
