"""DeepSeek V2 to V3.2 and R1, Kimi K2, GLM-5, MiniCPM3: latent attention, alone or with a lightning indexer."""

from __future__ import annotations

from collections.abc import Sequence

from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.layers.feed_forward import FeedForward
from tensor_cast.layers.indexer import TokenIndexer
from tensor_cast.layers.mla import LatentAttention
from tensor_cast.layers.moe import MixtureOfExperts
from tensor_cast.models import parts
from tensor_cast.models.config import Config
from tensor_cast.models.moe import mixture_of_experts
from tensor_cast.models.spec import ModelSpec


def mixture(config: Config) -> MixtureOfExperts:
    """Routed and shared experts of ``moe_intermediate_size``."""
    intermediate = config.integer("moe_intermediate_size")
    return mixture_of_experts(
        config,
        config.integer("n_routed_experts"),
        config.integer("num_experts_per_tok"),
        intermediate,
        shared_intermediate=config.integer("n_shared_experts", 0, minimum=0) * intermediate,
    )


def _stack(config: Config, name: str, family: str, attention: Sequence[LatentAttention]) -> ModelSpec:
    """First layers dense, then experts every ``moe_layer_freq`` layers; ``attention`` of each layer."""
    hidden, moe = config.integer("hidden_size"), mixture(config)
    first = config.integer("first_k_dense_replace", 0, minimum=0)
    every = config.integer("moe_layer_freq", 1)
    mlp = FeedForward(hidden, config.integer("intermediate_size"))
    layers = tuple(
        DecoderLayer(hidden, block, moe if index >= first and index % every == 0 else mlp)
        for index, block in enumerate(attention)
    )
    modules = config.integer("num_nextn_predict_layers", 0, minimum=0)
    own_indexer = next((block for block in attention if block.indexer is not None), attention[-1])
    return parts.spec(
        config,
        name=name,
        family=family,
        layers=parts.shared_objects(layers),
        vocabulary=parts.vocabulary(config),
        mtp_layer=DecoderLayer(hidden, own_indexer, moe) if modules else None,
        mtp_modules=modules,
    )


def deepseek(config: Config, name: str) -> ModelSpec:
    """All models that declare ``deepseek_v2``, ``deepseek_v3`` or ``kimi_k2``, and GLM-4.7-Flash."""
    config.settled("mlp_layer_types", "partial_rotary_factor")
    attention = parts.latent_attention(config)
    return _stack(config, name, "deepseek", [attention] * config.integer("num_hidden_layers"))


def _indexer(config: Config) -> TokenIndexer:
    return TokenIndexer(
        hidden=config.integer("hidden_size"),
        q_lora_rank=config.integer("q_lora_rank"),
        heads=config.integer("index_n_heads"),
        dim=config.integer("index_head_dim"),
        rope_dim=config.integer("qk_rope_head_dim"),
        top_k=config.integer("index_topk"),
    )


def deepseek_v32(config: Config, name: str) -> ModelSpec:
    """DeepSeek-V3.2: an indexer in every layer."""
    attention = parts.latent_attention(config, top_k=config.integer("index_topk"), indexer=_indexer(config))
    return _stack(config, name, "deepseek_v32", [attention] * config.integer("num_hidden_layers"))


def glm_moe_dsa(config: Config, name: str) -> ModelSpec:
    """GLM-5, 5.1 and 5.2: DeepSeek-V3.2's structure; in 5.2 most layers reuse the choice of the indexer before them."""
    count = config.integer("num_hidden_layers")
    full = parts.latent_attention(config, top_k=config.integer("index_topk"), indexer=_indexer(config))
    shared = parts.latent_attention(config, top_k=config.integer("index_topk"))
    scheduled = _indexer_types(config, count)
    kinds = config.items("indexer_types", count) or scheduled
    config.off("mlp_bias")
    if any(kind not in ("full", "shared") for kind in kinds) or kinds[0] != "full":
        config.fail("indexer_types", "full or shared for every layer, the first full")
    # Said again by first_k_dense_replace, or of no weight: index_share_for_mtp_iteration lets drafts reuse a choice.
    config.settled(
        "mlp_layer_types",
        "layer_types",
        "num_experts",
        "index_share_for_mtp_iteration",
        "indexer_rope_interleave",
        "moe_router_dtype",
    )
    return _stack(config, name, "glm_moe_dsa", [full if kind == "full" else shared for kind in kinds])


def _indexer_types(config: Config, count: int) -> list[str]:
    """The schedule that older configs give: a pattern of F and S, or every ``index_topk_freq`` layers."""
    every = config.integer("index_topk_freq", 1)
    offset = config.integer("index_skip_topk_offset", 2, minimum=0)
    if config.has("index_topk_pattern"):
        pattern = config.text("index_topk_pattern")
        if len(pattern) < count or set(pattern) - {"F", "S"}:
            config.fail("index_topk_pattern", f"{count} letters F or S")
        return ["full" if letter == "F" else "shared" for letter in pattern[:count]]
    return ["full" if max(index - offset + 1, 0) % every == 0 else "shared" for index in range(count)]


def minicpm3(config: Config, name: str) -> ModelSpec:
    """MiniCPM3: latent attention over dense layers; scaled embeddings, residuals and logits."""
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    attention = parts.latent_attention(config, default_v_dim=hidden // heads)
    mlp = FeedForward(hidden, config.integer("intermediate_size"))
    config.settled("scale_emb", "scale_depth", "dim_model_base")
    return parts.spec(
        config,
        name=name,
        family="minicpm3",
        layers=(DecoderLayer(hidden, attention, mlp),) * config.integer("num_hidden_layers"),
        vocabulary=parts.vocabulary(config, tied_default=True, scaled=True),
    )
