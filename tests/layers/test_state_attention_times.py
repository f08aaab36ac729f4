"""The gated delta rule on an Atlas A2 against published times of the same kernels."""

from __future__ import annotations

import pytest

from tensor_cast.devices import get_device
from tensor_cast.layers.linear_attention import delta_rule_flops_per_token
from tensor_cast.ops import StateAttention, Tensor
from tensor_cast.performance_model.roofline import compute_time, cost_key
from tensor_cast.quantity import Quantity

DEVICE = get_device("ATLAS_800_A2_376T_64G")
HEAD = 128


def state_attention(sequences: int, tokens: int, heads: int, *, decode: bool) -> StateAttention:
    """``tokens`` in all over ``sequences``; only states and values are streamed."""
    work: Quantity = 0.0 if decode else tokens * heads * delta_rule_flops_per_token(HEAD, HEAD)
    state = Tensor((sequences, heads, HEAD, HEAD), "float32", "cache")
    return StateAttention(
        name="gated_delta_rule",
        part="attention.core",
        inputs=(Tensor((tokens, 3 * heads * HEAD), "bfloat16"), state),
        outputs=(Tensor((tokens, heads * HEAD), "bfloat16"), state),
        matrix_dtype="bfloat16",
        batch=sequences,
        query_length=tokens / sequences,
        kv_length=tokens / sequences,
        heads=heads,
        kv_heads=heads,
        qk_dim=HEAD,
        v_dim=HEAD,
        pairs=0.0,
        cache_bytes=state.bytes,
        decode=decode,
        matrix_work=work,
        vector_work=0.0,
    )


# github.com/huawei-csl/megagdn-pto, outputs/data/pto_pipeline_latency.json: milliseconds of the Triton chain on a
# 910B2, 16 sequences; about 4.2 ms of each are the host's, which a pipeline of launches hides.
@pytest.mark.parametrize(
    ("heads", "tokens", "measured_ms"),
    [(16, 32768, 17.63), (16, 131072, 58.66), (32, 65536, 58.01), (48, 32768, 44.39), (64, 16384, 30.94)],
)
def test_a_prefill_takes_what_the_triton_chain_took(heads: int, tokens: int, measured_ms: float) -> None:
    op = state_attention(16, tokens, heads, decode=False)
    assert cost_key(op, DEVICE) == "attention_prefill_state"
    assert compute_time(op, DEVICE).busy_s == pytest.approx((measured_ms - 4.2) * 1e-3, rel=0.03)


# github.com/vllm-project/vllm-ascend/pull/12870: microseconds of a decode step on a 910B, of which the gate takes
# about 12, its launch included.
@pytest.mark.parametrize(("sequences", "measured_us"), [(1, 42.6), (4, 61.0), (8, 76.4), (16, 103.9)])
def test_a_decode_takes_what_vllm_ascend_took(sequences: int, measured_us: float) -> None:
    op = state_attention(sequences, sequences, 32, decode=True)
    assert cost_key(op, DEVICE) == "attention_decode_state"
    assert compute_time(op, DEVICE).total_s == pytest.approx((measured_us - 12) * 1e-6, rel=0.15)
