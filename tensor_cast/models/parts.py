"""Pieces of config reading that families share."""

from __future__ import annotations

from tensor_cast.dtypes import ACTIVATION_DTYPES, canonical_dtype
from tensor_cast.layers.attention import GroupedQueryAttention, OutputGate, QKNorm
from tensor_cast.layers.decoder_layer import DecoderLayer
from tensor_cast.layers.embedding import Vocabulary
from tensor_cast.layers.hyper_connection import HyperConnection
from tensor_cast.layers.indexer import BlockIndexer, TokenIndexer
from tensor_cast.layers.mla import LatentAttention
from tensor_cast.layers.norm import NormKind
from tensor_cast.models.checkpoint import ModuleNames, UnknownFormatError, checkpoint_quantization
from tensor_cast.models.config import Config
from tensor_cast.models.spec import ModelSpec

SLIDING, FULL, CHUNKED, LINEAR = "sliding_attention", "full_attention", "chunked_attention", "linear_attention"


def grouped_query_attention(
    config: Config,
    *,
    default_kv_heads: int | None = None,
    default_head_dim: int | None = None,
    qkv_bias: bool = False,
    output_bias: bool = False,
    qk_norm: QKNorm = "none",
    window: int | None = None,
    chunk: int | None = None,
    sinks: bool = False,
    output_gate: OutputGate = "none",
    v_head_dim: int | None = None,
    indexer: BlockIndexer | None = None,
) -> GroupedQueryAttention:
    """Attention from the usual keys. ``head_dim`` is the config's own; absent, hidden over heads."""
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    kv_heads = config.integer("num_key_value_heads", default_kv_heads or heads)
    if heads % kv_heads:
        config.fail("num_key_value_heads", f"a divisor of the {heads} attention heads")
    head_dim = config.optional_integer("head_dim") or default_head_dim
    if head_dim is None:
        if hidden % heads:
            config.fail("hidden_size", f"a multiple of the {heads} attention heads, or a head_dim beside it")
        head_dim = hidden // heads
    return GroupedQueryAttention(
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        qk_norm=qk_norm,
        rope_dim=_rope_dim(config, head_dim),
        window=window,
        chunk=chunk,
        sinks=sinks,
        output_gate=output_gate,
        v_head_dim=v_head_dim,
        indexer=indexer,
    )


def _rope_dim(config: Config, head_dim: int) -> int:
    rotary = config.optional_integer("rotary_dim")
    owner = config
    # Newer configs keep the factor inside rope_parameters.
    if not config.has("partial_rotary_factor") and isinstance(config.values.get("rope_parameters"), dict):
        owner = config.child("rope_parameters")
    factor = owner.number("partial_rotary_factor", 1.0)
    if not 0.0 <= factor <= 1.0:
        owner.fail("partial_rotary_factor", "a number from 0 to 1")
    return int(head_dim * factor) if rotary is None else min(rotary, head_dim)


def latent_attention(
    config: Config,
    *,
    default_v_dim: int | None = None,
    rotary: bool = True,
    top_k: int | None = None,
    indexer: TokenIndexer | None = None,
) -> LatentAttention:
    """Multi-head latent attention from DeepSeek's keys. A null ``q_lora_rank`` is a single query projection."""
    # num_key_value_heads equals the heads in every MLA config and decides nothing; nor does head_dim, which is derived.
    config.settled("num_key_value_heads", "head_dim", "qk_head_dim")
    return LatentAttention(
        hidden=config.integer("hidden_size"),
        heads=config.integer("num_attention_heads"),
        q_lora_rank=config.optional_integer("q_lora_rank"),
        kv_lora_rank=config.integer("kv_lora_rank"),
        nope_dim=config.integer("qk_nope_head_dim"),
        rope_dim=config.integer("qk_rope_head_dim"),
        v_dim=config.integer("v_head_dim") if default_v_dim is None else config.integer("v_head_dim", default_v_dim),
        bias=config.boolean("attention_bias", False),
        rotary=rotary,
        top_k=top_k,
        indexer=indexer,
    )


