"""The report of an estimate."""

from __future__ import annotations

import pytest

from tensor_cast import Deployment, TextWorkload, simulate
from tensor_cast.advice import Remedy
from tensor_cast.reporting.kernel_tables import SMALL_SHARE, kernel_sections, kernels
from tensor_cast.reporting.layout import Table, plain_text
from tensor_cast.reporting.table import configuration, memory, report, verdict
from tests.small_models import dense, latent

PREFILL = TextWorkload(num_queries=2, query_length=512)


def test_the_verdict_names_both_units_and_what_would_fit() -> None:
    estimate = simulate(dense(), device="TEST_DEVICE", workload=PREFILL, reserved_bytes=80e9)
    remedies = (Remedy({"num_queries": 1}, 60e9), Remedy({"quantize_linear": "FP8"}, 50e9))
    sentence = verdict(estimate.memory, remedies)
    assert "and has 68.7 GB (64.0 GiB); it would fit with --num-queries 1 (60.0 GB), or with " in sentence
    assert sentence.endswith("--quantize-linear-action FP8 (50.0 GB).")
    assert "neither fewer queries, nor 8-bit weights" in verdict(estimate.memory, ())
    first = report(estimate, remedies=remedies)[0]
    assert plain_text([first]).strip() == sentence


def test_memory_adds_up_in_both_units() -> None:
    estimate = simulate(dense(), device="TEST_DEVICE", workload=PREFILL, reserved_bytes=1e9)
    table = memory(estimate.memory)
    rows = {row[0]: [float(cell.rstrip("%")) for cell in row[1:]] for row in table.rows}
    parts = [rows[name] for name in ("weights", "KV cache", "activations", "reserved")]
    for column in (0, 1):
        assert sum(part[column] for part in parts) == pytest.approx(rows["used"][column], abs=2e-3)
        assert table.total is not None
        left = rows["device"][column] - rows["used"][column]
        assert float(table.total[column + 1]) == pytest.approx(left, abs=2e-3)
    assert rows["device"][:2] == [68.719, 64.0]
    assert "state" not in rows


def test_shapes_make_rows_of_their_own() -> None:
    # Drafting passes first over the 32 tokens that were verified, then over one token a query.
    workload = TextWorkload(num_queries=16, query_length=2, context_length=64, decode=True, num_mtp_tokens=2)
    estimate = simulate(latent(), device="TEST_DEVICE", workload=workload, deployment=Deployment(compile=True))
    plain = kernels(estimate, estimate.ops)
    shaped = kernels(estimate, estimate.ops_by_shape, shapes=True)
    assert len(shaped.rows) > len(plain.rows)
    assert shaped.total == plain.total
    details = [detail for row, detail in zip(shaped.rows, shaped.details, strict=True) if row[1] == "mtp.projection"]
    assert details == [
        "bfloat16[32,2048] bfloat16[2048,1024] -> bfloat16[32,1024]",
        "bfloat16[16,2048] bfloat16[2048,1024] -> bfloat16[16,1024]",
    ]


def test_configuration_says_how_it_was_understood() -> None:
    workload = TextWorkload(num_queries=8, query_length=1, context_length=64, decode=True, num_mtp_tokens=1)
    deployment = Deployment(
        world_size=8, tp_size=4, ep_size=8, mlp_tp_size=2, compile=True, enable_sequence_parallel=True,
        quantize_linear="FP8", quantize_non_expert_linear="W8A8_DYNAMIC",
    )  # fmt: skip
    rows = dict(configuration(simulate(latent(), device="TEST_DEVICE", workload=workload, deployment=deployment)).rows)
    assert rows["parallel"] == (
        "8 devices = tp 4 x dp 2 x pp 1; experts ep 8 x tp 1 x dp 1; mlp tp 2; sequence parallel"
    )
    assert rows["quantised"] == (
        "experts FP8, other linear layers W8A8_DYNAMIC, output head DISABLED, attention DISABLED"
    )
    assert rows["workload"].endswith("64 already in the context of each, 1 token drafted (1 expected a step)")
    assert rows["links"] == "4 cluster (switched, 10 GB/s) x 8 server (full mesh, 70 GB/s)"
    assert rows["kernels"].startswith("fused")


def test_overlap_is_told() -> None:
    workload = TextWorkload(num_queries=16, query_length=1, context_length=64, decode=True)
    deployment = Deployment(compile=True, enable_multistream=True)
    estimate = simulate(latent(), device="TEST_DEVICE", workload=workload, deployment=deployment)
    table = kernels(estimate, estimate.ops)
    assert isinstance(table, Table)
    assert table.note.endswith("of it run hidden on a second stream.")


def number(cell: str) -> float:
    return float(cell.rstrip("%").replace(",", ""))


def test_small_kernels_are_one_row() -> None:
    estimate = simulate(dense(), device="TEST_DEVICE", workload=PREFILL)
    small = [op for op in estimate.ops if op.share < SMALL_SHARE]
    assert len(small) > 1
    folded, whole = (kernel_sections(estimate, (), all_kernels=every)[0] for every in (False, True))
    assert isinstance(folded, Table)
    assert isinstance(whole, Table)
    assert len(whole.rows) == len(estimate.ops)
    assert len(folded.rows) == len(estimate.ops) - len(small) + 1
    assert folded.rows[:-1] == whole.rows[: len(folded.rows) - 1]
    assert folded.total == whole.total
    last = folded.rows[-1]
    assert (last[0], last[3]) == (f"{len(small)} more kernels", f"{sum(float(op.count) for op in small):,.0f}")
    assert number(last[4]) == pytest.approx(sum(number(row[4]) for row in whole.rows[-len(small) :]), abs=0.01)
    assert folded.note == "--all-kernels shows those of less than 0.1% one by one."
    assert whole.note == ""


def test_one_small_kernel_keeps_its_row_and_shapes_show_all() -> None:
    estimate = simulate(dense(), device="TEST_DEVICE", workload=PREFILL)
    small = min(estimate.ops, key=lambda op: float(op.share))
    large = max(estimate.ops, key=lambda op: float(op.share))
    assert [row[0] for row in kernels(estimate, (large, small), every=False).rows] == [large.name, small.name]
    (shaped, *_) = kernel_sections(estimate, (), input_shapes=True)
    assert isinstance(shaped, Table)
    assert len(shaped.rows) == len(shaped.details) == len(estimate.ops_by_shape)
