"""Qwen3-Next, Qwen3.5 and Qwen3.6: three gated delta-net layers for each layer of gated full attention."""

from __future__ import annotations

from tensor_cast.layers.decoder_layer import AttentionBlock, DecoderLayer, FeedForwardBlock
from tensor_cast.layers.feed_forward import FeedForward
from tensor_cast.layers.linear_attention import GatedDeltaNet
from tensor_cast.models import parts
from tensor_cast.models.checkpoint import ModuleNames
from tensor_cast.models.config import Config
from tensor_cast.models.moe import mixture_of_experts, qwen_sparse_layers
from tensor_cast.models.spec import ModelSpec

MODULES = ModuleNames(
    attention=("self_attn.q_proj", "linear_attn.in_proj_qkv", "linear_attn.in_proj_qkvz"),
    attention_output=("self_attn.o_proj", "linear_attn.out_proj"),
)


def gated_delta_net(config: Config) -> GatedDeltaNet:
    """The linear layers. States are kept in ``mamba_ssm_dtype``, float32 where it is not given."""
    dtype = parts.state_dtype(config, "mamba_ssm_dtype")
    return GatedDeltaNet(
        hidden=config.integer("hidden_size"),
        key_heads=config.integer("linear_num_key_heads"),
        value_heads=config.integer("linear_num_value_heads"),
        key_dim=config.integer("linear_key_head_dim"),
        value_dim=config.integer("linear_value_head_dim"),
        kernel=config.integer("linear_conv_kernel_dim"),
        state_dtype=dtype,
        conv_dtype=dtype,
    )


def _hybrid(config: Config, name: str, family: str, blocks: list[FeedForwardBlock]) -> ModelSpec:
    count = config.integer("num_hidden_layers")
    bias = config.boolean("attention_bias", False)
    # attn_output_gate is true in every published config, as the reference class always has the gate.
    gated = config.boolean("attn_output_gate", True)
    config.off("use_sliding_window")
    # The gate's function (sigmoid or swish) costs the same; dense models keep an empty list of dense layers.
    config.settled("output_gate_type", "mlp_only_layers", "sliding_window", "max_window_layers")
    full = parts.grouped_query_attention(
        config,
        default_head_dim=256,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm="head",
        output_gate="element" if gated else "none",
    )
    interval = config.integer("full_attention_interval", 4)
    default = [parts.LINEAR if (index + 1) % interval else parts.FULL for index in range(count)]
    kinds = parts.layer_types(config, count, default)
    mixers: dict[str, AttentionBlock] = {parts.FULL: full, parts.LINEAR: gated_delta_net(config)}
    if not mixers.keys() >= set(kinds):
        config.fail("layer_types", f"{parts.LINEAR} or {parts.FULL} for every layer")
    layers = tuple(DecoderLayer(full.hidden, mixers[kind], block) for kind, block in zip(kinds, blocks, strict=True))
    modules = config.integer("mtp_num_hidden_layers", 0, minimum=0)
    config.has("mtp_use_dedicated_embeddings")
    return parts.spec(
        config,
        name=name,
        family=family,
        layers=parts.shared_objects(layers),
        vocabulary=parts.vocabulary(config),
        mtp_layer=DecoderLayer(full.hidden, full, blocks[-1]) if modules else None,
        mtp_modules=modules,
        modules=MODULES,
    )


def _experts(config: Config) -> list[FeedForwardBlock]:
    count = config.integer("num_hidden_layers")
    moe = mixture_of_experts(
        config,
        config.integer("num_experts"),
        config.integer("num_experts_per_tok"),
        config.integer("moe_intermediate_size"),
        shared_intermediate=config.integer("shared_expert_intermediate_size"),
        shared_gate=True,
    )
    sparse = qwen_sparse_layers(config)
    if all(sparse(index) for index in range(count)):
        config.has("intermediate_size")
        return [moe] * count
    dense = FeedForward(config.integer("hidden_size"), config.integer("intermediate_size"))
    return [moe if sparse(index) else dense for index in range(count)]


def qwen3_next(config: Config, name: str) -> ModelSpec:
    """Qwen3-Next: every layer sparse, one gated shared expert."""
    return _hybrid(config, name, "qwen3_next", _experts(config))


def qwen3_5_moe(config: Config, name: str) -> ModelSpec:
    """The language model of Qwen3.5 and 3.6 MoE."""
    return _hybrid(config, name, "qwen3_5_moe", _experts(config))


def qwen3_5(config: Config, name: str) -> ModelSpec:
    """The language model of Qwen3.5 and 3.6, dense."""
    mlp = FeedForward(config.integer("hidden_size"), config.integer("intermediate_size"))
    return _hybrid(config, name, "qwen3_5", [mlp] * config.integer("num_hidden_layers"))


__all__ = ["gated_delta_net", "qwen3_5", "qwen3_5_moe", "qwen3_next"]