def vocabulary(
    config: Config,
    *,
    tied_default: bool = False,
    scaled: bool = False,
    softcap: bool = False,
    head_bias: bool = False,
) -> Vocabulary:
    """Embedding and head; ``tied_default`` is the reference class's own default."""
    return Vocabulary(
        size=config.integer("vocab_size"),
        hidden=config.integer("hidden_size"),
        tied=config.boolean("tie_word_embeddings", tied_default),
        scaled=scaled,
        softcap=softcap,
        head_bias=head_bias,
    )


def layer_types(config: Config, layers: int, default: list[str]) -> list[str]:
    """The kind of attention of each layer, from ``layer_types`` or the family's rule."""
    given = config.items("layer_types", layers)
    kinds = default if given is None else given
    known = (SLIDING, FULL, CHUNKED, LINEAR)
    if any(kind not in known for kind in kinds):
        config.fail("layer_types", f"entries among {', '.join(known)}")
    return kinds


def shared_objects(layers: tuple[DecoderLayer, ...]) -> tuple[DecoderLayer, ...]:
    """The same layers, equal ones as one object, so that builds need not compare them again."""
    first: dict[DecoderLayer, DecoderLayer] = {}
    return tuple(first.setdefault(layer, layer) for layer in layers)


def state_dtype(config: Config, key: str) -> str:
    """Format of a recurrent state; float32, in which reference implementations accumulate, where it is not said."""
    name = config.text(key, "float32")
    dtype = canonical_dtype(name)
    if dtype not in ACTIVATION_DTYPES:
        config.fail(key, f"one of {', '.join(ACTIVATION_DTYPES)}")
    return dtype


def model_dtype(config: Config) -> str:
    """The checkpoint's dtype; bfloat16 where it does not say, as float32 checkpoints are served in bfloat16 too."""
    dtype = _stated_dtype(config)
    return dtype if dtype in ACTIVATION_DTYPES and dtype != "float32" else "bfloat16"


def dtype_note(config: Config) -> str | None:
    """What is to be said where ``model_dtype`` is not what the config says; ``None`` where it is."""
    stated = _stated_dtype(config)
    if stated == model_dtype(config):
        return None
    says = "names no dtype" if stated is None else f"says {stated}"
    return f"The config {says}: bfloat16 is assumed for hidden states and unquantised weights (--dtype sets another)."


def _stated_dtype(config: Config) -> str | None:
    name = config.text("dtype", config.text("torch_dtype", ""))
    return canonical_dtype(name) if name else None


def spec(
    config: Config,
    *,
    name: str,
    family: str,
    layers: tuple[DecoderLayer, ...],
    vocabulary: Vocabulary,
    mtp_layer: DecoderLayer | None = None,
    mtp_modules: int = 0,
    ignored: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
    norm: NormKind = "rms",
    hyper: HyperConnection | None = None,
    modules: ModuleNames | None = None,
) -> ModelSpec:
    """The finished description, once a family has read all it knows of ``config``."""
    checkpoint, problem = None, None
    try:
        checkpoint = checkpoint_quantization(config, modules or ModuleNames())
    except UnknownFormatError as error:
        problem = str(error)
        notes = (*notes, f"The checkpoint's own quantisation is not known and left out: {problem}")
    return ModelSpec(
        name=name,
        model_type=config.text("model_type", family),
        family=family,
        hidden=config.integer("hidden_size"),
        vocabulary=vocabulary,
        layers=layers,
        dtype=model_dtype(config),
        dtype_note=dtype_note(config),
        max_position_embeddings=config.optional_integer("max_position_embeddings"),
        mtp_layer=mtp_layer,
        mtp_modules=mtp_modules,
        quantization=None if checkpoint is None else checkpoint.words,
        ignored_keys=(*ignored, *config.ignored()),
        read_keys=config.used(),
        notes=notes,
        norm=norm,
        hyper=hyper,
        checkpoint=checkpoint,
        checkpoint_problem=problem,
    )
