"""Xiaomi MiMo: a Qwen2 with an MTP layer, and MiMo-V2-Flash with windows, sinks and experts."""

from __future__ import annotations

from dataclasses import replace

from tensor_cast.layers.attention import GroupedQueryAttention
from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.layers.feed_forward import FeedForward
from tensor_cast.models import parts
from tensor_cast.models.config import Config
from tensor_cast.models.deepseek import mixture
from tensor_cast.models.llama import qwen2
from tensor_cast.models.spec import ModelSpec


def mimo(config: Config, name: str) -> ModelSpec:
    """MiMo-7B: Qwen2's structure, biases on queries, keys and values, and one MTP layer of the same kind."""
    modules = config.integer("num_nextn_predict_layers", 0, minimum=0)
    if not config.boolean("attention_bias", True):
        config.fail("attention_bias", "true: the family has biases on queries, keys and values")
    spec = qwen2(config, name)
    return replace(spec, family="mimo", mtp_layer=spec.layers[-1] if modules else None, mtp_modules=modules)


def mimo_v2_flash(config: Config, name: str) -> ModelSpec:
    """MiMo-V2-Flash: full layers at ``hybrid_layer_pattern`` 0, windowed ones with sinks at 1; values are narrower."""
    count = config.integer("num_hidden_layers")
    windowed = _flags(config, "hybrid_layer_pattern", [not (i == 0 or (i + 1) % 6 == 0) for i in range(count)])
    sparse = _flags(config, "moe_layer_freq", [index > 0 for index in range(count)])
    full, window = _attention(config, ""), _attention(config, "swa_")
    # Constants of values and rotary embeddings, and keys that repeat the window.
    config.settled("attention_value_scale", "swa_rope_theta", "attention_chunk_size", "sliding_window_size")
    config.settled("layernorm_epsilon")
    moe = mixture(config)
    mlp = FeedForward(moe.hidden, config.integer("intermediate_size"))
    layers = tuple(
        DecoderLayer(moe.hidden, window if near else full, moe if expert else mlp)
        for near, expert in zip(windowed, sparse, strict=True)
    )
    notes = (
        "The config does not say whether MTP weights ship with the model: --num-mtp-tokens is not available for it.",
    )
    return parts.spec(
        config,
        name=name,
        family="mimo_v2_flash",
        layers=parts.shared_objects(layers),
        vocabulary=parts.vocabulary(config),
        notes=notes,
    )


def _flags(config: Config, key: str, default: list[bool]) -> list[bool]:
    flags = config.items(key, len(default))
    if flags is None:
        return default
    if any(flag not in (0, 1) for flag in flags):
        config.fail(key, f"{len(default)} entries of 0 or 1")
    return [bool(flag) for flag in flags]


def _attention(config: Config, prefix: str) -> GroupedQueryAttention:
    """Full attention, or with the prefix ``swa_`` that of windowed layers."""
    near = bool(prefix)
    bias = config.boolean("attention_bias", False)
    head_dim = config.integer(f"{prefix}head_dim", config.integer("head_dim"))
    heads = config.integer(f"{prefix}num_attention_heads", config.integer("num_attention_heads"))
    kv_heads = config.integer("num_key_value_heads")
    if near:
        kv_heads = config.integer("swa_num_key_value_heads", 2 * kv_heads)
    sinks = config.boolean("add_swa_attention_sink_bias" if near else "add_full_attention_sink_bias", near)
    return GroupedQueryAttention(
        hidden=config.integer("hidden_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=config.integer(f"{prefix}v_head_dim", config.integer("v_head_dim", head_dim)),
        qkv_bias=bias,
        rope_dim=int(head_dim * config.number("partial_rotary_factor", 1.0)),
        window=config.integer("sliding_window") if near else None,
        sinks=sinks,
    )
