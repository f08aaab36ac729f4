"""Gemma 2 and 3: norms before and after every block, scaled embeddings, windows between full layers."""

from __future__ import annotations

from tensor_cast.layers.attention import QKNorm
from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.layers.feed_forward import FeedForward
from tensor_cast.models import parts
from tensor_cast.models.config import Config
from tensor_cast.models.spec import ModelSpec


def _gemma(
    config: Config, name: str, family: str, *, window: int, kinds: list[str], qk_norm: QKNorm, softcap: bool
) -> ModelSpec:
    bias = config.boolean("attention_bias", False)
    mlp = FeedForward(config.integer("hidden_size"), config.integer("intermediate_size"))

    def layer(kind: str) -> DecoderLayer:
        attention = parts.grouped_query_attention(
            config,
            default_kv_heads=4,
            default_head_dim=256,
            qkv_bias=bias,
            output_bias=bias,
            qk_norm=qk_norm,
            window=window if kind == parts.SLIDING else None,
        )
        return DecoderLayer(attention.hidden, attention, mlp, sandwich_norm=True)

    return parts.spec(
        config,
        name=name,
        family=family,
        layers=tuple(layer(kind) for kind in kinds),
        vocabulary=parts.vocabulary(config, tied_default=True, scaled=True, softcap=softcap),
    )


def gemma2(config: Config, name: str) -> ModelSpec:
    """Every other layer, the first included, sees a window."""
    count = config.integer("num_hidden_layers")
    default = [parts.FULL if index % 2 else parts.SLIDING for index in range(count)]
    return _gemma(
        config,
        name,
        "gemma2",
        window=config.integer("sliding_window", 4096),
        kinds=parts.layer_types(config, count, default),
        qk_norm="none",
        softcap=config.has("final_logit_softcapping"),
    )


def gemma3_text(config: Config, name: str) -> ModelSpec:
    """Five windowed layers, then a full one; an RMSNorm on query and key heads."""
    count = config.integer("num_hidden_layers")
    pattern = config.integer("sliding_window_pattern", 6)
    default = [parts.SLIDING if (index + 1) % pattern else parts.FULL for index in range(count)]
    return _gemma(
        config,
        name,
        "gemma3",
        window=config.integer("sliding_window", 4096),
        kinds=parts.layer_types(config, count, default),
        qk_norm="head",
        softcap=config.has("final_logit_softcapping"),
    )
