"""NVIDIA Nemotron: hybrids of Mamba2, attention and experts, one mixer a layer, and NAS-pruned Llamas."""

from __future__ import annotations

from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.layers.feed_forward import FeedForward
from tensor_cast.layers.linear_attention import Mamba2
from tensor_cast.models import parts
from tensor_cast.models.checkpoint import ModuleNames
from tensor_cast.models.config import Config
from tensor_cast.models.moe import mixture_of_experts
from tensor_cast.models.spec import ModelSpec

MODULES = ModuleNames(
    attention=("mixer.in_proj", "mixer.q_proj"),
    attention_output=("mixer.out_proj", "mixer.o_proj"),
    mlp=("mixer.up_proj",),
    shared_experts=("mixer.shared_experts.up_proj",),
    experts=("mixer.experts.0.up_proj", "mixer.experts"),
)
LETTERS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}


def nemotron_h(config: Config, name: str) -> ModelSpec:
    """Nemotron-H and Nemotron-3: each layer is a norm and one mixer."""
    kinds = _kinds(config, "layers_block_type", "hybrid_override_pattern")
    if kinds is None:
        raise config.error("neither hybrid_override_pattern nor layers_block_type says what each layer is.")
    count = config.integer("num_hidden_layers", len(kinds))
    if count != len(kinds):
        config.fail("num_hidden_layers", f"{len(kinds)}, the layers that the pattern lists")
    made = {kind: _layer(config, kind) for kind in dict.fromkeys(kinds)}
    modules = config.integer("num_nextn_predict_layers", 0, minimum=0)
    drafting = _kinds(config, "mtp_layers_block_type", "mtp_hybrid_override_pattern")
    config.settled(*_SETTLED)
    return parts.spec(
        config,
        name=name,
        family="nemotron_h",
        layers=tuple(made[kind] for kind in kinds),
        vocabulary=parts.vocabulary(config),
        mtp_layer=_drafting_layer(config, drafting or ["attention", "moe"]) if modules else None,
        mtp_modules=modules,
        modules=MODULES,
    )


# Limits of time steps, initial values, kernel choices, and widths of mixers that no layer of the model is.
_SETTLED = (
    "time_step_floor",
    "time_step_limit",
    "time_step_max",
    "time_step_min",
    "time_step_rank",
    "rescale_prenorm_residual",
    "residual_in_fp32",
    "use_mamba_kernels",
    "mamba_hidden_act",
    "mlp_hidden_act",
    "num_logits_to_keep",
    "layer_norm_epsilon",
    "expand",
    "moe_shared_expert_overlap",
    "partial_rotary_factor",
    "head_dim",
    "attention_head_dim",
    "intermediate_size",
    "num_query_groups",
    "num_attention_heads",
    "num_key_value_heads",
)


def _kinds(config: Config, listed: str, pattern: str) -> list[str] | None:
    """Kinds of mixers, from a list or a pattern of letters."""
    if config.has(listed):
        config.has(pattern)
        kinds = config.items(listed) or []
        renamed = ["attention" if kind == "full_attention" else kind for kind in kinds]
        known = tuple(LETTERS.values())
        if not renamed or any(kind not in known for kind in renamed):
            config.fail(listed, f"a list of {', '.join(LETTERS.values())}")
        return renamed
    if not config.has(pattern):
        return None
    letters = config.text(pattern)
    if not letters or set(letters) - LETTERS.keys():
        config.fail(pattern, f"letters among {' '.join(LETTERS)}")
    return [LETTERS[letter] for letter in letters]


def _drafting_layer(config: Config, kinds: list[str]) -> DecoderLayer:
    if kinds != ["attention", "moe"]:
        raise config.error(f"an MTP module of {', '.join(kinds)} is not modelled: attention, then experts, is.")
    return DecoderLayer(
        config.integer("hidden_size"), _layer(config, "attention").attention, _layer(config, "moe").feed_forward
    )


