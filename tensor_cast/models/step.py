"""StepFun Step-3.5 and 3.7: a full layer, then three windowed ones; a gate on each head; a shared expert."""

from __future__ import annotations

from dataclasses import replace

from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.layers.feed_forward import FeedForward
from tensor_cast.models import parts
from tensor_cast.models.config import Config
from tensor_cast.models.moe import mixture_of_experts
from tensor_cast.models.spec import ModelSpec


def step3(config: Config, name: str) -> ModelSpec:
    """The language model of Step-3.5-Flash and Step-3.7-Flash."""
    hidden, count = config.integer("hidden_size"), config.integer("num_hidden_layers")
    drafting = config.integer("num_nextn_predict_layers", 0, minimum=0)
    kinds = _of_layers(config, "layer_types", count, drafting, (parts.FULL, parts.SLIDING)) or [parts.FULL] * count
    window = config.integer("sliding_window") if parts.SLIDING in kinds else None
    heads = config.integer("num_attention_heads")
    near_heads, notes = _window_heads(config, heads)
    full = parts.grouped_query_attention(config, qk_norm="head", output_gate="head")
    near = replace(full, heads=near_heads, window=window)
    experts = config.optional_integer("n_routed_experts") or config.integer("num_experts")
    moe = mixture_of_experts(
        config,
        experts,
        config.integer("num_experts_per_tok"),
        config.integer("moe_intermediate_size"),
        shared_intermediate=config.integer("share_expert_dim"),
    )
    mlp = FeedForward(hidden, config.integer("intermediate_size"))
    sparse = _sparse_layers(config, count, drafting)
    config.settled(
        "swiglu_limits",
        "swiglu_limits_shared",
        "n_shared_experts",
        "use_moe_router_bias",
        "moe_router_scaling_factor",
        "partial_rotary_factors",
    )
    layers = tuple(
        DecoderLayer(hidden, near if kind == parts.SLIDING else full, moe if index in sparse else mlp)
        for index, kind in enumerate(kinds)
    )
    if drafting:
        notes += (f"The {drafting} MTP layers are left out: the config does not say what they consist of.",)
    return parts.spec(
        config,
        name=name,
        family="step3",
        layers=parts.shared_objects(layers),
        vocabulary=parts.vocabulary(config),
        notes=notes,
    )


def _window_heads(config: Config, heads: int) -> tuple[int, tuple[str, ...]]:
    """Attention heads of windowed layers, which published models give apart."""
    if config.has("num_sliding_attention_heads"):
        return config.integer("num_sliding_attention_heads"), ()
    if config.has("attention_other_setting"):
        return config.child("attention_other_setting").integer("num_attention_heads", heads), ()
    return heads, (
        f"Windowed layers are taken to have {heads} heads like the others: the config has no attention_other_setting.",
    )


def _of_layers(config: Config, key: str, count: int, drafting: int, known: tuple[str, ...]) -> list[str] | None:
    """A list with an entry a layer, which may go on with the drafting layers."""
    kinds = config.items(key)
    if kinds is None:
        return None
    if len(kinds) not in (count, count + drafting) or set(map(str, kinds)) - set(known):
        config.fail(key, f"{count} entries among {', '.join(known)}")
    return kinds[:count]


def _sparse_layers(config: Config, count: int, drafting: int) -> set[int]:
    kinds = _of_layers(config, "mlp_layer_types", count, drafting, ("dense", "sparse"))
    if kinds is not None:
        return {index for index, kind in enumerate(kinds) if kind == "sparse"}
    if config.has("moe_layers_enum"):
        listed = config.values["moe_layers_enum"]
        items = listed.split(",") if isinstance(listed, str) else listed
        try:
            return {int(item) for item in items if str(item).strip()}
        except (TypeError, ValueError):
            config.fail("moe_layers_enum", "layer indices, separated by commas")
    return set(range(config.integer("first_k_dense_replace", 3, minimum=0), count))
