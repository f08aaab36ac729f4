"""The Chrome trace: its form, and that it lasts as long as the step."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tensor_cast import Deployment, Estimate, ModelSpec, TextWorkload, simulate
from tensor_cast.models.families import read_spec
from tensor_cast.reporting import trace
from tests.small_models import LATENT, dense, latent

PREFILL = TextWorkload(num_queries=2, query_length=512)
DECODE = TextWorkload(num_queries=16, query_length=1, context_length=1000, decode=True)


def estimate(spec: ModelSpec, workload: TextWorkload = PREFILL, **deployment: Any) -> Estimate:
    return simulate(spec, device="TEST_DEVICE", workload=workload, deployment=Deployment(**deployment))


def slices(found: Estimate) -> list[dict[str, Any]]:
    events = json.loads(trace.chrome_trace(found, title="a model on a device"))["traceEvents"]
    return [event for event in events if event["ph"] == "X"]


ESTIMATES = [
    (dense(), PREFILL, {}),
    (dense(), DECODE, {"compile": True, "world_size": 4, "tp_size": 4}),
    (dense(), PREFILL, {"world_size": 4, "pp_size": 4}),
    (latent(), DECODE, {"compile": True, "enable_multistream": True, "world_size": 8, "tp_size": 4, "ep_size": 8}),
    (
        latent(),
        TextWorkload(num_queries=16, query_length=3, context_length=1000, decode=True, num_mtp_tokens=2),
        {"compile": True},
    ),
]


@pytest.mark.parametrize(("spec", "workload", "deployment"), ESTIMATES)
@pytest.mark.parametrize("most", [10**9, 0])
def test_it_lasts_as_long_as_the_step(
    spec: ModelSpec, workload: TextWorkload, deployment: dict[str, Any], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "MAX_SLICES", most)
    found = estimate(spec, workload, **deployment)
    drawn = slices(found)
    assert min(event["ts"] for event in drawn) == 0.0
    assert max(event["ts"] + event["dur"] for event in drawn) == pytest.approx(float(found.total_time_s) * 1e6)
    busy = sum(event["dur"] for event in drawn)
    assert busy == pytest.approx(sum(float(kernel.total_s) for kernel in found.kernels) * 1e6)


def test_time_without_a_kernel_is_a_slice_at_the_end() -> None:
    found = replace(estimate(dense()), idle_s=0.002)
    last = slices(found)[-1]
    assert (last["name"], last["dur"]) == ("without a kernel", pytest.approx(2000.0))
    assert last["ts"] + last["dur"] == pytest.approx(float(found.total_time_s) * 1e6)


def test_every_launch_is_drawn_until_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    found = estimate(dense())
    launches = sum(int(kernel.count) for kernel in found.kernels)
    assert len(slices(found)) == launches
    monkeypatch.setattr(trace, "MAX_SLICES", launches - 1)
    assert len(slices(found)) == len(found.kernels)
    assert {event["args"]["scope"] for event in slices(found)} == {"embedding", "layers.0-3 x 4", "head"}


def test_slices_of_a_stream_do_not_overlap_and_streams_do() -> None:
    found = estimate(latent(), DECODE, compile=True, enable_multistream=True)
    assert float(found.overlapped_s) > 0.0
    by_stream: dict[int, list[tuple[float, float]]] = {}
    for event in slices(found):
        by_stream.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    assert sorted(by_stream) == [0, 1]
    for spans in by_stream.values():
        for (_, end), (start, _) in pairwise(sorted(spans)):
            assert start >= end - 1e-6
    for start, end in by_stream[1]:
        assert any(start < other_end and other_start < end for other_start, other_end in by_stream[0])


def test_alternating_layers_are_drawn_in_their_order() -> None:
    config = {
        "model_type": "gpt_oss", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512, "num_local_experts": 4,
        "num_experts_per_tok": 2, "vocab_size": 1000, "sliding_window": 16,
    }  # fmt: skip
    found = estimate(read_spec(config, name="alternating", where="a test"))
    cores = [event for event in slices(found) if event["name"] == "flash_attention"]
    assert [event["args"]["scope"] for event in cores] == ["layers.0", "layers.1", "layers.2", "layers.3"]
    # Even layers attend to 16 tokens, odd ones to all.
    assert cores[0]["args"]["flops"] == cores[2]["args"]["flops"] < cores[1]["args"]["flops"]


def test_a_slice_says_what_it_is() -> None:
    events = json.loads(trace.chrome_trace(estimate(dense()), title="a model on a device"))["traceEvents"]
    names = {event["name"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"process_name": "a model on a device", "thread_name": "stream 0 (main)"}
    down = next(event for event in events if event.get("args", {}).get("part") == "mlp.down")
    assert down["cat"] == "MatMul"
    assert down["args"]["inputs"] == [
        {"shape": [1024, 4096], "dtype": "bfloat16"},
        {"shape": [4096, 1024], "dtype": "bfloat16"},
    ]
    assert down["args"]["outputs"] == [{"shape": [1024, 1024], "dtype": "bfloat16"}]
    assert down["args"]["flops"] == 2 * 1024 * 4096 * 1024
    # Both operands and the result, two bytes each.
    assert down["args"]["bytes"] == 2 * (2 * 1024 * 4096 + 1024 * 1024)
    assert (down["args"]["bound"], down["args"]["source"]) == ("matrix", "analytic")


def test_the_mixture_of_a_small_model_has_its_drafting_last() -> None:
    workload = TextWorkload(num_queries=4, query_length=2, context_length=64, decode=True, num_mtp_tokens=1)
    scopes = [event["args"]["scope"] for event in slices(estimate(latent(), workload))]
    order = list(dict.fromkeys(scopes))
    assert order == ["embedding", *(f"layers.{i}" for i in range(LATENT["num_hidden_layers"])), "head", "mtp.first"]
