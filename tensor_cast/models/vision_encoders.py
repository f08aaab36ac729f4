"""Vision encoders by the ``model_type`` around them: structure and image rule from ``vision_config``."""

from __future__ import annotations

from tensor_cast.layers.norm import NormKind
from tensor_cast.layers.vision import Projection, VisionEncoder
from tensor_cast.models.config import Config
from tensor_cast.models.image_rules import CanvasTiles, FixedSize, ImageRule, NaViTResize, PooledBudget, SmartResize

# Limits of an image's area in pixels, from each model's published preprocessor_config.json.
QWEN2_VL_PIXELS = (56 * 56, 28 * 28 * 16384)
QWEN3_VL_PIXELS = (256 * 256, 4096 * 4096)
GLM4V_PIXELS = (112 * 112, 14 * 14 * 2 * 2 * 2 * 6144)
MINIMAX_M3_PIXELS = (4 * 28 * 28, 451584)
# Most tiles of an image: max_patches there.
LLAMA4_TILES = 16

Described = tuple[VisionEncoder, ImageRule | None]


def _head_dim(config: Config, hidden: int, heads: int) -> int:
    if hidden % heads:
        raise config.error(f"{hidden} channels do not divide into {heads} heads.")
    return hidden // heads


def _patch_elements(config: Config, *, frames: bool = True) -> int:
    """Values of a patch: channels x frames x side x side."""
    channels = config.integer("in_channels", config.integer("in_chans", config.integer("num_channels", 3)))
    return channels * (config.integer("temporal_patch_size", 2) if frames else 1) * config.integer("patch_size") ** 2


def qwen2_vl(config: Config, text_hidden: int) -> Described:
    """Qwen2-VL: LayerNorm and a plain MLP; 2 x 2 patches merged by two layers."""
    hidden, heads = config.integer("embed_dim", 1280), config.integer("num_heads", 16)
    merge = config.integer("spatial_merge_size", 2)
    encoder = VisionEncoder(
        hidden=hidden,
        depth=config.integer("depth", 32),
        heads=heads,
        head_dim=_head_dim(config, hidden, heads),
        intermediate=int(hidden * config.number("mlp_ratio", 4)),
        patch_elements=_patch_elements(config),
        projections=_merger(hidden, merge, config.integer("hidden_size", text_hidden), "layer"),
    )
    return encoder, SmartResize(config.integer("patch_size", 14), merge, *QWEN2_VL_PIXELS)


def _merger(hidden: int, merge: int, out: int, norm: NormKind, part: str = "merger") -> tuple[Projection, ...]:
    """Norm of each patch, ``merge`` x ``merge`` of them joined, two layers with a GELU between."""
    joined = hidden * merge**2
    return (
        Projection(f"{part}_up", joined, joined, activation=True, norm=norm, norm_width=hidden),
        Projection(f"{part}_down", joined, out),
    )


def qwen2_5_vl(config: Config, text_hidden: int) -> Described:
    """Qwen2.5-VL: RMSNorm, a gated MLP, and windows of 112 pixels in all but a few layers."""
    hidden, heads = config.integer("hidden_size", 1280), config.integer("num_heads", 16)
    merge, patch = config.integer("spatial_merge_size", 2), config.integer("patch_size", 14)
    depth = config.integer("depth", 32)
    full = config.indices("fullatt_block_indexes", depth)
    window = config.integer("window_size", 112, minimum=patch * merge)
    encoder = VisionEncoder(
        hidden=hidden,
        depth=depth,
        heads=heads,
        head_dim=_head_dim(config, hidden, heads),
        intermediate=config.integer("intermediate_size", 3420),
        patch_elements=_patch_elements(config),
        projections=_merger(hidden, merge, config.integer("out_hidden_size", text_hidden), "rms"),
        mlp="gated",
        norm="rms",
        # Windows are whole merged patches: 112 pixels are 4 x 4 of them, 8 x 8 patches.
        window=window // (patch * merge) * merge,
        full_layers=tuple(range(7, depth, 8) if full is None else full),
    )
    return encoder, SmartResize(patch, merge, *QWEN2_VL_PIXELS)


