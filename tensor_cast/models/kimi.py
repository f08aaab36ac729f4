"""Kimi Linear: Kimi Delta Attention with a layer of latent attention, without rotary embedding, after every third."""

from __future__ import annotations

from tensor_cast.layers.decoder_layer import AttentionBlock, DecoderLayer
from tensor_cast.layers.feed_forward import FeedForward
from tensor_cast.layers.linear_attention import GatedDeltaNet
from tensor_cast.models import parts
from tensor_cast.models.config import Config
from tensor_cast.models.moe import mixture_of_experts
from tensor_cast.models.spec import ModelSpec


def kimi_linear(config: Config, name: str) -> ModelSpec:
    """Kimi-Linear-48B-A3B (arXiv 2510.26692)."""
    hidden, count = config.integer("hidden_size"), config.integer("num_hidden_layers")
    linear = config.child("linear_attn_config")
    full = _layer_set(linear, "full_attn_layers", count)
    delta_layers = _layer_set(linear, "kda_layers", count)
    if full & delta_layers or len(full) + len(delta_layers) != count:
        linear.fail("kda_layers", f"the {count} layers that full_attn_layers does not name")
    heads, dim = linear.integer("num_heads"), linear.integer("head_dim")
    delta = GatedDeltaNet(
        hidden=hidden,
        key_heads=heads,
        value_heads=heads,
        key_dim=dim,
        value_dim=dim,
        kernel=linear.integer("short_conv_kernel_size"),
        conv_dtype=parts.model_dtype(config),
        decay="channel",
        full_rank_gate=linear.boolean("use_full_rank_gate", False),
    )
    linear.has("gate_lower_bound")
    latent = parts.latent_attention(config, rotary=not config.boolean("mla_use_nope", True))
    intermediate = config.integer("moe_intermediate_size")
    moe = mixture_of_experts(
        config,
        config.integer("num_experts"),
        config.integer("num_experts_per_token"),
        intermediate,
        shared_intermediate=config.integer("num_shared_experts", 0, minimum=0) * intermediate,
    )
    first, every = config.integer("first_k_dense_replace", 1, minimum=0), config.integer("moe_layer_freq", 1)
    mlp = FeedForward(hidden, config.integer("intermediate_size"))
    config.settled("moe_renormalize", "moe_router_activation_func", "num_expert_group", "use_grouped_topk")
    modules = config.integer("num_nextn_predict_layers", 0, minimum=0)
    if modules:
        config.fail("num_nextn_predict_layers", "0: the family's MTP module is not modelled")

    def mixer(index: int) -> AttentionBlock:
        return latent if index + 1 in full else delta

    layers = tuple(
        DecoderLayer(hidden, mixer(index), moe if index >= first and index % every == 0 else mlp)
        for index in range(count)
    )
    return parts.spec(
        config,
        name=name,
        family="kimi_linear",
        layers=parts.shared_objects(layers),
        vocabulary=parts.vocabulary(config),
    )


def _layer_set(config: Config, key: str, count: int) -> set[int]:
    """Layers counted from 1, as the config does."""
    layers = config.items(key) or []
    if any(isinstance(index, bool) or not isinstance(index, int) or not 1 <= index <= count for index in layers):
        config.fail(key, f"layers from 1 to {count}")
    return set(layers)
