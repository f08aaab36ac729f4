"""Recurrent layers: FLOPs of both forms, state traffic, and what grows with what."""

from __future__ import annotations

import pytest

from tensor_cast.deployment import Deployment
from tensor_cast.layers.linear_attention import (
    GatedDeltaNet,
    Mamba2,
    delta_rule_flops_per_token,
    delta_rule_step_flops,
    scan_flops_per_token,
    scan_step_flops,
)
from tensor_cast.models import load_spec
from tensor_cast.models.decoder import build
from tensor_cast.ops import StateAttention
from tensor_cast.workload import TextWorkload


def core(model: str, workload: TextWorkload) -> StateAttention:
    """The recurrence of the first layer that has one."""
    graph = build(load_spec(model), workload, Deployment()).graph
    return next(node.op for _, node in graph.nodes() if isinstance(node.op, StateAttention))


def test_a_verified_draft_writes_a_state_for_each_token() -> None:
    workload = TextWorkload(num_queries=8, query_length=4, context_length=4096, decode=True, num_mtp_tokens=3)
    op = core("Qwen/Qwen3.5-27B", workload)
    # One state read and four written for each of 8 sequences; rows as in a decode of one token, 4 a sequence.
    assert op.bytes == (1 + 4) * 8 * 48 * 128 * 128 * 4 + 8 * 4 * ((10_240 + 6_144) * 2 + 2 * 48 * 4)


def decode(queries: int, context: int) -> TextWorkload:
    return TextWorkload(num_queries=queries, query_length=1, context_length=context, decode=True)


def test_delta_rule_flops_by_hand() -> None:
    # C = 64, keys and values of 128, for 64 tokens: K K', W, Q K' 2 C^2 128 each; U and its masked product alike; three
    # products with the state 2 C 128^2 each; an inverse of C^3 / 3.
    chunk = 5 * 2 * 64**2 * 128 + 3 * 2 * 64 * 128**2 + 64**3 / 3
    assert delta_rule_flops_per_token(128, 128) == pytest.approx(chunk / 64, rel=1e-15)
    assert delta_rule_step_flops(128, 128) == 7 * 128 * 128


def test_scan_flops_by_hand() -> None:
    # Chunks of 128, 64 channels, 128 states, 8 heads a group.
    chunk = 2 * 128**2 * 128 / 8 + 2 * 128**2 * 64 + 2 * 2 * 128 * 64 * 128
    assert scan_flops_per_token(64, 128, 8, 128) == pytest.approx(chunk / 128, rel=1e-15)
    assert scan_step_flops(64, 128) == 5 * 64 * 128


@pytest.mark.parametrize("model", ["Qwen/Qwen3.5-27B", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"])
def test_a_decode_costs_the_same_at_any_context(model: str) -> None:
    near, far = core(model, decode(8, 16)), core(model, decode(8, 100_000))
    assert (near.vector_flops, near.bytes, near.matrix_flops) == (far.vector_flops, far.bytes, 0.0)
    assert near.name.startswith("recurrent_")


def test_a_decode_reads_and_writes_each_state_once() -> None:
    op = core("Qwen/Qwen3.5-27B", decode(8, 4096))
    state = 8 * 48 * 128 * 128 * 4
    # Beside the states: queries, keys and values of 10,240 channels and the output of 6,144 in bfloat16, and for each
    # of 48 heads a decay and a strength in float32.
    assert op.bytes == 2 * state + 8 * (10_240 + 6_144) * 2 + 8 * 2 * 48 * 4
    assert op.vector_flops == 8 * 48 * 7 * 128 * 128


def test_a_prefill_is_linear_in_its_length() -> None:
    short = core("Qwen/Qwen3.5-27B", TextWorkload(num_queries=2, query_length=1024))
    long = core("Qwen/Qwen3.5-27B", TextWorkload(num_queries=2, query_length=8192))
    assert long.matrix_flops == 8 * short.matrix_flops
    assert long.matrix_flops == 2 * 8192 * 48 * delta_rule_flops_per_token(128, 128)
    assert long.name == "chunk_gated_delta_rule"


def test_caches() -> None:
    delta = GatedDeltaNet(256, 2, 4, 32, 64, 4, state_dtype="float32", conv_dtype="bfloat16")
    assert delta.cache(1).state_bytes == 4 * 32 * 64 * 4 + (2 * 2 * 32 + 4 * 64) * 3 * 2
    assert delta.cache(2).state_bytes == delta.cache(1).state_bytes / 2
    assert delta.cache(1).bytes_per_sequence(10_000, "bfloat16") == 0
    mamba = Mamba2(256, 8, 32, 2, 16, 4)
    assert mamba.cache(1).state_bytes == 8 * 32 * 16 * 4 + (8 * 32 + 2 * 2 * 16) * 3 * 2
