"""The Configuration names every choice that decides the figures, and tables of one report agree."""

from __future__ import annotations

import re
from typing import Any

import pytest

from cli.main import main
from tensor_cast.performance_model.engine import get_engine
from tensor_cast.units import duration

REQUEST = (
    *("text-generate", "deepseek-ai/DeepSeek-V3", "--device", "H200", "--quantize-linear-action", "FP8"),
    *("--num-queries", "64", "--query-length", "1", "--decode", "--context-length", "1000", "--compile"),
    *("--world-size", "16", "--tp-size", "4", "--ep-size", "16"),
)


def report(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    assert main([*REQUEST, *flags]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--engine", "vllm"), f"engine      vllm: {duration(get_engine('vllm').step_s)} of its own a step"),
        (("--expert-skew", "1.5"), "experts ep 16 x tp 1 x dp 1, the busiest rank 1.5 x the mean"),
        (("--enable-redundant-experts",), ", a spare one on each rank"),
        (("--enable-shared-expert-tp",), ", shared ones over tp"),
        (("--block-size", "64"), ", KV cache in blocks of 64 tokens"),
        (("--compilation-config", "enable_multistream"), "graph mode; enable_multistream; launched as a graph"),
        (("--compilation-config", "enable_matmul_allreduce"), "; enable_matmul_allreduce;"),
        (("--compilation-config", "enable_dispatch_ffn_combine"), "; enable_dispatch_ffn_combine;"),
    ],
)
def test_what_decides_the_figures_is_in_the_configuration(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], words: str
) -> None:
    assert words not in report(capsys).partition("\nKernels")[0]
    assert words in report(capsys, *flags).partition("\nKernels")[0]


def test_a_prefill_names_what_the_engine_takes_a_request(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["text-generate", "Qwen/Qwen3-8B", "--device", "H100", "--num-queries", "1", "--query-length", "1"]
    assert main([*arguments, "--quantize-linear-action", "DISABLED", "--engine", "trtllm"]) == 0
    printed = capsys.readouterr().out
    engine = get_engine("trtllm")
    own = f"{duration(engine.step_s)} of its own a step and {duration(engine.request_s)} a request"
    assert (
        f"engine      trtllm: {own}; {engine.launch_overlap:.1%} of a launch hides behind the kernel before" in printed
    )
    assert "1 query x 1 token = 1 token," in printed


def test_an_engines_own_kernels_are_named_with_what_they_reach(capsys: pytest.CaptureFixture[str]) -> None:
    reached = get_engine("vllm").kernels["nvidia_hopper"]["grouped_matmul_fp8"]["matrix_efficiency"]
    words = f"; its FP8 matrix products of experts reach {reached:.1%} of the matrix peak"
    assert words in report(capsys, "--engine", "vllm")
    assert "matrix peak" not in report(capsys, "--engine", "trtllm")
    request = ("text-generate", "openai/gpt-oss-120b", "--device", "H200", "--num-queries", "1", "--query-length", "64")
    assert main([*request, "--quantize-linear-action", "CHECKPOINT", "--engine", "trtllm"]) == 0
    row = get_engine("trtllm").kernels["nvidia_hopper"]["grouped_matmul_bfloat16_fp4"]
    matrix, memory = row["matrix_efficiency"], row["memory_efficiency"]
    words = f"reach {matrix:.1%} of the matrix peak and {memory:.1%} of the bandwidth, and take "
    assert words + f"{duration(row['fixed_s'])} each beside" in capsys.readouterr().out


def test_a_fused_kernel_of_experts_is_the_engines_too(capsys: pytest.CaptureFixture[str]) -> None:
    fused = ("--compilation-config", "enable_dispatch_ffn_combine", "--ep-size", "16")
    assert "; its FP8 matrix products of experts reach " in report(capsys, "--engine", "vllm", *fused)


@pytest.mark.parametrize("flags", [(), ("--engine", "vllm"), ("--engine", "mindie")])
def test_categories_and_the_time_without_a_kernel_make_the_step(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    printed = report(capsys, *flags)
    categories = printed.partition("\nCategories\n")[2].partition("\n\n")[0]
    rows: dict[str, Any] = dict(re.findall(r"^  (\w+(?: \w+)?) +([\d.]+) +[\d.]+%$", categories, re.MULTILINE))
    assert ("no kernel" in rows) == bool(flags)
    step_ms = float(re.findall(r"execution time +([\d.]+) ms", printed)[0])
    assert sum(map(float, rows.values())) == pytest.approx(step_ms, abs=0.005)


def test_a_collective_is_told_from_its_row_where_that_holds_a_gap(capsys: pytest.CaptureFixture[str]) -> None:
    note = "Transfers alone: the rows of Kernels also hold the gap after each launch."
    assert note not in report(capsys)
    arguments = ["text-generate", "Qwen/Qwen3-8B", "--num-queries", "1", "--query-length", "1"]
    ascend = ("--device", "ATLAS_800_A2_376T_64G", "--quantize-linear-action", "DISABLED")
    assert main([*arguments, *ascend, "--world-size", "2", "--tp-size", "2"]) == 0
    assert note in capsys.readouterr().out
