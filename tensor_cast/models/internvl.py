"""InternVL's vision encoders: InternViT over tiles, patches shuffled into fewer tokens, a two-layer projector."""

from __future__ import annotations

from typing import Any

from tensor_cast.layers.attention import QKNorm
from tensor_cast.layers.norm import NormKind
from tensor_cast.layers.vision import Projection, VisionEncoder
from tensor_cast.models.config import Config
from tensor_cast.models.image_rules import AspectTiles

NORMS: dict[str, NormKind] = {"layer_norm": "layer", "rms_norm": "rms"}
# A variant of InternViT with experts, which no published model turns on, and details of attention kernels.
SETTLED_VISION = (
    "capacity_factor",
    "drop_path_rate",
    "dropout",
    "eval_capacity_factor",
    "hidden_dropout_prob",
    "laux_allreduce",
    "layer_scale_init_value",
    "moe_coeff_ratio",
    "moe_intermediate_size",
    "moe_output_scale",
    "noisy_gate_policy",
    "num_experts",
    "num_routed_experts",
    "num_shared_experts",
    "projection_dropout",
    "shared_expert_intermediate_size",
    "use_flash_attn",
    "use_residual",
    "use_rts",
    "use_weighted_residual",
)
# Prompt templates, and an order of the shuffled patches that costs the same either way.
SETTLED_CHAT = ("hidden_size", "image_fold", "pad2square", "ps_version", "system_message", "template")


def chat(config: Config, text_hidden: int) -> tuple[VisionEncoder, AspectTiles]:
    """``internvl_chat``, the published code's own config; defaults are ``InternVLChatConfig``'s."""
    whole = _whole(config)
    whole.settled(*SETTLED_CHAT)
    for key in ("use_backbone_lora", "use_llm_lora"):
        if whole.integer(key, 0, minimum=0):
            whole.fail(key, "0: low-rank adapters beside the weights are not modelled")
    _last_layer(whole, "select_layer")
    table = config.integer("image_size", 224)
    # Without tiling an image is one tile.
    tiled = whole.boolean("dynamic_image_size", False)
    tiles = (whole.integer("min_dynamic_patch", 1), whole.integer("max_dynamic_patch", 6)) if tiled else (1, 1)
    if tiles[0] > tiles[1]:
        whole.fail("min_dynamic_patch", f"at most max_dynamic_patch, {tiles[1]}")
    return _encoder(
        config,
        whole,
        text_hidden,
        table=table,
        side=whole.integer("force_image_size", table),
        patch=config.integer("patch_size", 14),
        qkv_bias=config.boolean("qkv_bias", False),
        qk_norm="full" if config.boolean("qk_normalization", True) else "none",
        norm=config.text("norm_type", "rms_norm"),
        tiles=tiles,
        thumbnail=whole.boolean("use_thumbnail", False),
        defaults=(3200, 48, 25, 12800),
    )


def native(config: Config, text_hidden: int) -> tuple[VisionEncoder, AspectTiles]:
    """``internvl`` of the transformers library; defaults are ``InternVLVisionConfig``'s.

    Tiling is its processor's: 1 to 12 tiles, and a thumbnail.
    """
    whole = _whole(config)
    _last_layer(whole, "vision_feature_layer")
    if whole.text("vision_feature_select_strategy", "default") != "default":
        whole.fail("vision_feature_select_strategy", "'default', which drops the class token")
    config.off("use_mask_token")
    for key in ("use_absolute_position_embeddings", "use_mean_pooling"):
        if not config.boolean(key, True):
            config.fail(key, "true: the family has no published model without it")
    side = _square(config, "image_size", 448)
    return _encoder(
        config,
        whole,
        text_hidden,
        table=side,
        side=side,
        patch=_square(config, "patch_size", 14),
        qkv_bias=config.boolean("attention_bias", False),
        qk_norm="full" if config.boolean("use_qk_norm", False) else "none",
        norm=config.text("norm_type", "layer_norm"),
        tiles=(1, 12),
        thumbnail=True,
        defaults=(1024, 24, 16, 4096),
    )


def _encoder(
    config: Config,
    whole: Config,
    text_hidden: int,
    *,
    table: int,
    side: int,
    patch: int,
    qkv_bias: bool,
    qk_norm: QKNorm,
    norm: str,
    tiles: tuple[int, int],
    thumbnail: bool,
    defaults: tuple[int, int, int, int],
) -> tuple[VisionEncoder, AspectTiles]:
    """``table``: pixels a side that the position table is for; ``defaults``: hidden, layers, heads, intermediate."""
    config.off("use_moe")
    config.settled(*SETTLED_VISION)
    if norm not in NORMS:
        config.fail("norm_type", " or ".join(NORMS))
    hidden, heads = config.integer("hidden_size", defaults[0]), config.integer("num_attention_heads", defaults[2])
    if hidden % heads:
        raise config.error(f"{hidden} channels do not divide into {heads} heads.")
    ratio = whole.ratio("downsample_ratio", 0.5)
    merge, grid = round(1.0 / ratio), side // patch
    if merge * ratio != 1.0 or grid % merge:
        whole.fail("downsample_ratio", f"one over a divisor of the {grid} patches a side of a tile")
    joined = hidden * merge**2
    encoder = VisionEncoder(
        hidden=hidden,
        depth=config.integer("num_hidden_layers", defaults[1]),
        heads=heads,
        head_dim=hidden // heads,
        intermediate=config.integer("intermediate_size", defaults[3]),
        patch_elements=config.integer("num_channels", 3) * patch**2,
        projections=(
            Projection("projector_up", joined, text_hidden, activation=True, norm="layer", norm_width=joined),
            Projection("projector_down", text_hidden, text_hidden),
        ),
        patch_bias=True,
        norm=NORMS[norm],
        qk_norm=qk_norm,
        rotary=False,
        tables=(("positions", ((table // patch) ** 2 + 1, hidden)),),
        qkv_bias=qkv_bias,
        layer_scale=True,
        class_token=True,
    )
    return encoder, AspectTiles(patch, side, *tiles, thumbnail, (grid // merge) ** 2)


def _whole(config: Config) -> Config:
    """The config around ``vision_config``, which says how tiles are cut and merged."""
    return config if config.parent is None else config.parent


def _last_layer(whole: Config, key: str) -> None:
    value: Any = whole.values.get(key) if whole.has(key) else -1
    if value != -1:
        whole.fail(key, "-1: features of an earlier layer are not modelled")


def _square(config: Config, key: str, default: int) -> int:
    """A side of a square, given as one number or as two equal ones."""
    if not isinstance(config.values.get(key), list):
        return config.integer(key, default)
    height, width = config.integers(key, [default, default], length=2)
    if height != width:
        config.fail(key, "a square")
    return height
