"""``text-generate --performance-model profiling``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cli.main import main
from tensor_cast.performance_model.empirical import packaged_database

DEVICE, MODEL = "ATLAS_800_A3_752T_128G_DIE", "Qwen/Qwen3-32B"
REQUEST = ("text-generate", MODEL, "--world-size", "16", "--tp-size", "16", "--compile", "--decode")
REQUEST += ("--num-queries", "16", "--query-length", "1", "--context-length", "4096")
REQUEST += ("--quantize-linear-action", "DISABLED")
A3 = ("--device", DEVICE)
PROFILING = ("--performance-model", "profiling")


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main((*REQUEST, *A3, *words, "--json", "-")) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def ops(found: dict[str, object]) -> dict[tuple[str, str], dict[str, object]]:
    rows = found["ops"]
    assert isinstance(rows, list)
    return {(row["name"], row["part"]): row for row in rows}


def test_measured_rows_are_taken_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *PROFILING)
    assert found["performance_model"] == "profiling"
    # MatMulV2.csv: "16,5120;320,200,16,16" -> "16,3200", 31.3731 us, one in each of 64 layers.
    gate_up = ops(found)["matmul", "mlp.gate_up"]
    assert gate_up["source"] == "measured"
    assert gate_up["average_s"] == pytest.approx(31.3731e-6)
    assert gate_up["total_s"] == pytest.approx(64 * 31.3731e-6)
    # AddRmsNormBias.csv: "16,5120;16,5120;5120;", 5.304 us, before attention, before the MLP and at the end.
    assert ops(found)["add_rms_norm", "input_norm"]["average_s"] == pytest.approx(5.304e-6)
    # hcom_allReduce_.csv: 163840 bytes among 16 dies, 21.7 us.
    assert ops(found)["all_reduce", "mlp.down"]["average_s"] == pytest.approx(21.7e-6)
    sources = found["sources_s"]
    assert isinstance(sources, dict)
    assert sum(sources.values()) == pytest.approx(found["total_time_s"] - found["idle_s"])


def test_without_interpolation_only_measured_sizes_count(capsys: pytest.CaptureFixture[str]) -> None:
    sources = document(capsys, *PROFILING, "--disable-profiling-interpolation")["sources_s"]
    assert isinstance(sources, dict)
    assert sources["measured"] > 0.0
    assert sources["interpolated"] == sources["extrapolated"] == 0.0


def test_report_says_what_to_measure_next(capsys: pytest.CaptureFixture[str]) -> None:
    assert main((*REQUEST, *A3, *PROFILING)) == 0
    printed = capsys.readouterr().out
    assert "Where times come from" in printed
    # Rows first, since a replay measures only what there are; the packaged directory is named as the tools have it.
    packaged = f"--device {DEVICE} --vllm-version {packaged_database(DEVICE).name}"
    _, _, commands = printed.partition("\nNext to measure, in this order (tools/perf_data_collection)\n")
    rows, times = commands.splitlines()[:2]
    assert f"generate_shape_grid.py {packaged} --target-models {MODEL} --ops FusedInferAttentionScore " in rows
    assert f"start_microbench.py {packaged} --update-mode missing-only --ops FusedInferAttentionScore " in times
    assert "A profile does not record the lengths of an attention's sequences" in commands


def test_a_database_of_ones_own_is_named_in_what_to_measure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Moved away from its collectives, the database lacks those too: 16 dies take part in each."""
    own = shutil.copytree(packaged_database(DEVICE), tmp_path / "my database")
    assert main((*REQUEST, *A3, *PROFILING, "--profiling-database-path", str(own))) == 0
    printed = capsys.readouterr().out
    assert f"generate_shape_grid.py --database-path '{own}' --target-models" in printed
    collectives = f"comm_bench/generate_comm_microbench.py --database-path '{own}' --ops all_reduce all_gather"
    assert f"torchrun --nproc_per_node=16 {collectives} --num-devices 16" in printed


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((*A3, "--profiling-database-path", "x"), "--profiling-database-path is about measured times"),
        ((*A3, "--disable-profiling-interpolation"), "--disable-profiling-interpolation is about measured times"),
        (("--device", "ATLAS_800_A2_376T_64G", *PROFILING), "No measured times of ATLAS_800_A2_376T_64G"),
        (
            (*A3, *PROFILING, "--profiling-database-path", "/nowhere"),
            "--profiling-database-path /nowhere is no directory.",
        ),
        ((*A3, "--performance-model", "profile"), "Did you mean profiling"),
    ],
)
def test_wrong_requests(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main((*REQUEST, *words)) == 2
    assert says in capsys.readouterr().err


def test_a_damaged_database_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "MatMulV2.csv").write_text("version https://git-lfs.github.com/spec/v1\n", encoding="utf-8")
    assert main((*REQUEST, *A3, *PROFILING, "--profiling-database-path", str(tmp_path))) == 2
    assert "is a Git LFS pointer" in capsys.readouterr().err