def qwen3_vl(config: Config, text_hidden: int) -> Described:
    """Qwen3-VL and Qwen3.5: learned positions, and mergers of deeper layers whose output joins early text layers."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_heads")
    merge, out = config.integer("spatial_merge_size", 2), config.integer("out_hidden_size", text_hidden)
    joined = hidden * merge**2
    deepstack = tuple(
        (
            Projection(f"deepstack_{index}_up", joined, joined, activation=True, norm="layer", norm_width=joined),
            Projection(f"deepstack_{index}_down", joined, out),
        )
        for index in range(len(config.items("deepstack_visual_indexes") or []))
    )
    encoder = VisionEncoder(
        hidden=hidden,
        depth=config.integer("depth"),
        heads=heads,
        head_dim=_head_dim(config, hidden, heads),
        intermediate=config.integer("intermediate_size"),
        patch_elements=_patch_elements(config),
        projections=_merger(hidden, merge, out, "layer"),
        deepstack=deepstack,
        patch_bias=True,
        tables=(("positions", (config.integer("num_position_embeddings"), hidden)),),
    )
    return encoder, SmartResize(config.integer("patch_size"), merge, *QWEN3_VL_PIXELS)


def kimi_k25(config: Config, text_hidden: int) -> Described:
    """Kimi-K2.5's MoonViT: positions on a grid, one merger."""
    hidden, heads = config.integer("vt_hidden_size"), config.integer("vt_num_attention_heads")
    merge = config.items("merge_kernel_size", 2) or [2, 2]
    if merge[0] != merge[1]:
        config.fail("merge_kernel_size", "a square")
    grid = (config.integer("init_pos_emb_height"), config.integer("init_pos_emb_width"))
    patch = config.integer("patch_size")
    merger = _merger(hidden, merge[0], config.integer("text_hidden_size", text_hidden), "layer")
    encoder = VisionEncoder(
        hidden=hidden,
        depth=config.integer("vt_num_hidden_layers"),
        heads=heads,
        head_dim=_head_dim(config, hidden, heads),
        intermediate=config.integer("vt_intermediate_size"),
        patch_elements=3 * patch**2,
        projections=merger,
        patch_bias=True,
        tables=(("positions", (*grid, hidden)),),
        norms_around=("final_norm",),
    )
    # Limits of the reference image processor: 16,384 patches in all, 512 a side.
    return encoder, NaViTResize(patch, merge[0], 16384, 512)


