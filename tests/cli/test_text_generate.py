"""``msmodeling text-generate``: what it prints and writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cli.main import main
from tensor_cast import Deployment, TextWorkload, simulate
from tests.commands import document, printed

PREFILL = ("Qwen/Qwen3-8B", "--device", "TEST_DEVICE", "--num-queries", "2", "--query-length", "512")
REQUEST = ("text-generate", *PREFILL, "--quantize-linear-action", "DISABLED")
DECODE = (
    "text-generate", "deepseek-ai/DeepSeek-V3", "--device", "TEST_DEVICE", "--num-queries", "64", "--query-length", "1",
    "--context-length", "4096", "--decode", "--quantize-linear-action", "W8A8_DYNAMIC",
)  # fmt: skip
STRATEGY = ("--world-size", "16", "--tp-size", "8", "--dp-size", "2", "--ep-size", "16")


def rows_of(text: str, title: str) -> list[list[str]]:
    """Cells of a table's rows, its header first."""
    block = text.split(f"{title}\n", 1)[1].split("\n\n", 1)[0]
    return [line.split() for line in block.splitlines() if not line.strip().startswith("---")]


def test_every_section_is_printed_in_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *REQUEST)
    titles = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert titles == ["Configuration", "Kernels", "Categories", "Time", "Memory of the fullest device"]
    assert "\x1b" not in text
    assert "8,190,735,360 (8.19 B), all of them active" in text
    assert "2 queries x 512 tokens = 1,024 tokens" in text


def test_kernels_are_sorted_by_time_and_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    header, *rows, total = rows_of(printed(capsys, *REQUEST, "--all-kernels"), "Kernels")
    assert header == [
        "kernel",
        "part",
        "category",
        "calls",
        "total",
        "ms",
        "avg",
        "ms",
        "share",
        "bound",
        "source",
        "error",
    ]
    times = [float(row[4].replace(",", "")) for row in rows]
    assert times == sorted(times, reverse=True)
    assert sum(times) == pytest.approx(float(total[2].replace(",", "")), abs=0.001 * len(times))
    assert sum(int(row[3].replace(",", "")) for row in rows) == int(total[1].replace(",", ""))
    assert {row[7] for row in rows} <= {"matrix", "vector", "memory", "comm", "fixed"}
    assert {row[8] for row in rows} == {"analytic"}


def test_the_json_is_the_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    estimate = simulate(
        "Qwen/Qwen3-8B",
        device="TEST_DEVICE",
        workload=TextWorkload(num_queries=2, query_length=512),
        deployment=Deployment(),
    )
    found = document(capsys, *REQUEST)
    assert f"At most {found['most_queries']:,} queries of this length fit at once" in printed(capsys, *REQUEST)
    room = {"would_fit": [], "most_queries": found["most_queries"]}
    assert found == json.loads(json.dumps(estimate.to_dict() | room))


def test_the_json_has_the_promised_keys(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *DECODE, *STRATEGY)
    assert {
        "schema_version", "model", "device", "workload", "deployment", "parameters", "total_time_s",
        "tokens_per_s_per_device", "ttft_s", "tpot_s", "categories", "ops", "collectives", "memory",
    } <= found.keys()  # fmt: skip
    assert {"name", "category", "count", "total_s", "average_s", "share", "bound", "source", "flops", "bytes"} <= set(
        found["ops"][0]
    )
    assert {"name", "count", "bytes", "group_size", "link", "total_s"} <= set(found["collectives"][0])
    assert set(found["memory"]) >= {
        "weights_bytes", "kv_cache_bytes", "activation_bytes", "reserved_bytes", "device_bytes", "available_bytes",
        "fits",
    }  # fmt: skip
    assert set(found["categories"]) == {"FlashAttention", "MatMul", "Vector", "Comm"}
    assert found["ttft_s"] is None
    assert found["tpot_s"] == found["total_time_s"]


def test_a_json_file_comes_beside_the_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "größe 1.json"
    text = printed(capsys, *REQUEST, "--json", str(file))
    assert "Kernels" in text
    assert json.loads(file.read_text(encoding="utf-8"))["model"]["name"] == "Qwen/Qwen3-8B"
    assert list(tmp_path.iterdir()) == [file]


def test_what_does_not_fit_is_said_first_and_still_timed(capsys: pytest.CaptureFixture[str]) -> None:
    # 16.4 GB of weights and 60 GB reserved of 68.7 GB.
    words = (*REQUEST, "--reserved-memory-gb", "60")
    first, _, rest = printed(capsys, *words).partition("\n")
    assert first.startswith("Does not fit: a device needs 76.")
    assert "it would fit with" in first
    assert "execution time" in rest
    found = document(capsys, *words)
    assert found["memory"]["fits"] is False
    assert found["memory"]["reserved_bytes"] == 60e9
    assert found["total_time_s"] > 0
    assert found["would_fit"]
    assert "At most" not in rest
    assert found["most_queries"] < found["workload"]["num_queries"]


