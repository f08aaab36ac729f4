"""Figures that follow from a structure in use: shards, scales, causal FLOPs, experts touched, lower bounds."""

from __future__ import annotations

import pytest

from tensor_cast.deployment import Deployment
from tensor_cast.layers.embedding import padded_vocabulary
from tensor_cast.layers.expert_load import expected_distinct
from tensor_cast.models import load_spec
from tensor_cast.models.decoder import build
from tensor_cast.models.facts import model_facts
from tensor_cast.ops import Attention, Collective, GroupedMatMul
from tensor_cast.quantization import LINEAR_SCHEMES
from tensor_cast.workload import TextWorkload


def decode(queries: int = 64) -> TextWorkload:
    return TextWorkload(num_queries=queries, query_length=1, context_length=1000, decode=True)


def test_routed_experts_of_a_rank() -> None:
    # 256 / 32 = 8 experts a rank in 58 layers, 3 x 7,168 x 2,048 weights each, FP8 without its scales.
    deployment = Deployment(world_size=32, tp_size=1, dp_size=32, ep_size=32, quantize_linear="FP8")
    graph = build(load_spec("deepseek-ai/DeepSeek-V3"), decode(), deployment).graph
    experts = {
        tensor: block.weight_copies * float(tensor.bytes)
        for block in graph.blocks
        for node in block.nodes
        if isinstance(node.op, GroupedMatMul)
        for tensor in node.op.inputs
        if tensor.role == "weight" and tensor.dtype == "fp8"
    }
    assert sum(experts.values()) == 8 * 58 * 44_040_192 == 20_434_649_088


def test_block_scales_round_up() -> None:
    # ceil(7168 / 128) x ceil(576 / 128): the last row of blocks is half full.
    assert LINEAR_SCHEMES["FP8"].scale_count(7168, 576) == 56 * 5


def test_a_split_vocabulary_is_padded() -> None:
    assert padded_vocabulary(50257, 8) == 50304
    assert padded_vocabulary(50257, 8) // 8 == 6288


def test_ring_all_reduce_of_a_decode() -> None:
    # 2 x 7 / 8 of 64 x 8,192 bfloat16 values.
    graph = build(load_spec("meta-llama/Llama-3.1-70B"), decode(), Deployment(world_size=8, tp_size=8)).graph
    reduced = {
        float(n.op.sent_bytes) for _, n in graph.nodes() if isinstance(n.op, Collective) and n.op.kind == "all_reduce"
    }
    assert reduced == {2 * 7 / 8 * 64 * 8192 * 2} == {1_835_008.0}


def test_causal_attention_of_a_prefill() -> None:
    # 4 FLOPs x 32 layers x 4,096 channels for each of 8,192 x 8,193 / 2 pairs.
    graph = build(
        load_spec("meta-llama/Llama-3.1-8B"), TextWorkload(num_queries=1, query_length=8192), Deployment()
    ).graph
    flops = sum(
        block.count * float(node.op.matrix_flops) for block, node in graph.nodes() if isinstance(node.op, Attention)
    )
    assert flops == 4 * 32 * 4096 * 8192 * 8193 // 2 == 17_594_333_528_064


@pytest.mark.parametrize(("batch", "experts"), [(1, 8.0), (64, 125.942349)])
def test_experts_that_a_batch_touches(batch: int, experts: float) -> None:
    # 128 (1 - (1 - 8 / 128)^B).
    assert expected_distinct(128, 8, float(batch)) == pytest.approx(experts, abs=1e-6)


def test_bytes_in_both_units() -> None:
    size = model_facts(load_spec("Qwen/Qwen3-8B")).weight_bytes
    assert size == 16_381_470_720
    assert (round(size / 1e9, 3), round(size / 2**30, 3)) == (16.381, 15.256)


def test_a_decode_reads_every_weight_at_least_once() -> None:
    # All products' weights, the head among them and the embedding not: 15,009,316,864 bytes.
    graph = build(load_spec("meta-llama/Llama-3.1-8B"), decode(1), Deployment()).graph
    read = sum(
        block.count * float(tensor.bytes)
        for block, node in graph.nodes()
        if node.op.category == "MatMul"
        for tensor in node.op.inputs
        if tensor.role == "weight"
    )
    assert read == 15_009_316_864
    assert read / 3.35e12 == pytest.approx(4.4804e-3, rel=1e-4)
