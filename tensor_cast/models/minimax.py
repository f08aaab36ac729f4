"""MiniMax M2 (full attention) and M3 (block-sparse attention chosen by an indexer)."""

from __future__ import annotations

from tensor_cast.layers.attention import QKNorm
from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.layers.feed_forward import FeedForward
from tensor_cast.layers.indexer import BlockIndexer
from tensor_cast.models import parts
from tensor_cast.models.checkpoint import ModuleNames
from tensor_cast.models.config import Config
from tensor_cast.models.moe import mixture_of_experts, stack
from tensor_cast.models.spec import ModelSpec

MODULES = ModuleNames(
    shared_experts=("block_sparse_moe.shared_experts.gate_proj",),
    experts=("block_sparse_moe.experts.0.w1", "block_sparse_moe.experts"),
)


def minimax_m2(config: Config, name: str) -> ModelSpec:
    """MiniMax M2 to M2.7: every layer sparse, one RMSNorm over all queries and one over all keys."""
    kinds = config.items("attn_type_list", config.integer("num_hidden_layers"))
    if kinds is not None and any(kind != 1 for kind in kinds):
        config.fail("attn_type_list", "1 (full attention) for every layer of the minimax_m2 family")
    attention = parts.grouped_query_attention(config, qk_norm="full" if config.boolean("use_qk_norm", True) else "none")
    moe = mixture_of_experts(
        config,
        config.integer("num_local_experts"),
        config.integer("num_experts_per_tok"),
        config.integer("intermediate_size"),
        shared_intermediate=config.integer("shared_intermediate_size", 0, minimum=0),
    )
    modules = config.integer("num_mtp_modules", 0, minimum=0) if config.boolean("use_mtp", False) else 0
    # Width of the lightning-attention models of the same code base (MiniMax-Text-01); no layer of M2 uses it.
    config.settled(
        "mlp_intermediate_size",
        "shared_moe_mode",
        "layernorm_full_attention_beta",
        "layernorm_linear_attention_beta",
        "layernorm_mlp_beta",
        "qk_norm_type",
        "use_routing_bias",
        "mtp_transformer_layers",
        "sliding_window",
    )
    layer = DecoderLayer(attention.hidden, attention, moe)
    return parts.spec(
        config,
        name=name,
        family="minimax_m2",
        layers=stack(config, attention, moe, lambda _: True),
        vocabulary=parts.vocabulary(config),
        mtp_layer=layer if modules else None,
        mtp_modules=modules,
        modules=MODULES,
    )


def minimax_m3(config: Config, name: str) -> ModelSpec:
    """MiniMax M3: first layers dense, then blocks of keys chosen by an indexer and experts beside a shared one."""
    count = config.integer("num_hidden_layers")
    if config.boolean("attention_output_gate", False):
        config.fail("attention_output_gate", "false: no published model of the family has one")
    if config.text("qk_norm_type", "per_head") != "per_head":
        config.fail("qk_norm_type", "per_head")
    # Gemma's way to write a norm's weight; a bias of the router, which is not a parameter; the activation's constants.
    config.settled("use_gemma_norm", "use_routing_bias", "swiglu_alpha", "n_shared_experts", "moe_intermediate_size")
    sparse = config.child("sparse_attention_config")
    chosen = _flags(sparse, "sparse_attention_freq", count)
    routed = _flags(config, "moe_layer_freq", count)
    config.has("first_k_dense_replace")
    if not sparse.boolean("use_sparse_attention", True):
        chosen = [False] * count
    # The index has no values in sparse layers, and its score is the best of a block's.
    sparse.settled("sparse_disable_index_value", "sparse_score_type", "sparse_init_block")
    if sparse.integer("sparse_local_block", 1, minimum=0) != 1:
        sparse.fail("sparse_local_block", "1")
    qk_norm: QKNorm = "head" if config.boolean("use_qk_norm", True) else "none"
    hidden = config.integer("hidden_size")
    indexer = BlockIndexer(
        hidden=hidden,
        heads=sparse.integer("sparse_num_index_heads"),
        dim=sparse.integer("sparse_index_dim"),
        block=sparse.integer("sparse_block_size"),
        top_k=sparse.integer("sparse_topk_blocks"),
    )
    full, blocks = (
        parts.grouped_query_attention(config, qk_norm=qk_norm, indexer=choice) for choice in (None, indexer)
    )
    moe = mixture_of_experts(
        config,
        config.integer("num_local_experts"),
        config.integer("num_experts_per_tok"),
        config.integer("intermediate_size"),
        shared_intermediate=config.integer("shared_intermediate_size", 0, minimum=0),
    )
    mlp = FeedForward(hidden, config.integer("dense_intermediate_size"))
    layers = tuple(
        DecoderLayer(hidden, blocks if pick else full, moe if expert else mlp)
        for pick, expert in zip(chosen, routed, strict=True)
    )
    modules = config.integer("num_mtp_modules", 0, minimum=0)
    # The number that a deployment drafts with, of the modules there are.
    config.has("num_nextn_predict_layers")
    return parts.spec(
        config,
        name=name,
        family="minimax_m3",
        layers=parts.shared_objects(layers),
        vocabulary=parts.vocabulary(config),
        mtp_layer=DecoderLayer(hidden, full, moe) if modules else None,
        mtp_modules=modules,
        modules=MODULES,
    )


def _flags(config: Config, key: str, count: int) -> list[bool]:
    flags = config.items(key, count)
    if flags is None:
        return [True] * count
    if any(flag not in (0, 1) for flag in flags):
        config.fail(key, f"{count} entries of 0 or 1")
    return [bool(flag) for flag in flags]
