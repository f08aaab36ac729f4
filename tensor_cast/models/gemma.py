"""Gemma 1 to 4: scaled embeddings; from 2 on norms around every block and windows between full layers."""

from __future__ import annotations

from tensor_cast.layers.attention import GroupedQueryAttention, QKNorm
from tensor_cast.layers.decoder_layer import DecoderLayer, DualFeedForwardLayer
from tensor_cast.layers.embedding import Vocabulary
from tensor_cast.layers.feed_forward import FeedForward
from tensor_cast.models import parts
from tensor_cast.models.checkpoint import ModuleNames
from tensor_cast.models.config import Config
from tensor_cast.models.moe import mixture_of_experts
from tensor_cast.models.spec import ModelSpec


def _gemma(
    config: Config, name: str, family: str, *, window: int | None, kinds: list[str], qk_norm: QKNorm, sandwich: bool
) -> ModelSpec:
    bias = config.boolean("attention_bias", False)
    mlp = FeedForward(config.integer("hidden_size"), config.integer("intermediate_size"))

    def layer(kind: str) -> DecoderLayer:
        attention = parts.grouped_query_attention(
            config,
            default_kv_heads=None if family == "gemma" else 4,
            default_head_dim=256,
            qkv_bias=bias,
            output_bias=bias,
            qk_norm=qk_norm,
            window=window if kind == parts.SLIDING else None,
        )
        return DecoderLayer(attention.hidden, attention, mlp, sandwich_norm=sandwich)

    return parts.spec(
        config,
        name=name,
        family=family,
        layers=parts.shared_objects(tuple(layer(kind) for kind in kinds)),
        vocabulary=_vocabulary(config),
    )


def _vocabulary(config: Config) -> Vocabulary:
    softcap = config.has("final_logit_softcapping")
    return parts.vocabulary(config, tied_default=True, scaled=True, softcap=softcap)


def gemma(config: Config, name: str) -> ModelSpec:
    """Gemma 1: full attention, no norms after the blocks."""
    count = config.integer("num_hidden_layers")
    return _gemma(config, name, "gemma", window=None, kinds=[parts.FULL] * count, qk_norm="none", sandwich=False)


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
        sandwich=True,
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
        sandwich=True,
    )


GEMMA4_MODULES = ModuleNames(shared_experts=(), experts=("experts", "experts.0.gate_proj"))


def gemma4_text(config: Config, name: str) -> ModelSpec:
    """Gemma 4: wider heads in full layers, whose values are their keys; with experts, these beside a dense block."""
    for key, what in (
        ("hidden_size_per_layer_input", "embeddings of each layer's own"),
        ("num_kv_shared_layers", "layers that reuse the keys of others"),
    ):
        if config.integer(key, 0, minimum=0):
            raise config.error(f"{key} is {config.values[key]}: {what} are not modelled.")
    count = config.integer("num_hidden_layers")
    default = [parts.SLIDING if (index + 1) % 6 else parts.FULL for index in range(count)]
    kinds = parts.layer_types(config, count, default)
    hidden = config.integer("hidden_size")
    mlp = FeedForward(hidden, config.integer("intermediate_size"))
    attention = {kind: _gemma4_attention(config, kind) for kind in dict.fromkeys(kinds)}
    moe = None
    if config.boolean("enable_moe_block", False):
        moe = mixture_of_experts(
            config,
            config.integer("num_experts"),
            config.integer("top_k_experts"),
            config.integer("moe_intermediate_size"),
            router_scales=True,
        )
    # Widths of the blocks that are left out above, and how images attend to each other.
    config.settled(
        "vocab_size_per_layer_input",
        "use_double_wide_mlp",
        "use_bidirectional_attention",
        "expert_intermediate_size",
        "num_experts",
        "top_k_experts",
        "moe_intermediate_size",
    )

    def layer(kind: str) -> DecoderLayer:
        if moe is None:
            return DecoderLayer(hidden, attention[kind], mlp, sandwich_norm=True)
        return DualFeedForwardLayer(hidden, attention[kind], moe, sandwich_norm=True, dense=mlp)

    return parts.spec(
        config,
        name=name,
        family="gemma4",
        layers=parts.shared_objects(tuple(layer(kind) for kind in kinds)),
        vocabulary=_vocabulary(config),
        modules=GEMMA4_MODULES,
    )


def _gemma4_attention(config: Config, kind: str) -> GroupedQueryAttention:
    near = kind == parts.SLIDING
    head_dim, kv_heads = config.integer("head_dim"), config.integer("num_key_value_heads")
    # Read for both kinds, so that neither key counts as unknown in a model of one kind.
    global_dim = config.integer("global_head_dim", head_dim)
    global_heads = config.integer("num_global_key_value_heads", kv_heads)
    same = config.boolean("attention_k_eq_v", False)
    window = config.integer("sliding_window")
    bias = config.boolean("attention_bias", False)
    width = head_dim if near else global_dim
    return GroupedQueryAttention(
        hidden=config.integer("hidden_size"),
        heads=config.integer("num_attention_heads"),
        kv_heads=kv_heads if near or not same else global_heads,
        head_dim=width,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm="head",
        # Full layers rotate a quarter of each head (rope_parameters.full_attention).
        rope_dim=width if near else width // 4,
        window=window if near else None,
        keys_are_values=same and not near,
    )
