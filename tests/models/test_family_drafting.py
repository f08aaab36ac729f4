"""Speculative decoding: MTP layers and draft models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensor_cast.deployment import Deployment
from tensor_cast.errors import ModelingError
from tensor_cast.models import load_spec
from tensor_cast.simulator import simulate
from tensor_cast.workload import TextWorkload

BASE = load_spec("Qwen/Qwen3-8B")
PAIR = replace(BASE, draft=load_spec("Qwen/Qwen3-0.6B"))


def decode(**options: object) -> TextWorkload:
    return TextWorkload(num_queries=4, context_length=1000, decode=True, **options)  # type: ignore[arg-type]


def test_expected_tokens() -> None:
    # 1 + 0.8 + 0.8^2 + 0.8^3 = (1 - 0.8^4) / 0.2.
    for drafted in ("num_mtp_tokens", "num_draft_tokens"):
        step = decode(query_length=4, mtp_acceptance_rate=(0.8,), **{drafted: 3})
        assert step.tokens_per_sequence == pytest.approx(2.952, rel=1e-12)
    assert decode(query_length=4, num_draft_tokens=3, acceptance_length=2.5).tokens_per_sequence == 2.5


def test_a_draft_model_runs_once_a_drafted_token() -> None:
    def estimate(drafts: int) -> float:
        step = simulate(PAIR, device="H100_SXM_80GB", workload=decode(query_length=5, num_draft_tokens=drafts))
        assert step.memory.weights_bytes == (8_190_735_360 + 596_049_920) * 2
        # 147,456 bytes a token of Qwen3-8B and 28 layers of the draft's 8 heads of 128; 1,005 tokens.
        assert step.memory.kv_cache_bytes == 4 * 1005 * (147_456 + 28 * 2 * 8 * 128 * 2)
        return float(step.total_time_s)

    plain = float(simulate(BASE, device="H100_SXM_80GB", workload=decode(query_length=5)).total_time_s)
    one, four = estimate(1), estimate(4)
    assert four - plain == pytest.approx(4 * (one - plain), rel=1e-9)


def test_kernels_of_a_draft_are_rows_of_their_own() -> None:
    step = simulate(
        PAIR,
        device="H100_SXM_80GB",
        workload=decode(query_length=3, num_draft_tokens=2),
        deployment=Deployment(world_size=2, tp_size=2, compile=True, enable_matmul_allreduce=True),
    )
    counts = {(op.name, op.part): op.count for op in step.ops}
    # 36 layers of Qwen3-8B, and two steps of the 28 layers of Qwen3-0.6B.
    assert counts["flash_attention", "attention.core"] == 36
    assert counts["flash_attention", "draft.attention.core"] == 2 * 28
    reduced = {one.part: one.count for one in step.collectives if one.fused}
    assert reduced == {"attention.output": 36, "mlp.down": 36, "draft.attention.output": 56, "draft.mlp.down": 56}


def test_without_drafting_a_draft_model_costs_nothing() -> None:
    both, alone = (simulate(spec, device="H100_SXM_80GB", workload=decode(query_length=1)) for spec in (PAIR, BASE))
    assert both.total_time_s == alone.total_time_s
    assert both.memory.weights_bytes == alone.memory.weights_bytes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_draft_tokens": -1}, "num_draft_tokens must be a whole number of at least 0"),
        ({"num_draft_tokens": 2, "num_mtp_tokens": 2}, "not by both"),
        ({"acceptance_length": 2.0}, "acceptance_length needs drafted tokens"),
        ({"num_draft_tokens": 2, "acceptance_length": 3.5}, "must lie between 1 and 3"),
        ({"num_draft_tokens": 2, "acceptance_length": 2.0, "mtp_acceptance_rate": (0.5,)}, "not both"),
    ],
)
def test_wrong_drafting_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ModelingError, match=message):
        decode(query_length=3, **options)


def test_a_draft_model_is_needed() -> None:
    with pytest.raises(ModelingError, match="needs a draft model beside Qwen/Qwen3-8B"):
        simulate(BASE, device="H100_SXM_80GB", workload=decode(query_length=3, num_draft_tokens=2))