def test_collectives_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    header, *rows = rows_of(printed(capsys, *DECODE, *STRATEGY, "--compile"), "Collectives")
    assert header[:3] == ["collective", "part", "calls"]
    assert {row[0] for row in rows} >= {"all_reduce", "all_gather", "all_to_all"}
    reduced = next(row for row in rows if row[:2] == ["all_reduce", "attention.output"])
    # 61 layers; 32 queries of a TP group, hidden 7168, bfloat16.
    assert reduced[2:7] == ["61", "459", "kB", "8", "server"]


def test_tpot_is_told_of_a_decode_and_ttft_of_a_prefill(capsys: pytest.CaptureFixture[str]) -> None:
    prefill, decode = printed(capsys, *REQUEST), printed(capsys, *DECODE, *STRATEGY)
    assert "TTFT" in prefill
    assert "TPOT" not in prefill
    assert "TPOT" in decode
    assert "TTFT" not in decode


def test_input_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *REQUEST, "--dump-input-shapes")
    assert "bfloat16[1024,4096] bfloat16[4096,6144] -> bfloat16[1024,6144]" in text


def test_op_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *REQUEST, "--dump-op-bound-results")
    header, *rows = rows_of(text, "Bounds: time of all calls if only this limited them; fixed comes on top")
    assert header == [
        "kernel",
        "part",
        *(w for b in ("matrix", "vector", "memory", "comm", "fixed") for w in (b, "ms")),
    ]
    # 36 products of 1,024 x 4,096 by 4,096 x 24,576 at 100 TFLOP/s; 8 x 192 tiles fill 153.6 waves of 10 cores.
    gate_up = next(row for row in rows if row[1] == "mlp.gate_up")
    expected_ms = 36 * 2 * 1024 * 4096 * 24576 / 100e12 * 1e3 * 154 / 153.6
    assert float(gate_up[2]) == pytest.approx(expected_ms, abs=5e-4)


def test_the_catalogs_short_names_cases_and_hyphens_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    same = ("text-generate", "qwen3-8b", "--device", "test_device", "--num-queries", "2", "--query-length", "512")
    assert printed(capsys, *same, "--quantize-linear-action", "disabled") == printed(capsys, *REQUEST)
    by_flag = ("text-generate", "--model-id", *PREFILL, "--quantize-linear-action", "DISABLED")
    assert printed(capsys, *by_flag) == printed(capsys, *REQUEST)


def test_num_devices_is_world_size(capsys: pytest.CaptureFixture[str]) -> None:
    spread = document(capsys, *REQUEST, "--num-devices", "4", "--tp-size", "4")
    assert spread == document(capsys, *REQUEST, "--world-size", "4", "--tp-size", "4")
    assert spread["deployment"]["parallel"]["tp"] == 4


@pytest.mark.parametrize(
    "names",
    [
        ("enable_multistream", "enable_matmul_allreduce"),
        ("enable-multistream,enable_matmul_allreduce",),
        ("ENABLE_MULTISTREAM", "--compilation-config", "enable_matmul_allreduce"),
    ],
)
def test_compilation_options_in_any_spelling(capsys: pytest.CaptureFixture[str], names: tuple[str, ...]) -> None:
    deployed = document(capsys, *DECODE, *STRATEGY, "--compile", "--compilation-config", *names)["deployment"]
    assert deployed["enable_multistream"]
    assert deployed["enable_matmul_allreduce"]
    assert not deployed["enable_dispatch_ffn_combine"]


def test_sequence_parallelism_by_either_flag(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*REQUEST, "--world-size", "2", "--tp-size", "2", "--compile")
    by_option = document(capsys, *words, "--compilation-config", "enable_sequence_parallel")
    assert by_option == document(capsys, *words, "--enable-sequence-parallel")
    assert by_option["deployment"]["enable_sequence_parallel"]


