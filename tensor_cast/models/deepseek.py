"""DeepSeek V2, V3, V3.1 and R1, and Kimi K2: latent attention, shared and routed experts, first layers dense, MTP."""

from __future__ import annotations

from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.layers.feed_forward import FeedForward
from tensor_cast.models import parts
from tensor_cast.models.config import Config
from tensor_cast.models.moe import routed_experts
from tensor_cast.models.spec import ModelSpec


def deepseek(config: Config, name: str) -> ModelSpec:
    """All models that declare ``deepseek_v2``, ``deepseek_v3`` or ``kimi_k2``."""
    attention = parts.latent_attention(config)
    hidden = attention.hidden
    intermediate = config.integer("moe_intermediate_size")
    moe = routed_experts(
        config,
        config.integer("n_routed_experts"),
        config.integer("num_experts_per_tok"),
        intermediate,
        shared_intermediate=config.integer("n_shared_experts", 0, minimum=0) * intermediate,
    )
    count = config.integer("num_hidden_layers")
    first = config.integer("first_k_dense_replace", 0, minimum=0)
    every = config.integer("moe_layer_freq", 1)
    sparse = DecoderLayer(hidden, attention, moe)
    dense = DecoderLayer(hidden, attention, FeedForward(hidden, config.integer("intermediate_size")))
    modules = config.integer("num_nextn_predict_layers", 0, minimum=0)
    return parts.spec(
        config,
        name=name,
        family="deepseek",
        layers=tuple(sparse if index >= first and index % every == 0 else dense for index in range(count)),
        vocabulary=parts.vocabulary(config),
        mtp_layer=sparse if modules else None,
        mtp_modules=modules,
    )
