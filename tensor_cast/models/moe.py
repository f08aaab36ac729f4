"""Mixture-of-experts models with grouped-query attention: Mixtral, Qwen2/3 MoE, GLM-4.5, ERNIE 4.5 MoE."""

from __future__ import annotations

from collections.abc import Callable

from tensor_cast.layers.attention import GroupedQueryAttention
from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.layers.feed_forward import FeedForward, MLPKind
from tensor_cast.layers.moe import MixtureOfExperts
from tensor_cast.layers.routed_experts import RoutedExperts
from tensor_cast.layers.shared_experts import SharedExperts
from tensor_cast.models import parts
from tensor_cast.models.checkpoint import ModuleNames
from tensor_cast.models.config import Config
from tensor_cast.models.spec import ModelSpec


def mixture_of_experts(
    config: Config,
    experts: int,
    experts_per_token: int,
    intermediate: int,
    *,
    shared_intermediate: int = 0,
    shared_gate: bool = False,
    expert_bias: bool = False,
    router_bias: bool = False,
    router_scales: bool = False,
    kind: MLPKind = "gated",
    latent: int | None = None,
) -> MixtureOfExperts:
    """Routed experts, beside shared ones where ``shared_intermediate`` is their width together.

    Raises:
        ModelingError: a token picks more experts than there are.
    """
    if experts_per_token > experts:
        raise config.error(f"{experts_per_token} experts a token are more than the {experts} experts.")
    hidden = config.integer("hidden_size")
    routed = RoutedExperts(
        hidden,
        experts,
        experts_per_token,
        intermediate,
        kind=kind,
        bias=expert_bias,
        router_bias=router_bias,
        router_scales=router_scales,
        latent=latent,
    )
    if not shared_intermediate:
        return MixtureOfExperts(routed)
    return MixtureOfExperts(routed, SharedExperts(hidden, shared_intermediate, kind=kind, gate=shared_gate))


def stack(
    config: Config,
    attention: GroupedQueryAttention,
    moe: MixtureOfExperts,
    is_sparse: Callable[[int], bool],
    *,
    mlp_bias: bool = False,
) -> tuple[DecoderLayer, ...]:
    """Layers with experts where ``is_sparse(index)``, dense elsewhere."""
    hidden = attention.hidden
    count = config.integer("num_hidden_layers")
    sparse = DecoderLayer(hidden, attention, moe)
    if all(is_sparse(index) for index in range(count)):
        return (sparse,) * count
    dense = DecoderLayer(hidden, attention, FeedForward(hidden, config.integer("intermediate_size"), bias=mlp_bias))
    return tuple(sparse if is_sparse(index) else dense for index in range(count))


MIXTRAL_MODULES = ModuleNames(experts=("block_sparse_moe.experts.0.w1", "block_sparse_moe.experts"))


def mixtral(config: Config, name: str) -> ModelSpec:
    """Every layer sparse; experts are as wide as ``intermediate_size``."""
    attention = parts.grouped_query_attention(
        config, default_kv_heads=8, window=config.optional_integer("sliding_window")
    )
    moe = mixture_of_experts(
        config,
        config.integer("num_local_experts", 8),
        config.integer("num_experts_per_tok", 2),
        config.integer("intermediate_size"),
    )
    return parts.spec(
        config,
        name=name,
        family="mixtral",
        layers=stack(config, attention, moe, lambda _: True),
        vocabulary=parts.vocabulary(config),
        modules=MIXTRAL_MODULES,
    )


def qwen_sparse_layers(config: Config) -> Callable[[int], bool]:
    """Which layers of a Qwen model have experts."""
    step = config.integer("decoder_sparse_step", 1)
    dense = set(config.indices("mlp_only_layers", config.integer("num_hidden_layers")) or ())
    return lambda index: index not in dense and (index + 1) % step == 0


def _qwen_moe_window(config: Config) -> int | None:
    """The window of all layers, if windows are in use at all."""
    window = config.optional_integer("sliding_window")
    return window if config.boolean("use_sliding_window", False) else None