def _layer(config: Config, kind: str) -> DecoderLayer:
    hidden = config.integer("hidden_size")
    bias = config.boolean("mlp_bias", False)
    match kind:
        case "mamba":
            return DecoderLayer(hidden, _mamba(config), None)
        case "attention":
            if config.boolean("attention_bias", False):
                config.fail("attention_bias", "false: the family has none")
            attention = parts.grouped_query_attention(
                config,
                default_head_dim=config.optional_integer("attention_head_dim"),
                window=config.optional_integer("sliding_window"),
            )
            return DecoderLayer(hidden, attention, None)
        case "mlp":
            mlp = FeedForward(hidden, config.integer("intermediate_size"), bias=bias, kind="plain")
            return DecoderLayer(hidden, None, mlp)
        case _:
            moe = mixture_of_experts(
                config,
                config.integer("n_routed_experts"),
                config.integer("num_experts_per_tok"),
                config.integer("moe_intermediate_size"),
                shared_intermediate=config.integer("moe_shared_expert_intermediate_size")
                * config.integer("n_shared_experts", 1, minimum=0),
                kind="plain",
                latent=config.optional_integer("moe_latent_size"),
            )
            return DecoderLayer(hidden, None, moe)


def _mamba(config: Config) -> Mamba2:
    if config.integer("mamba_num_heads") % config.integer("n_groups"):
        config.fail("mamba_num_heads", f"a multiple of the {config.integer('n_groups')} groups (n_groups)")
    return Mamba2(
        hidden=config.integer("hidden_size"),
        heads=config.integer("mamba_num_heads"),
        head_dim=config.integer("mamba_head_dim"),
        groups=config.integer("n_groups"),
        state=config.integer("ssm_state_size"),
        kernel=config.integer("conv_kernel"),
        chunk=config.integer("chunk_size", 128),
        conv_bias=config.boolean("use_conv_bias", True),
        bias=config.boolean("use_bias", False) or config.boolean("mamba_proj_bias", False),
        state_dtype=parts.state_dtype(config, "mamba_ssm_cache_dtype"),
        conv_dtype=parts.model_dtype(config),
    )


def nemotron_nas(config: Config, name: str) -> ModelSpec:
    """Llama-Nemotron: each block has its own width and number of KV heads, or leaves attention or MLP out."""
    blocks = config.items("block_configs", config.integer("num_hidden_layers")) or []
    # Null in the config: each block says its own.
    config.settled("intermediate_size", "num_key_value_heads", "mlp_bias")
    layers = tuple(
        _pruned(config, Config(block, where=config.where, path=f"{config.path}.block_configs[{index}]"))
        if isinstance(block, dict)
        else config.fail("block_configs", "a list of objects")
        for index, block in enumerate(blocks)
    )
    return parts.spec(
        config,
        name=name,
        family="nemotron_nas",
        layers=parts.shared_objects(layers),
        vocabulary=parts.vocabulary(config),
    )


def _pruned(config: Config, block: Config) -> DecoderLayer:
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    attention, feed_forward = block.child("attention"), block.child("ffn")
    for part in (attention, feed_forward):
        for unknown in ("replace_with_linear", "sparsify"):
            if part.has(unknown) and part.values[unknown]:
                part.fail(unknown, "false or null: a replaced block is not modelled")
    mixer = mlp = None
    if not attention.boolean("no_op", False):
        group = attention.integer("n_heads_in_group")
        if heads % group:
            attention.fail("n_heads_in_group", f"a divisor of the {heads} attention heads")
        bias = config.boolean("attention_bias", False)
        mixer = parts.grouped_query_attention(
            config,
            default_kv_heads=heads // group,
            qkv_bias=bias,
            output_bias=bias,
            window=attention.optional_integer("window_length"),
        )
    if not feed_forward.boolean("no_op", False):
        # The width is 2/3 of ffn_mult x hidden, rounded up to a multiple of 256, as the model's own code computes it.
        width = int(2 * feed_forward.number("ffn_mult") * hidden / 3)
        mlp = FeedForward(hidden, -(-width // 256) * 256)
    return DecoderLayer(hidden, mixer, mlp)
