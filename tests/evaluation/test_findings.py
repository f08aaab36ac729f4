from __future__ import annotations

from typing import Any

import pytest

from tensor_cast.devices.registry import get_device
from tensor_cast.evaluation.findings import SENTENCES, Finding, find
from tensor_cast.evaluation.request import EvaluatedModel, EvaluationRequest, Strategy

DEVICE = get_device("ATLAS_800_A2_376T_64G")


def _request(kind: Any = "text", **flags: Any) -> EvaluationRequest:
    every = {"--num-queries": "8", "--quantize-linear-action": "DISABLED", "--compile": True}
    every |= {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
    return EvaluationRequest(
        kind=kind,
        model=EvaluatedModel("m", "m", "s"),
        device=DEVICE.name,
        flags=every,
        given={},
        defaults={},
        strategy=Strategy(chosen_by="single device"),
        command="",
    )


def _document(*ops: tuple[str, str, float], **changes: Any) -> dict[str, Any]:
    """Ops as (category, bound, seconds); 30 of 100 bytes are free."""
    return {
        "ops": [
            {"name": "kernel", "part": "part", "category": category, "bound": bound, "total_s": seconds}
            for category, bound, seconds in ops
        ],
        "workload": {"decode": True},
        "deployment": {"parallel": {"world": 1, "tp": 1, "dp": 1}},
        "memory": {"fits": True, "device_bytes": 100.0, "available_bytes": 30.0},
        "would_fit": [],
        **changes,
    }


def _rules(document: dict[str, Any], request: EvaluationRequest | None = None) -> dict[str, Finding]:
    return {finding.rule: finding for finding in find(document, request or _request(), DEVICE)}


def _changes(finding: Finding) -> list[dict[str, Any]]:
    return [variant.changes for variant in finding.variants]


def test_a_decode_bound_by_weights_is_told_of_a_larger_batch_and_8_bit_weights() -> None:
    # 25 of 100 seconds: the threshold itself counts.
    found = _rules(_document(("MatMul", "memory", 25.0), ("Vector", "vector", 75.0)))
    assert found["weights-bound"].values["share"] == 0.25
    assert _changes(found["weights-bound"]) == [
        {"--num-queries": "16"},
        {"--quantize-linear-action": "W8A8_DYNAMIC"},
    ]
    assert "weights-bound" not in _rules(_document(("MatMul", "memory", 24.0), ("Vector", "vector", 76.0)))


def test_what_is_quantised_is_not_told_to_quantise() -> None:
    request = _request(quantize_linear_action="W8A8_DYNAMIC", quantize_attention_action="INT8")
    found = _rules(_document(("MatMul", "memory", 50.0), ("FlashAttention", "memory", 50.0)), request)
    assert _changes(found["weights-bound"]) == [{"--num-queries": "16"}]
    assert _changes(found["cache-bound"]) == []


def test_a_prefill_has_no_larger_batch_to_share_weights() -> None:
    found = _rules(_document(("MatMul", "memory", 1.0), workload={"decode": False}))
    assert _changes(found["weights-bound"]) == [{"--quantize-linear-action": "W8A8_DYNAMIC"}]


def test_matrix_bound_work_is_told_of_a_faster_format_and_more_devices() -> None:
    found = _rules(_document(("MatMul", "matrix", 1.0), workload={"decode": False}))
    assert _changes(found["matrix-bound"]) == [
        {"--quantize-linear-action": "W8A8_DYNAMIC"},
        {"--world-size": "2", "--tp-size": "2"},
    ]


def test_starting_kernels_is_told_of_fusion_unless_fused() -> None:
    document = _document(("Vector", "fixed", 20.0), ("MatMul", "vector", 80.0))
    assert _changes(_rules(document)["start-bound"]) == [{"--num-queries": "16"}]
    assert {"--compile": True} in _changes(_rules(document, _request(compile=False))["start-bound"])


def test_time_between_kernels_counts_and_is_told_of() -> None:
    # 20 s idle beside 80 s of kernels: a fifth of the time, and matrix work of 45 s less than half of it.
    document = _document(("MatMul", "matrix", 45.0), ("Vector", "vector", 35.0), idle_s=20.0)
    found = _rules(document, _request(compile=False))
    assert found["idle"].values == {"share": 0.2}
    assert _changes(found["idle"]) == [{"--compile": True}, {"--num-queries": "16"}]
    assert "matrix-bound" not in found


def test_communication_is_told_of_smaller_groups() -> None:
    parallel = {"world": 4, "tp": 4, "dp": 1}
    document = _document(("Comm", "comm", 20.0), ("Vector", "vector", 80.0), deployment={"parallel": parallel})
    found = _rules(document)["comm-share"]
    assert found.values == {"share": 0.2, "longest": "kernel (part)"}
    assert _changes(found) == [{"--tp-size": "2", "--dp-size": "2"}]


def test_a_pipelines_wait_is_no_communication() -> None:
    parallel = {"world": 8, "tp": 2, "dp": 1, "pp": 4}
    document = _document(
        ("Comm", "wait", 20.0), ("Comm", "comm", 19.0), ("Vector", "vector", 61.0), deployment={"parallel": parallel}
    )
    found = _rules(document)
    assert "comm-share" not in found
    assert found["pipeline-wait"].values == {"share": 0.2}
    assert _changes(found["pipeline-wait"]) == [{"--pp-size": "2", "--tp-size": "4"}]


def test_what_does_not_fit_comes_first_with_its_remedies() -> None:
    document = _document(
        ("MatMul", "memory", 1.0),
        memory={"fits": False, "device_bytes": 100.0, "available_bytes": -20.0},
        would_fit=[{"changes": {"quantize_linear": "W8A8_DYNAMIC"}}, {"changes": {"num_queries": 3}}],
    )
    finding = find(document, _request(), DEVICE)[0]
    assert (finding.rule, finding.level) == ("does-not-fit", "bad")
    assert finding.values == {"needed": "120 bytes", "device": "100 bytes"}
    assert _changes(finding) == [{"--quantize-linear-action": "W8A8_DYNAMIC"}, {"--num-queries": "3"}]


def test_a_video_is_told_of_sparse_attention_that_changes_its_result() -> None:
    parallel = {"world": 2, "ulysses": 2, "cfg": 1}
    document = _document(("FlashAttention", "matrix", 1.0), workload={}, deployment={"parallel": parallel})
    found = _rules(document, _request("video", use_cfg=True))
    sparse = found["attention-share"].variants[-1]
    assert sparse.changes == {"--attention-backend": "block_sparse_attention", "--attention-sparsity": "0.5"}
    assert sparse.changes_result
    assert _changes(found["cfg-forwards"]) == [{"--cfg-parallel": True, "--ulysses-size": "1"}]
    assert "cache-bound" not in found


def test_when_no_rule_applies_that_is_said() -> None:
    document = _document(("Vector", "vector", 29.0), ("MatMul", "matrix", 42.0), ("FlashAttention", "vector", 29.0))
    assert list(_rules(document)) == ["balanced"]


@pytest.mark.parametrize("rule", SENTENCES)
def test_every_sentence_can_be_said(rule: str) -> None:
    values = {"share": 0.5, "longest": "kernel", "needed": "2 GB", "device": "1 GB", "world": 2}
    assert "{" not in SENTENCES[rule].format(**values)
