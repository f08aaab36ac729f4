"""InclusionAI Ling and Ring (Bailing MoE): grouped-query attention, first layers dense, experts beside shared ones."""

from __future__ import annotations

from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.models import parts
from tensor_cast.models.checkpoint import ModuleNames
from tensor_cast.models.config import Config
from tensor_cast.models.moe import mixture_of_experts, stack
from tensor_cast.models.spec import ModelSpec

MODULES = ModuleNames(attention=("attention.query_key_value",), attention_output=("attention.dense",))


def bailing_moe(config: Config, name: str) -> ModelSpec:
    """Ling and Ring, first and second generation."""
    qkv_bias = config.boolean("use_qkv_bias", False)
    attention = parts.grouped_query_attention(
        config,
        qkv_bias=qkv_bias,
        output_bias=config.boolean("use_bias", False),
        qk_norm="head" if config.boolean("use_qk_norm", False) else "none",
    )
    intermediate = config.integer("moe_intermediate_size")
    moe = mixture_of_experts(
        config,
        config.integer("num_experts"),
        config.integer("num_experts_per_tok"),
        intermediate,
        shared_intermediate=config.integer("num_shared_experts", 0, minimum=0) * intermediate,
    )
    if not config.boolean("use_rmsnorm", True) or config.boolean("norm_head", False):
        raise config.error("use_rmsnorm false and norm_head true are not modelled: no published Ling has them.")
    # Scores, dropout, and how projections are stored.
    config.settled(
        "embedding_dropout",
        "output_dropout",
        "norm_softmax",
        "router_dtype",
        "score_function",
        "moe_router_enable_expert_bias",
        "using_split_qkv_in_self_attention",
    )
    first = config.integer("first_k_dense_replace", 0, minimum=0)
    modules = config.integer("num_nextn_predict_layers", 0, minimum=0)
    return parts.spec(
        config,
        name=name,
        family="bailing_moe",
        layers=stack(config, attention, moe, lambda index: index >= first),
        vocabulary=parts.vocabulary(config),
        mtp_layer=DecoderLayer(attention.hidden, attention, moe) if modules else None,
        mtp_modules=modules,
        modules=MODULES,
    )
