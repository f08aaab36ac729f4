"""DeepSeek-V4: windows beside compressed key-values, hyper-connections, experts in every layer."""

from __future__ import annotations

from dataclasses import replace

from tensor_cast.layers.compressed_attention import CompressedAttention, Compressor, EntryIndexer
from tensor_cast.layers.hyper_connection import HyperConnectedLayer, HyperConnection
from tensor_cast.models import parts
from tensor_cast.models.checkpoint import ModuleNames
from tensor_cast.models.config import Config
from tensor_cast.models.deepseek import mixture
from tensor_cast.models.spec import ModelSpec
from tensor_cast.quantization import LinearScheme

MODULES = ModuleNames(
    attention=("attn.wq_a",),
    attention_output=("attn.wo_b",),
    mlp=("ffn.w1",),
    shared_experts=("ffn.shared_experts.w1",),
    experts=("ffn.experts.0.w1", "ffn.experts"),
)
# Published in FP4 with an E8M0 scale for 32 values, multiplied with FP8 activations (``expert_dtype`` fp4).
FP4_EXPERTS = LinearScheme(
    "W4A8 FP4", "fp4", "fp8", "fp8", dynamic=True, granularity="group", group_size=32, scale_dtype="e8m0"
)
# A layer with this ratio chooses among its entries with an indexer; with the larger one it attends to all of them.
SPARSE_RATIO, DENSE_RATIO = 4, 128


def deepseek_v4(config: Config, name: str) -> ModelSpec:
    """DeepSeek-V4 Flash and Pro."""
    hidden, moe = config.integer("hidden_size"), mixture(config)
    count = config.integer("num_hidden_layers")
    modules = config.integer("num_nextn_predict_layers", 0, minimum=0)
    ratios = _ratios(config, count)
    hyper = HyperConnection(hidden, config.integer("hc_mult", 4), config.integer("hc_sinkhorn_iters", 20))
    # One key-value head, tables of hashed routing, and the rotary base of compressed entries change no cost here.
    config.settled("num_key_value_heads", "num_hash_layers", "compress_rope_theta", "hc_eps")
    config.off("attention_bias", "mlp_bias")
    expert_dtype = config.text("expert_dtype", "")
    kinds = {ratio: HyperConnectedLayer(hidden, _attention(config, ratio), moe, hyper=hyper) for ratio in set(ratios)}
    spec = parts.spec(
        config,
        name=name,
        family="deepseek_v4",
        layers=tuple(kinds[ratio] for ratio in ratios[:count]),
        vocabulary=parts.vocabulary(config),
        mtp_layer=kinds[ratios[-1]] if modules else None,
        mtp_modules=modules,
        hyper=hyper,
        modules=MODULES,
    )
    if expert_dtype == "fp4" and spec.checkpoint is not None and spec.checkpoint.experts is None:
        checkpoint = replace(
            spec.checkpoint, experts=FP4_EXPERTS, words=f"{spec.checkpoint.words}, experts {FP4_EXPERTS.name}"
        )
        spec = replace(spec, checkpoint=checkpoint, quantization=checkpoint.words)
    return spec


def _ratios(config: Config, count: int) -> list[int]:
    """Tokens an entry of each layer, drafting layers after the others; 0 for a window alone."""
    ratios = config.items("compress_ratios")
    if ratios is None:
        raise config.error("compress_ratios is missing, which says how each layer compresses its keys and values.")
    if len(ratios) < count or any(ratio not in (0, SPARSE_RATIO, DENSE_RATIO) for ratio in ratios):
        config.fail("compress_ratios", f"0, {SPARSE_RATIO} or {DENSE_RATIO} for each of the {count} layers")
    return ratios


def _attention(config: Config, ratio: int) -> CompressedAttention:
    hidden, head_dim = config.integer("hidden_size"), config.integer("head_dim")
    q_lora_rank = config.integer("q_lora_rank")
    compressor = indexer = None
    overlap = ratio == SPARSE_RATIO
    if ratio:
        compressor = Compressor(hidden, head_dim, ratio, overlap)
    if overlap:
        keys = Compressor(hidden, config.integer("index_head_dim"), ratio, overlap)
        indexer = EntryIndexer(q_lora_rank, config.integer("index_n_heads"), config.integer("index_topk"), keys)
    return CompressedAttention(
        hidden=hidden,
        heads=config.integer("num_attention_heads"),
        head_dim=head_dim,
        rope_dim=config.integer("qk_rope_head_dim"),
        q_lora_rank=q_lora_rank,
        o_groups=config.integer("o_groups"),
        o_lora_rank=config.integer("o_lora_rank"),
        window=config.integer("sliding_window"),
        compressor=compressor,
        indexer=indexer,
    )
