"""Llama and the dense models of its shape: Mistral, Qwen2, Qwen3, ERNIE 4.5, InternLM, GLM-4, ChatGLM, Command R."""

from __future__ import annotations

from tensor_cast.layers.attention import QKNorm
from tensor_cast.layers.decoder_layer import DecoderLayer, ParallelDecoderLayer
from tensor_cast.layers.feed_forward import FeedForward
from tensor_cast.models import parts
from tensor_cast.models.config import Config
from tensor_cast.models.spec import ModelSpec


def dense(
    config: Config,
    name: str,
    family: str,
    *,
    qkv_bias: bool,
    output_bias: bool,
    mlp_bias: bool = False,
    qk_norm: QKNorm = "none",
    tied_default: bool = False,
    default_kv_heads: int | None = None,
    default_head_dim: int | None = None,
    window: int | None = None,
    kinds: list[str] | None = None,
    sandwich_norm: bool = False,
) -> ModelSpec:
    """A stack of equal layers, windowed where ``kinds`` says so (everywhere, when a window is all that is given)."""
    count = config.integer("num_hidden_layers")
    kinds = kinds or [parts.SLIDING if window else parts.FULL] * count
    mlp = FeedForward(config.integer("hidden_size"), config.integer("intermediate_size"), bias=mlp_bias)

    def layer(kind: str) -> DecoderLayer:
        attention = parts.grouped_query_attention(
            config,
            default_kv_heads=default_kv_heads,
            default_head_dim=default_head_dim,
            qkv_bias=qkv_bias,
            output_bias=output_bias,
            qk_norm=qk_norm,
            window=window if kind == parts.SLIDING else None,
        )
        return DecoderLayer(attention.hidden, attention, mlp, sandwich_norm=sandwich_norm)

    return parts.spec(
        config,
        name=name,
        family=family,
        layers=parts.shared_objects(tuple(layer(kind) for kind in kinds)),
        vocabulary=parts.vocabulary(config, tied_default=tied_default),
    )


def llama(config: Config, name: str) -> ModelSpec:
    """Llama 1 to 3, Yi, CodeLlama and others that declare ``model_type: llama``."""
    bias = config.boolean("attention_bias", False)
    return dense(config, name, "llama", qkv_bias=bias, output_bias=bias, mlp_bias=config.boolean("mlp_bias", False))


def mistral(config: Config, name: str) -> ModelSpec:
    """Mistral and Ministral 3 dense models; a window, where there is one, is on every layer."""
    window = config.optional_integer("sliding_window")
    return dense(config, name, "mistral", qkv_bias=False, output_bias=False, default_kv_heads=8, window=window)


def qwen2(config: Config, name: str) -> ModelSpec:
    """Qwen2 and Qwen2.5: biases on queries, keys and values."""
    window, kinds = _qwen_windows(config)
    return dense(config, name, "qwen2", qkv_bias=True, output_bias=False, window=window, kinds=kinds)


def qwen3(config: Config, name: str) -> ModelSpec:
    """Qwen3 dense: an RMSNorm on every query and key head, no biases."""
    window, kinds = _qwen_windows(config)
    bias = config.boolean("attention_bias", False)
    return dense(
        config,
        name,
        "qwen3",
        qkv_bias=bias,
        output_bias=bias,
        qk_norm="head",
        default_head_dim=128,
        window=window,
        kinds=kinds,
    )


def _qwen_windows(config: Config) -> tuple[int | None, list[str]]:
    """Layers from ``max_window_layers`` on are windowed, if windows are in use at all."""
    count = config.integer("num_hidden_layers")
    window = config.optional_integer("sliding_window")
    config.settled("use_mrope", "max_window_layers")
    if not config.boolean("use_sliding_window", False) or window is None:
        return None, [parts.FULL] * count
    first = config.integer("max_window_layers", count, minimum=0)
    default = [parts.SLIDING if index >= first else parts.FULL for index in range(count)]
    return window, parts.layer_types(config, count, default)


def ernie45(config: Config, name: str) -> ModelSpec:
    """ERNIE 4.5 dense."""
    bias = config.boolean("use_bias", False)
    return dense(
        config,
        name,
        "ernie4_5",
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        tied_default=True,
        default_head_dim=128,
    )


def internlm(config: Config, name: str) -> ModelSpec:
    """InternLM 2 and 3: a joint query, key and value projection, biases where ``bias`` or ``qkv_bias`` says so."""
    bias = config.boolean("bias", False)
    return dense(
        config,
        name,
        "internlm",
        qkv_bias=config.boolean("qkv_bias", bias),
        output_bias=bias,
        mlp_bias=bias and config.text("model_type", "") == "internlm3",
    )


def glm4(config: Config, name: str) -> ModelSpec:
    """GLM-4-0414: norms around every block, biases on queries, keys and values alone."""
    return dense(
        config,
        name,
        "glm4",
        qkv_bias=config.boolean("attention_bias", False),
        output_bias=False,
        sandwich_norm=True,
        default_head_dim=128,
    )


def glm(config: Config, name: str) -> ModelSpec:
    """GLM-4 as converted from ChatGLM."""
    bias = config.boolean("attention_bias", False)
    return dense(config, name, "glm", qkv_bias=bias, output_bias=False, default_head_dim=128)


def cohere(config: Config, name: str) -> ModelSpec:
    """Command R: attention and MLP side by side on one LayerNorm without bias; tied, scaled logits."""
    if config.boolean("use_qk_norm", False):
        raise config.error("use_qk_norm is true: norms of whole query and key heads are not modelled.")
    config.settled("logit_scale")
    bias = config.boolean("attention_bias", False)
    attention = parts.grouped_query_attention(config, qkv_bias=bias, output_bias=bias)
    mlp = FeedForward(attention.hidden, config.integer("intermediate_size"))
    layer = ParallelDecoderLayer(attention.hidden, attention, mlp, norm="layer_without_bias")
    return parts.spec(
        config,
        name=name,
        family="cohere",
        layers=(layer,) * config.integer("num_hidden_layers"),
        vocabulary=parts.vocabulary(config, tied_default=True),
        norm="layer_without_bias",
    )
