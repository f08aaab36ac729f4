"""Recommended strategies are accepted; what is said to fit does, and a little more does not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_cast import Deployment, DeviceProfile, ModelingError, ModelSpec, TextWorkload, simulate
from tensor_cast.advice import Remedy, as_flags, most_queries, recommend_strategy, what_would_fit
from tensor_cast.devices import get_device
from tensor_cast.models import load_spec
from tests.small_models import dense, latent, sparse

DEVICE = DeviceProfile.all_device_profiles["TEST_DEVICE"]
DECODE = TextWorkload(num_queries=64, query_length=1, context_length=4096, decode=True)


def fits(
    spec: ModelSpec, device: DeviceProfile, workload: TextWorkload, deployment: Deployment, remedy: Remedy
) -> bool:
    sizes = {name: value for name, value in remedy.changes.items() if name != "num_queries"}
    queries = remedy.changes.get("num_queries", workload.num_queries)
    estimate = simulate(
        spec,
        device=device,
        workload=replace(workload, num_queries=queries),  # type: ignore[arg-type]
        deployment=replace(deployment, **sizes),  # type: ignore[arg-type]
    )
    assert float(estimate.memory.used_bytes) == pytest.approx(remedy.used_bytes)
    return bool(estimate.fits)


def with_memory(memory_bytes: float) -> DeviceProfile:
    return replace(DEVICE, memory_bytes=memory_bytes)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from([dense(), sparse(), latent()]), st.integers(min_value=2, max_value=32))
def test_a_recommended_strategy_is_accepted(spec: ModelSpec, world_size: int) -> None:
    sizes = recommend_strategy(spec, DEVICE, world_size)
    assert sizes["tp_size"] * sizes["dp_size"] == world_size == sizes["world_size"]
    assert sizes["tp_size"] <= 8
    assert ("ep_size" in sizes) is spec.has_experts
    estimate = simulate(spec, device=DEVICE, workload=DECODE, deployment=Deployment(**sizes))  # type: ignore[arg-type]
    assert float(estimate.total_time_s) > 0.0


def test_the_rules_of_a_recommended_strategy() -> None:
    # 8 heads, servers of 8: tensor parallelism 8, data parallelism for the rest, experts over all.
    assert recommend_strategy(dense(), DEVICE, 32) == {"world_size": 32, "tp_size": 8, "dp_size": 4}
    assert recommend_strategy(sparse(), DEVICE, 16) == {"world_size": 16, "tp_size": 8, "dp_size": 2, "ep_size": 16}
    # 6 does not divide 8 heads, 2 does; 16 experts do not divide by 6, but by 2, and three replicas of them remain.
    six = recommend_strategy(sparse(), DEVICE, 6)
    assert six == {"world_size": 6, "tp_size": 2, "dp_size": 3, "ep_size": 2, "moe_tp_size": 1}
    # An Atlas 350 has meshes of four.
    mesh = DeviceProfile.all_device_profiles["ATLAS_350_425T_112G"]
    assert recommend_strategy(dense(), mesh, 8) == {"world_size": 8, "tp_size": 4, "dp_size": 2}


def test_flags_are_as_they_are_typed() -> None:
    changes = {"world_size": 16, "tp_size": 8, "quantize_linear": "FP8", "num_queries": 3}
    assert as_flags(changes) == "--world-size 16 --tp-size 8 --quantize-linear-action FP8 --num-queries 3"


def test_the_most_queries_that_fit_are_found() -> None:
    # Weights take about 0.2 GB, a query's cache of 4,097 tokens in 4 layers 16.8 MB.
    device = with_memory(1e9)
    workload = replace(DECODE, num_queries=10_000)
    remedy = what_would_fit(dense(), device=device, workload=workload, deployment=Deployment())[0]
    assert list(remedy.changes) == ["num_queries"]
    assert fits(dense(), device, workload, Deployment(), remedy)
    most = int(remedy.changes["num_queries"])
    one_more = replace(workload, num_queries=most + 1)
    assert not simulate(dense(), device=device, workload=one_more).fits


@pytest.mark.parametrize("spec", [dense(), sparse(), latent()], ids=lambda spec: spec.name)
@pytest.mark.parametrize("share", [0.9, 0.6, 0.3, 0.1, 0.02])
def test_every_remedy_fits(spec: ModelSpec, share: float) -> None:
    deployment = Deployment()
    needed = float(simulate(spec, device=DEVICE, workload=DECODE, deployment=deployment).memory.used_bytes)
    device = with_memory(needed * share)
    remedies = what_would_fit(spec, device=device, workload=DECODE, deployment=deployment, limit=9)
    assert remedies or share < 0.3
    for remedy in remedies:
        assert fits(spec, device, DECODE, deployment, remedy)


def test_the_gentlest_come_first_and_no_more_than_asked() -> None:
    needed = float(simulate(sparse(), device=DEVICE, workload=DECODE).memory.used_bytes)
    found = what_would_fit(
        sparse(), device=with_memory(needed * 0.95), workload=DECODE, deployment=Deployment(), limit=9
    )
    assert [next(iter(remedy.changes)) for remedy in found] == ["num_queries", "quantize_linear", "world_size"]
    first = what_would_fit(
        sparse(), device=with_memory(needed * 0.95), workload=DECODE, deployment=Deployment(), limit=1
    )
    assert first == found[:1]


def test_what_is_quantised_already_is_not_quantised_again() -> None:
    deployment = Deployment(quantize_linear="W8A8_DYNAMIC")
    needed = float(simulate(dense(), device=DEVICE, workload=DECODE, deployment=deployment).memory.used_bytes)
    found = what_would_fit(dense(), device=with_memory(needed * 0.9), workload=DECODE, deployment=deployment, limit=9)
    assert all("quantize_linear" not in remedy.changes for remedy in found)


def test_nothing_fits_in_nothing() -> None:
    assert what_would_fit(latent(), device=with_memory(1e6), workload=DECODE, deployment=Deployment()) == ()


def test_no_strategy_is_said() -> None:
    alone = replace(dense(), layers=())
    with pytest.raises(ModelingError, match="No parallel sizes for 2 devices suit dense"):
        recommend_strategy(alone, DEVICE, 2)


def test_the_most_queries_by_hand() -> None:
    # Qwen3-8B in bfloat16: 8,190,735,360 x 2 = 16,381,470,720 bytes of weights; a sequence of 4,097 tokens keeps
    # 4,097 x 36 layers x 8 heads x 256 x 2 bytes = 604,127,232. On 80 GiB: (85,899,345,920 - 16,381,470,720) /
    # 604,127,232 = 115.07, and the rest holds the activations.
    workload = TextWorkload(num_queries=1, query_length=1, context_length=4096, decode=True)
    found = most_queries(
        load_spec("Qwen/Qwen3-8B"), device=get_device("H100"), workload=workload, deployment=Deployment()
    )
    assert found == 115


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from([dense(), sparse(), latent()]),
    st.integers(min_value=1, max_value=5000),
    st.sampled_from([1, 2, 4]),
    st.floats(min_value=0.0, max_value=60e9),
)
def test_the_most_queries_fit_and_one_more_does_not(
    spec: ModelSpec, context: int, ranks: int, reserved_bytes: float
) -> None:
    workload = replace(DECODE, context_length=context)
    deployment = Deployment(world_size=ranks, dp_size=ranks)
    most = most_queries(spec, device=DEVICE, workload=workload, deployment=deployment, reserved_bytes=reserved_bytes)
    for queries, fit in ((most, True), (most + 1, False)):
        if queries:
            step = replace(workload, num_queries=queries)
            estimate = simulate(
                spec, device=DEVICE, workload=step, deployment=deployment, reserved_bytes=reserved_bytes
            )
            assert bool(estimate.fits) is fit


def test_no_query_fits_beside_what_is_reserved() -> None:
    request = {"device": DEVICE, "workload": DECODE, "deployment": Deployment()}
    assert most_queries(dense(), **request, reserved_bytes=DEVICE.memory_bytes) == 0  # type: ignore[arg-type]
