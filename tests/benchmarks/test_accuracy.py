"""The accuracy benchmark: which request a measured row is, what a group says, and that it runs on its own figures."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import accuracy, measured_a3, measured_kernels, measured_recipes
from benchmarks.accuracy_report import anchor, document, markdown
from benchmarks.accuracy_rows import Aim, Group, Row, Summary, worst
from benchmarks.accuracy_steps import UNREACHABLE, recipes, request_of_step, serving_groups, steps
from tensor_cast.ops import Attention, Collective, Elementwise, GroupedMatMul, MatMul

ROOT = Path(__file__).resolve().parents[2]


def test_errors_by_hand() -> None:
    rows = [Row("a", 1.0, 1.1, False, -0.2, 0.2), Row("b", 1.0, 0.8, False, -0.1, 0.1), Row("c", 2.0, 2.0, False)]
    summary = Summary.of(rows)
    assert summary is not None
    # Errors of +10, -20 and 0 %; 1.0 lies in 0.88 .. 1.32 but not in 0.72 .. 0.88; the third has no band.
    assert summary.mean == pytest.approx(0.1)
    assert (summary.median, summary.worst) == (pytest.approx(0.1), pytest.approx(0.2))
    assert (summary.bias, summary.covered) == (0.0, 0.5)
    assert [row.label for row in worst(rows, 2)] == ["b", "a"]
    assert Summary.of([]) is None


def test_fitted_rows_count_in_no_figure() -> None:
    group = Group("g", "G", "s", [Row("a", 1.0, 5.0, True), Row("b", 1.0, 1.0, False)])
    assert [row.label for row in group.held_out] == ["b"]
    figures = document([group], rows=True)["g"]
    assert figures["held_out"]["worst"] == 0.0
    assert [row["fitted"] for row in figures["rows"]] == [True, False]


def test_an_aim_that_is_missed_is_called_so() -> None:
    rows = [Row("a", 1.0, 1.1, False), Row("b", 1.0, 0.7, False)]
    summary = Summary.of(rows)
    assert summary is not None
    # A mean and a median of 20 %, a worst row of 30 %.
    assert str(Aim(mean=0.25, worst=0.4)) == "mean 25 %, none over 40 %"
    assert Aim(mean=0.25, worst=0.4).is_met(summary)
    assert not Aim(mean=0.15).is_met(summary)
    assert not Aim(median=0.3, worst=0.29).is_met(summary)
    missed, met = (Group(name, name, "s", rows, aim=aim) for name, aim in (("m", Aim(0.15)), ("n", Aim(0.25))))
    text = markdown([missed, met], plots=None, target=ROOT / "docs" / "absent.md")
    assert text.count("**missed**") == 1
    assert "| mean 15 %: **missed** |" in text


def test_rows_left_out_for_a_fault_are_shown_with_what_they_would_change() -> None:
    faulty = [Row("x|y", 5.0, 1.0, False), Row("z", 4.0, 1.0, True)]
    group = Group("g", "G", "s", [Row("a", 1.0, 1.2, False)], faulty=faulty, fault="a fault")
    text = markdown([group], plots=None, target=ROOT / "docs" / "absent.md")
    # Errors of 20 and 80 %.
    words = "Left out, a fault: 2 rows, 1 of them not open to fitting, with which the mean would be 50.0%."
    assert words in text
    assert "| `x y` | 5.000 s | 1.000 s | -80% |" in text
    assert "| [G](#g) | 1 | 20.0% |" in text
    aimed = markdown([replace(group, aim=Aim(mean=0.3))], plots=None, target=ROOT / "docs" / "absent.md")
    assert "| mean 30 % (50.0% with rows left out) |" in aimed
    assert document([group], rows=False)["g"]["left_out"] == {"reason": "a fault", "rows": 2}


def test_the_halves_are_about_equal_and_never_change() -> None:
    # CRC-32 of "a" is 0xE8B7BE43, of "b" 0x71BEEFF9: both odd.
    assert [measured_kernels.is_fitted(key) for key in ("a", "b")] == [False, False]
    share = sum(measured_kernels.is_fitted(str(n)) for n in range(10_000)) / 10_000
    assert share == pytest.approx(0.5, abs=0.02)


def nvidia(**columns: object) -> tuple[object, ...]:
    row = accuracy.Columns({"system": "h100_sxm", "backend": "vllm", "kv_dtype": "bfloat16", **columns})
    return measured_kernels.ops_of_table(row)


def test_a_gemm_row_is_one_product() -> None:
    (op,) = nvidia(kernel="gemm", dtype="bfloat16", m=16, n=256, k=128)
    assert isinstance(op, MatMul)
    assert op.matrix_flops == 2 * 16 * 256 * 128
    assert op.bytes == 2 * (16 * 128 + 128 * 256 + 16 * 256)


def test_tensorrt_quantises_before_an_fp8_product() -> None:
    ops = nvidia(kernel="gemm", dtype="fp8", m=16, n=256, k=128, backend="trtllm")
    assert [type(op) for op in ops] == [Elementwise, Elementwise, MatMul]
    (block,) = nvidia(kernel="gemm", dtype="fp8_block", m=16, n=256, k=128, backend="trtllm")
    # A scale of 4 bytes for each row of 128 and each 128 x 128 of the weight.
    assert block.bytes == 16 * 128 + 128 * 256 + 4 * (16 + 2) + 2 * 16 * 256


def test_attention_rows_count_causal_pairs() -> None:
    columns = {"batch": 2, "num_heads": 8, "num_kv_heads": 2, "head_dim": 128, "dtype": "bfloat16"}
    (prefill,) = nvidia(kernel="context_attention", seq_q=100, kv_len=100, **columns)
    (decode,) = nvidia(kernel="generation_attention", seq_q=1, kv_len=1000, **columns)
    assert isinstance(prefill, Attention)
    assert isinstance(decode, Attention)
    assert prefill.pairs == 2 * 100 * 101 / 2
    assert decode.pairs == 2 * 1000
    assert decode.decode
    assert decode.cache_bytes == 2 * 1000 * 2 * 2 * 128 * 2


def attention(**columns: object) -> tuple[object, ...]:
    sizes = {"batch": 2, "seq_q": 10, "kv_len": 10, "num_heads": 8, "num_kv_heads": 2, "head_dim": 64}
    return nvidia(**{"dtype": "bfloat16", "kernel": "context_attention", **sizes, **columns})


def test_tensorrts_prefill_rotates_and_caches_as_well() -> None:
    rotate, op = attention(backend="trtllm", kv_dtype="fp8")
    assert isinstance(rotate, Elementwise)
    assert isinstance(op, Attention)
    # 20 tokens of 8 query heads and 2 of keys and values each, of 64: two bytes an element, but one in the cache.
    assert (rotate.read_bytes, rotate.written_bytes) == (20 * 12 * 64 * 2, 20 * 8 * 64 * 2 + 20 * 4 * 64)
    assert len(attention(kernel="generation_attention", backend="trtllm", seq_q=1)) == 1


def test_vllm_takes_a_prompt_of_one_token_for_a_decode() -> None:
    for backend, tokens, decode in (("vllm", 1, True), ("vllm", 2, False), ("trtllm", 1, False)):
        op = attention(backend=backend, seq_q=tokens, kv_len=tokens)[-1]
        assert isinstance(op, Attention)
        assert op.decode is decode


def test_an_expert_row_has_its_share_of_rows_and_weights() -> None:
    columns = {"num_tokens": 64, "hidden_size": 1024, "inter_size": 512, "topk": 4, "num_experts": 16, "tp": 2, "ep": 4}
    ops = nvidia(kernel="moe", dtype="bfloat16", distribution="balanced", kernel_source="x", **columns)
    up, down = (op for op in ops if isinstance(op, GroupedMatMul))
    # 64 tokens x 4 experts over 4 ranks; 4 local experts, all of them picked; 512 columns over 2 ranks, gate and up.
    assert (up.m, up.k, up.n, up.groups, up.active_groups) == (64, 1024, 512, 4, 4)
    assert (down.m, down.k, down.n) == (64, 256, 1024)


def test_collectives_carry_the_whole_message() -> None:
    (op,) = nvidia(kernel="nccl", op="alltoall", dtype="half", num_gpus=8, message_bytes=4096)
    assert isinstance(op, Collective)
    assert (op.kind, op.group_size, op.message_bytes) == ("all_to_all", 8, 4096)
    row = {"op": "allGather", "message_bytes": 1000, "num_devices": 16, "measurement": "in-model profiler"}
    (gather,) = measured_a3.collective_of_row(row)
    assert gather.message_bytes == 16_000  # the file counts the input of one rank
    assert isinstance(measured_a3.collective_of_row({**row, "measurement": "bench kernel"}), str)


def test_a3_kernels_by_their_operands() -> None:
    row = accuracy.Columns(
        device=measured_a3.DEVICE, kernel="SwiGlu", input_shapes="16,3200", input_dtypes="DT_BF16", mean_us=5.0
    )
    (op,) = measured_a3.ops_of_row(row)
    assert op.bytes == 2 * 16 * 3200 * 1.5
    assert "output" in str(measured_a3.ops_of_row(accuracy.Columns({**row, "kernel": "Slice"})))
    assert "scenario" in str(measured_a3.ops_of_row(accuracy.Columns({**row, "input_shapes": "(all shapes in it)"})))


def test_a_decode_of_images_has_them_in_its_context() -> None:
    case = {
        "kind": "text", "model": "Qwen/Qwen3-VL-2B-Instruct", "num_queries": 1,
        "query_len": 1, "context_length": 75, "decode": True, "image_batch_size": 1,
        "image_height": 1080, "image_width": 1920, "world_size": 1, "tp_size": 1, "quantize_linear_action": "DISABLED",
    }  # fmt: skip
    workload, _ = request_of_step(case)
    # 60 x 34 tokens of 32 x 32 pixels.
    assert workload.context_length == 75 + 2040


def test_a_step_that_no_device_could_do_is_left_out() -> None:
    (case,) = (case for case in accuracy.own_tables()["ascend_steps"] if case["name"] == "qwen3-8B-prefill")
    # 2 x 7e9 weights beside the embedding x 8,192 tokens over 2 x 353.9 TFLOP/s are 0.16 s.
    group = steps([{**case, "measured_s": 0.1}])
    assert (group.rows, group.unpriced) == ([], {UNREACHABLE: 1})
    assert len(steps([case]).rows) == 1


def test_runs_that_others_outdid_count_in_no_figure() -> None:
    common = {
        "mode": "agg", "model_path": "meta-llama/Llama-3.1-8B-Instruct", "system": "h200_sxm", "backend": "vllm",
        "isl": 1000, "osl": 500, "batch_size": 4, "tp_size": 1, "attention_dp_size": 1,
        "silicon_data_source": "silicon_concurrency=4",
    }  # fmt: skip
    usual = {**common, "silicon_ttft_ms": 100.0, "silicon_tpot_ms": 10.0}
    late = {**common, "system": "b200_sxm", "silicon_ttft_ms": 400.0, "silicon_tpot_ms": 10.0}
    slow = {**late, "isl": 1001, "silicon_ttft_ms": 100.0, "silicon_tpot_ms": 40.0}
    table = [accuracy.Columns(row) for row in (usual, late, {**usual, "isl": 1001}, slow)]
    dense, _, first = serving_groups(table)
    assert [row.measured_s for row in dense.faulty] == [0.04]
    assert [row.measured_s for row in first.faulty] == [0.4]
    assert (len(dense.rows), len(first.rows)) == (3, 3)


def test_recipes_are_steps_of_all_dies() -> None:
    table = accuracy.own_tables()["e2e"]
    step = measured_recipes.step_of(next(row for row in table if row["value"] == 22.51))
    assert isinstance(step, measured_recipes.Step)
    # 22.51 ms a token, of which a step yields its own and 1.44 drafted ones.
    assert step.measured_s == pytest.approx(22.51e-3 * 2.44)
    assert (step.workload.num_queries, step.workload.query_length, step.workload.context_length) == (32, 4, 65536)
    assert (step.deployment.world_size, step.deployment.quantize_linear) == (32, "W4A8_DYNAMIC")
    assert step.deployment.quantize_non_expert_linear == "W8A8_DYNAMIC"
    group = recipes(table)
    assert [row.fitted for row in group.rows] == [False] * 6 + [True] * 4
    unknown = {**next(iter(table)), "framework": "cann-recipes, MTP2"}
    assert measured_recipes.step_of(unknown) == "how many drafted tokens were accepted is not recorded"


def test_it_runs_on_the_projects_own_figures() -> None:
    groups = accuracy.groups_of(accuracy.own_tables())
    assert len(groups) == 14
    for group in groups:
        summary = Summary.of(group.held_out)
        assert summary is not None, group.title
        assert all(math.isfinite(row.predicted_s) for row in group.rows)
        assert summary.median < 1.0, group.title
    text = markdown(groups, plots=None, target=ROOT / "docs" / "absent.md")
    for group in groups:
        assert f"(#{anchor(group.title)})" in text
        assert f"\n## {group.title}\n" in text


def test_the_own_figures_name_their_sources() -> None:
    for table in json.loads(accuracy.OWN_FIGURES.read_text(encoding="utf-8")).values():
        assert table["source"]
        assert table["rows"]


def test_the_command_prints_each_group(tmp_path: Path) -> None:
    target = tmp_path / "rows.json"
    command = [sys.executable, "benchmarks/accuracy.py", "--json", str(target)]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert printed.count("\n") == 14
    assert "GEMM, NVIDIA, bf16: n=" in printed
    rows = json.loads(target.read_text(encoding="utf-8"))
    assert {"label", "measured_s", "predicted_s", "fitted", "band"} == set(rows["gemm"]["rows"][0])
