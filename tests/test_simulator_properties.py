"""What holds of every step: more work is not faster, more devices need not more memory, no work gets lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_cast import Deployment, DeviceProfile, Estimate, ModelSpec, TextWorkload, simulate
from tests.small_models import dense, latent, sparse

DEVICE = DeviceProfile.all_device_profiles["TEST_DEVICE"]
MODELS = st.sampled_from([dense(), sparse(), latent()])
RANKS = st.sampled_from([1, 2, 4, 8])
# Rounding of a sum.
NOT_LESS = 1 - 1e-12

PREFILL = TextWorkload(num_queries=8, query_length=64)
DECODE = TextWorkload(num_queries=8, query_length=1, context_length=100, decode=True)


def price(spec: ModelSpec, workload: TextWorkload, **deployment: Any) -> Estimate:
    return simulate(spec, device=DEVICE, workload=workload, deployment=Deployment(**deployment))


def seconds(spec: ModelSpec, workload: TextWorkload, **deployment: Any) -> float:
    return float(price(spec, workload, **deployment).total_time_s)


def matrix_flops(estimate: Estimate) -> float:
    return float(sum(kernel.op.matrix_flops * kernel.count for kernel in estimate.kernels))


@settings(max_examples=60, deadline=None)
@given(
    MODELS,
    RANKS,
    st.integers(1, 300),
    st.integers(1, 300),
    st.integers(1, 5000),
    st.integers(0, 5000),
    st.booleans(),
)
def test_more_decoding_never_takes_less_time(
    spec: ModelSpec, tp: int, queries: int, more: int, context: int, longer: int, compiled: bool
) -> None:
    def time(n: int, length: int) -> float:
        workload = TextWorkload(num_queries=n, query_length=1, context_length=length, decode=True)
        return seconds(spec, workload, world_size=tp, tp_size=tp, compile=compiled)

    base = time(queries, context)
    assert time(queries + more, context) >= base * NOT_LESS
    assert time(queries, context + longer) >= base * NOT_LESS


@settings(max_examples=60, deadline=None)
@given(
    MODELS,
    RANKS,
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(1, 3000),
    st.integers(0, 3000),
    st.floats(0.0, 0.9),
)
def test_more_prompt_never_takes_less_time(
    spec: ModelSpec, tp: int, queries: int, more: int, length: int, longer: int, cached: float
) -> None:
    def time(n: int, query_length: int, hit_rate: float = 0.0) -> float:
        workload = TextWorkload(num_queries=n, query_length=query_length, prefix_cache_hit_rate=hit_rate)
        return seconds(spec, workload, world_size=tp, tp_size=tp)

    base = time(queries, length)
    assert time(queries + more, length) >= base * NOT_LESS
    assert time(queries, length + longer) >= base * NOT_LESS
    assert time(queries, length, cached) <= base / NOT_LESS


@settings(max_examples=60, deadline=None)
@given(MODELS, st.integers(1, 64), st.integers(1, 2000), st.booleans())
def test_more_devices_never_need_more_memory_each(spec: ModelSpec, queries: int, length: int, decode: bool) -> None:
    workload = TextWorkload(
        num_queries=queries, query_length=1 if decode else length, context_length=length, decode=decode
    )
    for axis in ("tp_size", "dp_size", "pp_size"):
        used = [float(price(spec, workload, world_size=n, **{axis: n}).memory.used_bytes) for n in (1, 2, 4)]
        assert used == sorted(used, reverse=True), axis


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([sparse(), latent()]), RANKS, st.booleans())
def test_experts_over_more_ranks_never_need_more_memory_each(spec: ModelSpec, ranks: int, decode: bool) -> None:
    # Eight data-parallel ranks, whose experts are shared out over more and more of them.
    workload = DECODE if decode else PREFILL
    sizes = {"world_size": 8, "dp_size": 8, "moe_tp_size": 1}
    alone = price(spec, workload, **sizes, ep_size=1).memory.weights_bytes
    shared = price(spec, workload, **sizes, ep_size=ranks).memory.weights_bytes
    # Gate, up and down of the 16 experts of 512 columns, in bfloat16, in each layer that has them.
    layers = sum(layer.has_experts for layer in spec.layers)
    assert alone - shared == layers * 3 * 1024 * 512 * 2 * (16 - 16 / ranks)


@pytest.mark.parametrize("workload", [PREFILL, DECODE])
@pytest.mark.parametrize(
    "sizes",
    [
        {"tp_size": 2},
        {"dp_size": 8},
        {"tp_size": 2, "enable_sequence_parallel": True},
        {"tp_size": 2, "dp_size": 4, "mlp_tp_size": 4, "o_proj_tp_size": 4, "lmhead_tp_size": 8},
    ],
)
def test_ranks_together_do_all_the_work_of_one(workload: TextWorkload, sizes: dict[str, Any]) -> None:
    # Two KV heads over two ranks: nothing of the dense model is replicated, and 8 queries divide.
    world = sizes.get("tp_size", 1) * sizes.get("dp_size", 1)
    together = matrix_flops(price(dense(), workload, world_size=world, **sizes)) * world
    assert together == pytest.approx(matrix_flops(price(dense(), workload)))


@settings(max_examples=40, deadline=None)
@given(MODELS, st.sampled_from([2, 3, 4]), st.integers(1, 64), st.booleans())
def test_a_pipeline_is_at_most_as_many_times_faster_as_it_has_stages(
    spec: ModelSpec, stages: int, queries: int, decode: bool
) -> None:
    workload = TextWorkload(num_queries=queries, query_length=1 if decode else 100, context_length=500, decode=decode)
    alone = seconds(spec, workload)
    assert seconds(spec, workload, world_size=stages, pp_size=stages) >= alone / stages * NOT_LESS


@pytest.mark.parametrize(
    ("workload", "sizes"),
    [
        (TextWorkload(num_queries=5, query_length=70, prefix_cache_hit_rate=0.3), {"world_size": 2, "pp_size": 2}),
        (
            TextWorkload(
                num_queries=5,
                query_length=3,
                context_length=70,
                decode=True,
                num_mtp_tokens=2,
                mtp_acceptance_rate=(0.8, 0.5),
            ),
            {"world_size": 8, "tp_size": 2, "dp_size": 4, "ep_size": 8, "compile": True, "dtype": "fp16"},
        ),
    ],
)
def test_a_document_says_all_that_the_estimate_follows_from(workload: TextWorkload, sizes: dict[str, Any]) -> None:
    estimate = price(latent(), workload, **sizes)
    document = json.loads(json.dumps(estimate.to_dict()))
    deployment = {key: value for key, value in document["deployment"].items() if key != "parallel"}
    # JSON has no tuples.
    rates = tuple(document["workload"]["mtp_acceptance_rate"])
    again = price(latent(), TextWorkload(**{**document["workload"], "mtp_acceptance_rate": rates}), **deployment)
    assert again.workload == workload
    assert again.deployment == estimate.deployment
    assert again.to_dict() == estimate.to_dict()
