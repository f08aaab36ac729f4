"""A profile of seven kernels whose every figure is worked out below, and the published samples where they are there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from tensor_cast.errors import ModelingError
from tensor_cast.evaluation.explain.kernel_families import family
from tensor_cast.evaluation.explain.layers import explain
from tensor_cast.evaluation.explain.matching import KernelMatch
from tensor_cast.evaluation.explain.profile_rows import profile_paths, read_profile
from tensor_cast.evaluation.explain.steps import choose_step
from tensor_cast.evaluation.kernel_rows import KernelRow, row_to_dict
from tensor_cast.evaluation.results import Results

SAMPLES = Path(__file__).parents[3] / "shared/contracts/samples"
HEADER = (
    "Step Id,Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Input Shapes,Output Shapes"
)
BASE = 1764246877073569


def _row(step: str, name: str, kind: str, start: float, duration: float, inputs: str, outputs: str) -> str:
    core = "COMMUNICATION" if kind.startswith("hcom") else "AI_CORE"
    return f'{step},0,{name},{kind},{core},{BASE + start}\t,{duration},0,"""{inputs}""","""{outputs}"""'


STEP = [
    # Two matmuls back to back, a gap of 15 us, a norm, a collective that overlaps its last 2 us, an unpredicted cast.
    _row("7", "mm1", "MatMulV2", 0, 10, "8,64;64,32", "8,32"),
    _row("7", "mm2", "MatMulV3", 10, 10, "8,64;32,64", "8,32"),
    _row("7", "norm", "RmsNorm", 35, 5, "8,64;64", "8,64;8,1"),
    _row("7", "hcom_allReduce__1_0_1", "hcom_allReduce_", 38, 20, "N/A", "N/A").replace('"""N/A"""', "N/A"),
    _row("7", "hcom_AivKernel_1", "allReduceAivKernel", 38, 20, "N/A", "N/A").replace('"""N/A"""', "N/A"),
    _row("7", "cast", "Cast", 58, 2, "8,64", "8,64"),
    _row("", "outside", "Cast", 90, 2, "8,64", "8,64"),
]


def _predicted(name: str, category: str, count: float, total_us: float, inputs: Any, outputs: Any) -> KernelRow:
    return KernelRow(name, "part", category, inputs, outputs, (), count, total_us * 1e-6, "memory")


KERNELS = [
    _predicted("matmul", "MatMul", 2, 16, ((8, 64), (64, 32)), ((8, 32),)),
    _predicted("rms_norm", "Vector", 2, 8, ((8, 64), (64,)), ((8, 64),)),
    _predicted("swiglu", "Vector", 1, 3, ((8, 64),), ((8, 32),)),
    _predicted("all_reduce", "Comm", 1, 20, ((8, 64),), ((8, 64),)),
]


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "kernel_details.csv"
    # A byte-order mark and CRLF, as spreadsheets and torch_npu leave them.
    path.write_bytes(("\ufeff" + "\r\n".join([HEADER, *STEP]) + "\r\n").encode())
    return path


@pytest.fixture
def results(tmp_path: Path) -> Results:
    summary = {
        "kernels": [row_to_dict(row) for row in KERNELS],
        "metrics": {"execution_time_s": 47e-6},
        "estimate": {"overlapped_s": 0.0, "idle_s": 0.0, "ops": [{"count": row.count} for row in KERNELS]},
    }
    config = {"model": {"model": "m", "spec": "s"}, "device": {"name": "D"}}
    return Results(tmp_path / "m_s_d_w1_tp1_dp1_ep1", config, summary)


def test_the_step_adds_up(profile: Path, results: Results) -> None:
    found = explain(profile, results)
    parts = {part.name: (round(part.measured_s * 1e6, 6), round(part.predicted_s * 1e6, 6)) for part in found.parts}
    assert parts == {
        "FlashAttention": (0.0, 0.0),
        "MatMul": (20.0, 16.0),
        "Vector": (7.0, 11.0),  # norm 5 and cast 2; predicted 8 and 3
        "Comm": (20.0, 20.0),  # its device task is the same work once more, and is left out
        "between kernels": (15.0, 0.0),
        "overlapped": (-2.0, 0.0),
    }
    assert found.measured_s == pytest.approx(60e-6)
    assert sum(part.measured_s for part in found.parts) == pytest.approx(found.measured_s)
    assert sum(part.predicted_s for part in found.parts) == pytest.approx(found.predicted_s)
    assert found.largest.name == "between kernels"
    assert found.step.outside == 1


def test_of_a_generation_one_run_of_each_kind_is_predicted(profile: Path, results: Results) -> None:
    # Twenty steps of six launches; the kernels are of one, and so are a twentieth of the gaps.
    estimate = {"overlapped_s": 0.0, "idle_s": 100e-6, "ops": [{"count": 20 * row.count} for row in KERNELS]}
    summary = {**results.summary, "metrics": {"execution_time_s": 20 * 47e-6 + 100e-6}, "estimate": estimate}
    found = explain(profile, Results(results.directory, results.config, summary))
    gaps = next(part for part in found.parts if part.name == "between kernels")
    assert gaps.predicted_s == pytest.approx(5e-6)
    assert found.predicted_s == pytest.approx(47e-6 + 5e-6)


def test_a_line_that_was_cut_off_is_counted(profile: Path, results: Results) -> None:
    whole = explain(profile, results)
    with profile.open("a") as stream:
        stream.write("7,0,mm3,MatMul")
    cut = explain(profile, results)
    assert (whole.malformed, cut.malformed) == (0, 1)
    assert cut.parts == whole.parts


def test_kernels_add_up_to_their_category(profile: Path, results: Results) -> None:
    found = explain(profile, results)
    for part in found.parts[:4]:
        kernels = found.kernels_of(part.name)
        assert sum(match.difference_s for match in kernels) == pytest.approx(part.difference_s, abs=1e-12)


def test_kernels_are_matched_by_what_they_do_and_their_sizes(profile: Path, results: Results) -> None:
    matches = {match.family: match for match in explain(profile, results).kernels}
    matmul = matches["matmul"]  # both types, and weights of either orientation, are one line
    assert (matmul.measured_calls, matmul.predicted_calls) == (2, 2)
    assert matmul.measured_names == ("MatMulV2", "MatMulV3")
    assert matmul.predicted_names == ("matmul (part)",)
    assert matmul.verdict == "slower"
    assert matches["all_reduce"].verdict == "as predicted"
    assert matches["copy"].verdict == "not predicted"
    assert matches["activation"].verdict == "not measured"


def test_calls_and_time_are_told_apart(profile: Path, results: Results) -> None:
    norm = next(match for match in explain(profile, results).kernels if match.family == "rms_norm")
    # Predicted 2 calls of 4 us; measured 1 of 5 us: one call less is -4 us, and the call itself takes 1 us more.
    assert norm.difference_s == pytest.approx(-3e-6)
    assert norm.calls_difference_s == pytest.approx(-4e-6)
    assert norm.time_difference_s == pytest.approx(1e-6)
    assert norm.verdict == "fewer calls"


def test_a_kernel_within_a_tenth_is_as_predicted() -> None:
    def verdict(measured_us: float) -> str:
        return KernelMatch("matmul", "MatMul", "", (), (), 1, measured_us * 1e-6, 1, 100e-6).verdict

    assert [verdict(us) for us in (89, 91, 109, 111)] == ["faster", "as predicted", "as predicted", "slower"]


def test_gaps_name_the_kernels_around_them(profile: Path, results: Results) -> None:
    (gap,) = explain(profile, results).step.gaps
    assert (gap.after, gap.before) == ("mm2", "norm")
    assert gap.seconds == pytest.approx(15e-6)


def test_the_step_of_median_length_is_taken(tmp_path: Path) -> None:
    lengths = {"1": 90, "2": 10, "3": 12}
    rows = [_row(step, "k", "Add", 1000 * int(step), length, "4", "4") for step, length in lengths.items()]
    path = tmp_path / "kernel_details.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    kernels = read_profile([path]).kernels
    assert choose_step(kernels).step == "3"
    assert choose_step(kernels, step="1").total_s == pytest.approx(90e-6)
    with pytest.raises(ModelingError, match="no step '4': it has 1, 2, 3"):
        choose_step(kernels, step="4")
    with pytest.raises(ModelingError, match="numbers its steps"):
        choose_step(kernels, repeats=2)


def test_a_profile_of_equal_steps_is_divided(tmp_path: Path) -> None:
    path = tmp_path / "op_summary_1.csv"
    header = "Device_id,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us)"
    rows = [f"0,k{i},Add,AI_VECTOR_CORE,{BASE + 10 * i},6" for i in range(4)]
    path.write_text("\n".join([header, *rows]) + "\n")
    step = choose_step(read_profile([path]).kernels, repeats=2)
    # 4 kernels of 6 us, 10 us apart: 36 us with three gaps of 4 us, over two steps.
    assert step.total_s == pytest.approx(18e-6)
    assert step.kernels_s == pytest.approx(12e-6)
    assert step.gaps_s == pytest.approx(6e-6)


def test_the_rank_that_is_busy_longest_is_taken(tmp_path: Path) -> None:
    rows = [_row("1", "k", "Add", 0, 5, "4", "4"), _row("1", "k", "Add", 0, 9, "4", "4").replace("1,0,", "1,3,", 1)]
    path = tmp_path / "kernel_details.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    kernels = read_profile([path]).kernels
    assert choose_step(kernels).rank == "device 3"
    assert choose_step(kernels, rank="0").total_s == pytest.approx(5e-6)
    with pytest.raises(ModelingError, match="no rank '5': it has device 0, device 3"):
        choose_step(kernels, rank="5")


@pytest.mark.parametrize(
    ("measured", "predicted"),
    [
        ("MatMulV3", "matmul"),
        ("QuantBatchMatmulV3", "quant_matmul"),
        ("GroupedMatmul", "grouped_matmul"),
        ("FusedInferAttentionScore", "flash_attention"),
        ("RotaryPositionEmbedding", "rope"),
        ("AddRmsNorm", "add_rms_norm"),
        ("SwiGlu", "swiglu"),
        ("hcom_allGather_", "all_gather"),
        ("hcom_alltoallv_", "all_to_all"),
        ("DynamicQuant", "dynamic_quant"),
        ("ArgMaxV2", "arg_max"),
        ("GatherV2", "embedding"),
        ("split_qkv_rmsnorm_rope_kernel", "split_qkv_rmsnorm_rope"),
        ("Conv3DV2", "conv3d"),
    ],
)
def test_both_names_of_a_kernel_are_one_family(measured: str, predicted: str) -> None:
    assert family(measured) == family(predicted)


def test_training_kernels_are_apart() -> None:
    assert family("FlashAttentionScoreGrad") != family("flash_attention")
    assert family("ApplyAdamWV2")[0].endswith("(training)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "no column Name, Start Time"),
        (f"{HEADER}\n", "No kernel is in"),
        (
            f"{HEADER}\n{_row('1', 'k', 'Add', 0, 5, '4', '4').replace(',5,', ',long,')}\n",
            "Duration.us. of k is 'long'",
        ),
        (f"{HEADER}\n{_row('1', 'k', 'Add', 0, 5, '4', '4').replace(str(BASE), 'x')}\n", "Start Time.us. of k is 'x'"),
    ],
)
def test_what_is_no_profile_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv"
    path.write_text(text)
    with pytest.raises(ModelingError, match=message):
        read_profile([path])


def test_a_directory_is_searched_for_the_profilers_files(tmp_path: Path) -> None:
    with pytest.raises(ModelingError, match="holds no kernel_details"):
        profile_paths(tmp_path)
    with pytest.raises(ModelingError, match="does not exist"):
        profile_paths(tmp_path / "nowhere")
    for name in ("PROF_1/op_summary_1.csv", "ASCEND_PROFILER_OUTPUT/kernel_details.csv", "operator_details.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert [path.name for path in profile_paths(tmp_path)] == ["kernel_details.csv"]


def test_the_command_writes_three_views(
    text_results: Path, profile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(text_results, tmp_path / text_results.name)
    assert main(["explain", "--profile", str(profile), "--results", str(copy), "--language", "zh"]) == 0
    printed = capsys.readouterr().out
    assert "step: measured 60.00 us, predicted" in printed
    assert "between kernels  +" in printed or "between kernels  -" in printed
    document = json.loads((copy / "explain/explanation.json").read_text())
    assert document["step"] == "7"
    assert document["step_time"]["measured_s"] == pytest.approx(60e-6)
    assert document["gaps"]["longest"][0]["after"] == "mm2"
    parts = sum(part["difference_s"] for part in document["categories"])
    assert parts == pytest.approx(document["step_time"]["difference_s"])
    page = (copy / "explain/explanation.html").read_text()
    assert page.count("<svg") == 2
    chapters = [line for line in (copy / "explain/explanation.md").read_text().splitlines() if line.startswith("## ")]
    assert chapters == ["## 1. 整步", "## 2. 类别", "## 3. 算子与形状", "## 4. 算子间空隙"]


PUBLISHED = sorted([*SAMPLES.glob("kernel_details*.csv"), *SAMPLES.glob("op_summary*.csv")])


@pytest.mark.parametrize("published", [None, *PUBLISHED])
def test_every_profile_adds_up(published: Path | None, profile: Path, results: Results) -> None:
    """The profile of this file, and each published sample that is beside the checkout."""
    found = explain(published or profile, results)
    assert sum(part.measured_s for part in found.parts) == pytest.approx(found.measured_s)
    assert sum(match.measured_s for match in found.kernels) == pytest.approx(found.step.kernels_s)


# Matmuls of a forward of Qwen3-0.6B at 4096 tokens on an Atlas A2, as a published profile of MindStudio Insight's tests
# (kernel_details with Block Num) has them: inner and outer width, microseconds.
FORWARD = [(1024, 4096, 170.4), (2048, 1024, 98.26), (1024, 6144, 239.34), (3072, 1024, 130.02)]


def _forward(path: Path) -> Path:
    rows = [
        _row("1", f"matmul_{layer}_{k}_{n}", "MatMulV3", 1000 * layer + 250 * i, us, f"4096,{k};{n},{k}", f"4096,{n}")
        for layer in range(2)
        for i, (k, n, us) in enumerate(FORWARD)
    ]
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


@pytest.mark.parametrize("published", [None, *(p for p in PUBLISHED if p.stem == "kernel_details_block_num_bom_crlf")])
def test_a_forward_is_matched_shape_by_shape(published: Path | None, tmp_path: Path) -> None:
    """Two layers of Qwen3-0.6B at 4096 tokens: each of its four matmuls runs twice, as predicted."""
    profile = published or _forward(tmp_path / "kernel_details.csv")
    request = (
        *("evaluate", "text", "--model", "Qwen/Qwen3-0.6B", "--device", "ATLAS_800_A2_376T_64G"),
        *("--num-queries", "1", "--query-length", "4096", "--num-hidden-layers-override", "2"),
        *("--quantize-linear-action", "DISABLED", "--iterations", "1", "--no-advice"),
        *("--output-dir", str(tmp_path / "results")),
    )
    assert main([*request]) == 0
    results = next((tmp_path / "results").iterdir())
    assert main(["explain", "--profile", str(profile), "--results", str(results)]) == 0
    document = json.loads((results / "explain/explanation.json").read_text())
    matmuls = [one for one in document["kernels"] if one["family"] == "matmul" and one["measured"]["calls"]]
    assert len(matmuls) == 4
    assert all(one["predicted"]["calls"] == 2 for one in matmuls)
    assert all(
        0.7 < one["measured"]["total_s"] / one["measured"]["calls"] * 2 / one["predicted"]["total_s"] < 1.6
        for one in matmuls
    )