def minimax_m3(config: Config, text_hidden: int) -> Described:
    """MiniMax-M3's CLIP tower: patches projected one by one, then merged 2 x 2 by two more layers."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    compression = config.child("img_token_compression_config")
    merge = compression.integer("spatial_merge_size", 2)
    patch = config.integer("patch_size")
    middle = config.integer("projection_dim", text_hidden)
    encoder = VisionEncoder(
        hidden=hidden,
        depth=config.integer("num_hidden_layers"),
        heads=heads,
        head_dim=_head_dim(config, hidden, heads),
        intermediate=config.integer("intermediate_size"),
        patch_elements=config.integer("num_channels", 3) * compression.integer("temporal_patch_size", 2) * patch**2,
        projections=(
            Projection("projector_up", hidden, middle, rows="patches", activation=True),
            Projection("projector_down", middle, text_hidden, rows="patches"),
            Projection("merger_up", merge**2 * text_hidden, middle, activation=True),
            Projection("merger_down", middle, text_hidden),
        ),
        norms_around=("pre_norm",),
    )
    return encoder, SmartResize(patch, merge, *MINIMAX_M3_PIXELS)


def gemma3(config: Config, text_hidden: int) -> Described:
    """Gemma 3's SigLIP: every image at one size, average-pooled to 256 tokens, one projection without bias."""
    hidden, heads = config.integer("hidden_size", 1152), config.integer("num_attention_heads", 16)
    patch, side = config.integer("patch_size", 14), config.integer("image_size", 896)
    encoder = VisionEncoder(
        hidden=hidden,
        depth=config.integer("num_hidden_layers", 27),
        heads=heads,
        head_dim=_head_dim(config, hidden, heads),
        intermediate=config.integer("intermediate_size", 4304),
        patch_elements=_patch_elements(config, frames=False),
        projections=(Projection("projector", hidden, text_hidden, bias=False, norm="rms", norm_width=hidden),),
        patch_bias=True,
        rotary=False,
        tables=(("positions", ((side // patch) ** 2, hidden)),),
        norms_around=("post_norm",),
    )
    return encoder, FixedSize(patch, side, 256)


def gemma4(config: Config, text_hidden: int) -> Described:
    """Gemma 4: norms around both blocks and on heads, a gated MLP, patches pooled 3 x 3."""
    config.off("attention_bias")
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    if config.integer("num_key_value_heads", heads) != heads:
        config.fail("num_key_value_heads", f"{heads}, as many as attention heads")
    patch, pool = config.integer("patch_size"), config.integer("pooling_kernel_size")
    encoder = VisionEncoder(
        hidden=hidden,
        depth=config.integer("num_hidden_layers"),
        heads=heads,
        head_dim=config.integer("head_dim", hidden // heads),
        intermediate=config.integer("intermediate_size"),
        patch_elements=3 * patch**2,
        projections=(Projection("projector", hidden, text_hidden, bias=False),),
        bias=False,
        mlp="gated",
        norm="rms",
        norms_per_layer=4,
        qk_norm="head",
        tables=(("positions", (2, config.integer("position_embedding_size"), hidden)),),
    )
    return encoder, PooledBudget(patch, pool, config.integer("default_output_length", 280))


def glm4v(config: Config, text_hidden: int) -> Described:
    """GLM-4V: a gated MLP as wide as the output, a convolution that merges 2 x 2, and a gated projector."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_heads")
    merge, patch = config.integer("spatial_merge_size", 2), config.integer("patch_size")
    out, middle = config.integer("out_hidden_size", text_hidden), config.integer("intermediate_size")
    encoder = VisionEncoder(
        hidden=hidden,
        depth=config.integer("depth"),
        heads=heads,
        head_dim=_head_dim(config, hidden, heads),
        intermediate=out,
        patch_elements=_patch_elements(config),
        projections=(
            Projection("merge", merge**2 * hidden, out, norm="rms", norm_width=hidden),
            Projection("projector", out, out, bias=False),
            Projection("projector_gate_up", out, 2 * middle, bias=False, norm="layer", norm_width=out),
            Projection("projector_down", middle, out, bias=False),
        ),
        patch_bias=True,
        bias=config.boolean("attention_bias", False),
        mlp="gated",
        norm="rms",
        tables=(("positions", ((config.integer("image_size") // patch) ** 2, hidden)),),
        norms_around=("post_patch_norm",),
    )
    return encoder, SmartResize(patch, merge, *GLM4V_PIXELS)


def llama4(config: Config, text_hidden: int) -> Described:
    """Llama 4: tiles of one size, and patches shuffled into fewer tokens (``Llama4VisionModel``)."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    side, patch = config.integer("image_size"), config.integer("patch_size")
    patches = (side // patch) ** 2
    # Tokens as Llama4Processor counts them: patches over round(1 / ratio^2), 4 in published models.
    merged = round(1.0 / config.ratio("pixel_shuffle_ratio", 0.5) ** 2)
    middle = config.integer("projector_input_dim")
    config.settled(
        "multi_modal_projector_bias",
        "vision_feature_layer",
        "vision_feature_select_strategy",
        "projector_dropout",
    )
    out = config.integer("projector_output_dim")
    encoder = VisionEncoder(
        hidden=hidden,
        depth=config.integer("num_hidden_layers"),
        heads=heads,
        head_dim=_head_dim(config, hidden, heads),
        intermediate=config.integer("intermediate_size"),
        patch_elements=_patch_elements(config, frames=False),
        projections=(
            Projection("adapter_up", config.integer("intermediate_size"), middle, bias=False, activation=True),
            Projection("adapter_down", out, out, bias=False, activation=True),
            Projection("projector", config.integer("vision_output_dim"), text_hidden, bias=False),
        ),
        class_token=True,
        tables=(("positions", (patches + 1, hidden)),),
        norms_around=("pre_norm", "post_norm"),
    )
    return encoder, CanvasTiles(patch, side, LLAMA4_TILES, patches // merged)
