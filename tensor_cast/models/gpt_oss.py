"""gpt-oss: alternating windows, attention sinks, biases everywhere, experts shipped in MXFP4."""

from __future__ import annotations

from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.models import parts
from tensor_cast.models.config import Config
from tensor_cast.models.moe import mixture_of_experts
from tensor_cast.models.spec import ModelSpec


def gpt_oss(config: Config, name: str) -> ModelSpec:
    """gpt-oss-20b and gpt-oss-120b."""
    count = config.integer("num_hidden_layers")
    window = config.integer("sliding_window", 128)
    bias = config.boolean("attention_bias", True)
    default = [parts.FULL if index % 2 else parts.SLIDING for index in range(count)]
    kinds = parts.layer_types(config, count, default)
    moe = mixture_of_experts(
        config,
        config.integer("num_local_experts"),
        config.integer("num_experts_per_tok", 4),
        config.integer("intermediate_size"),
        expert_bias=True,
        router_bias=True,
    )

    def layer(kind: str) -> DecoderLayer:
        attention = parts.grouped_query_attention(
            config,
            default_kv_heads=8,
            default_head_dim=64,
            qkv_bias=bias,
            output_bias=bias,
            window=window if kind == parts.SLIDING else None,
            sinks=True,
        )
        return DecoderLayer(attention.hidden, attention, moe)

    return parts.spec(
        config,
        name=name,
        family="gpt_oss",
        layers=tuple(layer(kind) for kind in kinds),
        vocabulary=parts.vocabulary(config),
    )
