"""Multimodal configs: a language model's config and a vision encoder's, nested or side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tensor_cast.layers.vision import VisionEncoder
from tensor_cast.models.config import Config
from tensor_cast.models.image_rules import ImageRule
from tensor_cast.models.spec import ModelSpec

VisionReader = Callable[[Config, int], tuple[VisionEncoder, ImageRule | None]]

# Keys of the whole that the language model's config may leave to the wrapper.
INHERITED = ("tie_word_embeddings", "quantization_config", "torch_dtype", "dtype")
# Prompt assembly: placeholders, sizes that the image rule knows already, and what videos and audio add to a prompt.
SETTLED = (
    "text_config",
    "vision_config",
    "audio_config",
    "language_model_only",
    "projector_hidden_act",
    "projector_hidden_size",
    "multimodal_projector_bias",
    "image_grid_pinpoints",
    "image_seq_length",
    "img_token_compression_config",
    "mm_tokens_per_image",
    "num_reward_heads",
    "process_image_mode",
    "vision_feature_layer",
    "vision_feature_select_strategy",
    "vision_soft_tokens_per_image",
    "use_unified_vision_chunk",
    "video_placeholder",
    "ignore_index",
)


def multimodal(
    config: Config,
    name: str,
    language_model: Callable[[Config, str], ModelSpec],
    vision: VisionReader,
    *,
    counted: bool,
    text_key: str = "text_config",
) -> ModelSpec:
    """The language model of a wrapper with its encoder.

    ``counted``: the reference class's parameters include the encoder. A config without ``text_key`` keeps the
    language model's keys at its top (Qwen2-VL); without ``vision_config`` the model is its language model.
    """
    nested = config.has(text_key)
    inner = config.child(text_key) if nested else config
    if nested:
        inherited = {key: config.values[key] for key in INHERITED if config.values.get(key) is not None}
        tied = inherited.pop("tie_word_embeddings", None)
        inner.values = {**inherited, **inner.values}
        if tied is not None:
            # The class that owns the head is the wrapper's, so its word counts.
            inner.values = {**inner.values, "tie_word_embeddings": tied}
    config.settled(*SETTLED, *INHERITED, text_key)
    spec = language_model(inner, name)
    spec = replace(spec, model_type=config.text("model_type", spec.model_type))
    outer = config.child("vision_config") if config.has("vision_config") else None
    # Encoders may read the config around theirs, so what it ignores is known after them.
    described = None if outer is None else vision(outer, spec.hidden)
    if nested:
        spec = replace(
            spec,
            ignored_keys=(*config.ignored(), *(f"{text_key}.{key}" for key in spec.ignored_keys)),
            read_keys=(
                *(key for key in config.used() if key != "model_type"),
                *(f"{text_key}.{key}" for key in spec.read_keys),
            ),
        )
    if outer is None or described is None:
        return spec
    encoder, rule = described
    ignored = tuple(f"vision_config.{key}" for key in outer.ignored() if key not in VISION_SETTLED)
    notes = spec.notes
    if config.has("audio_config"):
        notes += ("An audio encoder (audio_config) is left out.",)
    return replace(
        spec,
        vision=encoder,
        image_rule=rule,
        vision_in_total=counted,
        ignored_keys=(*spec.ignored_keys, *ignored),
        read_keys=(*spec.read_keys, *(f"vision_config.{key}" for key in outer.used())),
        notes=notes,
    )


# Of encoders: interpolation and rotary details, initial values, and switches that published models leave off.
VISION_SETTLED = frozenset(
    [
        "attn_bias",
        "fullatt_block_indexes",
        "global_head_dim",
        "hidden_act",
        "image_size",
        "init_pos_emb_time",
        "initializer_factor",
        "layer_norm_eps",
        "max_position_embeddings",
        "merge_type",
        "mm_hidden_size",
        "mm_projector_type",
        "out_hidden_size",
        "pos_emb_type",
        "position_embedding_type",
        "projector_hidden_act",
        "projector_ln_eps",
        "rope_mode",
        "spatial_patch_size",
        "standardize",
        "tokens_per_second",
        "use_clipped_linears",
        "video_attn_type",
        "video_seq_length",
        "image_seq_length",
        "vision_segment_max_frames",
        "vision_use_head",
        "vocab_size",
        "window_size",
    ]
)