def qwen2_moe(config: Config, name: str) -> ModelSpec:
    """Routed experts beside one gated shared expert; biases on queries, keys and values."""
    bias = config.boolean("qkv_bias", True)
    attention = parts.grouped_query_attention(config, qkv_bias=bias, window=_qwen_moe_window(config))
    config.has("intermediate_size")
    moe = mixture_of_experts(
        config,
        config.integer("num_experts"),
        config.integer("num_experts_per_tok"),
        config.integer("moe_intermediate_size"),
        shared_intermediate=config.integer("shared_expert_intermediate_size"),
        shared_gate=True,
    )
    return parts.spec(
        config,
        name=name,
        family="qwen2_moe",
        layers=stack(config, attention, moe, qwen_sparse_layers(config)),
        vocabulary=parts.vocabulary(config),
    )


def qwen3_moe(config: Config, name: str) -> ModelSpec:
    """Routed experts alone; an RMSNorm on query and key heads."""
    bias = config.boolean("attention_bias", False)
    attention = parts.grouped_query_attention(
        config,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm="head",
        default_head_dim=128,
        window=_qwen_moe_window(config),
    )
    # The width of dense layers, of which published models have none, and keys of Qwen2 MoE that the class never reads.
    config.settled("intermediate_size", "qkv_bias", "use_qk_norm", "shared_expert_intermediate_size")
    moe = mixture_of_experts(
        config,
        config.integer("num_experts"),
        config.integer("num_experts_per_tok"),
        config.integer("moe_intermediate_size"),
    )
    return parts.spec(
        config,
        name=name,
        family="qwen3_moe",
        layers=stack(config, attention, moe, qwen_sparse_layers(config)),
        vocabulary=parts.vocabulary(config),
    )


def glm4_moe(config: Config, name: str) -> ModelSpec:
    """GLM-4.5, 4.6 and 4.7: dense layers first, shared experts, one MTP module."""
    attention = parts.grouped_query_attention(
        config,
        default_head_dim=128,
        qkv_bias=config.boolean("attention_bias", False),
        qk_norm="head" if config.boolean("use_qk_norm", False) else "none",
    )
    intermediate = config.integer("moe_intermediate_size")
    moe = mixture_of_experts(
        config,
        config.integer("n_routed_experts"),
        config.integer("num_experts_per_tok"),
        intermediate,
        shared_intermediate=config.integer("n_shared_experts", 1, minimum=0) * intermediate,
    )
    first = config.integer("first_k_dense_replace", 1, minimum=0)
    modules = config.integer("num_nextn_predict_layers", 0, minimum=0)
    return parts.spec(
        config,
        name=name,
        family="glm4_moe",
        layers=stack(config, attention, moe, lambda index: index >= first),
        vocabulary=parts.vocabulary(config),
        mtp_layer=DecoderLayer(attention.hidden, attention, moe) if modules else None,
        mtp_modules=modules,
    )


def ernie45_moe(config: Config, name: str) -> ModelSpec:
    """ERNIE 4.5 MoE: sparse layers between two indices at an interval, shared experts as wide as a routed one each."""
    bias = config.boolean("use_bias", False)
    attention = parts.grouped_query_attention(config, qkv_bias=bias, output_bias=bias)
    count = config.integer("num_hidden_layers")
    intermediate = config.integer("moe_intermediate_size")
    moe = mixture_of_experts(
        config,
        config.integer("moe_num_experts"),
        config.integer("moe_k"),
        intermediate,
        shared_intermediate=config.integer("moe_num_shared_experts", 0, minimum=0) * intermediate,
    )
    start = config.integer("moe_layer_start_index", 0, minimum=0)
    end = config.integer("moe_layer_end_index", count - 1, minimum=-1)
    interval = config.integer("moe_layer_interval", 1)
    last = end if end >= 0 else count - 1
    return parts.spec(
        config,
        name=name,
        family="ernie4_5_moe",
        layers=stack(
            config, attention, moe, lambda index: start <= index <= last and (index + 1) % interval == 0, mlp_bias=bias
        ),
        vocabulary=parts.vocabulary(config, tied_default=True),
    )