def test_every_workload_and_quantisation_flag_arrives(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(
        capsys, *DECODE, *STRATEGY, "--num-mtp-tokens", "1", "--mtp-acceptance-rate", "0.8", "--dtype", "fp16",
        "--quantize-non-expert-linear-action", "W8A16_STATIC", "--quantize-lmhead", "--quantize-attention-action",
        "INT8", "--mxfp4-group-size", "16", "--block-size", "128", "--num-hidden-layers-override", "5",
        "--enable-redundant-experts", "--enable-shared-expert-tp", "--query-length", "2",
    )  # fmt: skip
    assert found["workload"].items() >= {
        "num_queries": 64.0, "query_length": 2.0, "context_length": 4096.0, "decode": True,
        "prefix_cache_hit_rate": 0.0, "num_mtp_tokens": 1,
    }.items()  # fmt: skip
    assert found["workload"]["mtp_acceptance_rate"] == [0.8]
    deployed = found["deployment"]
    assert (deployed["quantize_linear"], deployed["quantize_non_expert_linear"]) == ("W8A8_DYNAMIC", "W8A16_STATIC")
    assert (deployed["quantize_lmhead"], deployed["quantize_attention"]) == (True, "INT8")
    assert (deployed["mxfp4_group_size"], deployed["block_size"], deployed["dtype"]) == (16, 128, "float16")
    assert deployed["enable_redundant_experts"]
    assert deployed["enable_shared_expert_tp"]
    assert found["model"]["layers"] == 5
    # One token and 0.8 more expected.
    assert found["tpot_s"] == pytest.approx(found["total_time_s"] / 1.8)
    halved = document(capsys, *REQUEST, "--prefix-cache-hit-rate", "0.5")
    assert halved["workload"]["prefix_cache_hit_rate"] == 0.5
    assert halved["total_time_s"] < document(capsys, *REQUEST)["total_time_s"]


def test_engine_and_execution_arrive(capsys: pytest.CaptureFixture[str]) -> None:
    plain, served, eager = (
        document(capsys, *REQUEST, *words)
        for words in ((), ("--engine", "vllm"), ("--engine", "sglang", "--execution", "eager"))
    )
    assert (served["deployment"]["engine"], served["deployment"]["execution"]) == ("vllm", "graph")
    assert served["idle_s"] > plain["idle_s"]
    assert (eager["deployment"]["engine"], eager["deployment"]["execution"]) == ("sglang", "eager")


def test_the_time_says_how_wrong_it_may_be(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("text-generate", "Qwen/Qwen3-8B", "--device", "H100_SXM_80GB", "--num-queries", "2")
    assert main((*words, "--query-length", "512", "--quantize-linear-action", "DISABLED")) == 0
    line = next(text for text in capsys.readouterr().out.splitlines() if "execution time" in text)
    assert re.search(r"execution time +[\d.,]+ \w+ \(-\d+ % … \+\d+ %, in four cases of five\)", line), line


def test_parallel_flags_arrive(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*DECODE, "--world-size", "16", "--tp-size", "4", "--pp-size", "2", "--mlp-tp-size", "2")
    sizes = document(
        capsys, *words, "--dp-size", "2", "--ep-size", "4", "--moe-tp-size", "2", "--moe-dp-size", "1",
        "--lmhead-tp-size", "8", "--o-proj-tp-size", "8", "--dcp-size", "2",
    )["deployment"]["parallel"]  # fmt: skip
    assert sizes == {
        "world": 16, "tp": 4, "dp": 2, "pp": 2, "ep": 4, "moe_tp": 2, "moe_dp": 1, "mlp_tp": 2, "o_proj_tp": 8,
        "lmhead_tp": 8, "dcp": 2,
    }  # fmt: skip


def test_a_model_and_a_device_of_ones_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    directory = tmp_path / "mein Modell ü"
    directory.mkdir()
    config = {"model_type": "mystery", "hidden_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8}
    config |= {"intermediate_size": 4096, "vocab_size": 32000, "num_key_value_heads": 8}
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    device = tmp_path / "mine.yaml"
    device.write_text(
        "name: MINE\nmatrix_flops: {bfloat16: 1e12}\nmemory_bytes: 68719476736\nmemory_bandwidth: 1e9\n",
        encoding="utf-8",
    )
    words = ("text-generate", str(directory), "--model-family", "llama", "--device", "MINE", "--device-file")
    rest = ("--num-queries", "1", "--query-length", "8", "--quantize-linear-action", "DISABLED")
    found = document(capsys, *words, str(device), *rest)
    assert found["device"] == "MINE"
    assert found["model"]["family"] == "llama"
    assert str(directory) in found["model"]["origin"]


def test_a_context_beyond_the_models_warns(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *REQUEST, "--context-length", "100000")
    assert "Warning: 100,512 tokens a sequence are more than the 40,960" in text


def test_a_draft_model_and_a_checkpoints_own_format(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("text-generate", "openai/gpt-oss-20b", "--device", "TEST_DEVICE", "--decode", "--num-queries", "1")
    rest = ("--query-length", "3", "--context-length", "100", "--quantize-linear-action", "CHECKPOINT")
    text = printed(capsys, *words, *rest, "--draft-model", "qwen3-0.6b", "--num-draft-tokens", "2")
    assert "2 tokens drafted by Qwen/Qwen3-0.6B" in text
    assert "linear layers CHECKPOINT (W4A16_MXFP4)" in text
    found = document(capsys, *words, *rest, "--draft-model", "qwen3-0.6b", "--num-draft-tokens", "2")
    assert found["model"]["draft"] == "Qwen/Qwen3-0.6B"


def test_log_levels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main((*REQUEST, "--log-level", "info")) == 0
    told = capsys.readouterr().err
    assert "model Qwen/Qwen3-8B, family qwen3, from catalog" in told
    assert "device TEST_DEVICE" in told
    assert "kernels estimated in" not in told
    assert main((*REQUEST, "--log-level", "DEBUG")) == 0
    assert "kernels estimated in" in capsys.readouterr().err
