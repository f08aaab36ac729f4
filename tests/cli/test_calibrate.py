"""``msmodeling calibrate``: a device file from a database, and one sentence for what cannot be done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.main import main
from tensor_cast.devices import load_device_file
from tensor_cast.performance_model.profiling_database.paths import DEFAULT_DEVICE, database_directory
from tests.calibration_databases import BF16, write_kernel

A3 = str(database_directory(DEFAULT_DEVICE, "0.15.0", "2.9.0", "8.5"))


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """Three products, each of the same time: too few to fit anything."""
    rows = [([((m, 512), BF16), ((256, 512), BF16)], [((m, 256), BF16)]) for m in (1, 2, 4)]
    write_kernel(tmp_path / "few", "MatMulV2", rows, duration="8")
    return tmp_path / "few"


def test_packaged_database_becomes_a_device_that_can_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    assert main(["calibrate", A3, "--name", "MINE", "--device", "ATLAS_800_A3", "--output", str(path)]) == 0
    shown, progress = capsys.readouterr()
    assert "matmul: 38 rows" in progress
    assert "attention_decode" in shown
    assert "kept: no rows" in shown
    assert f"--device MINE --device-file {path}" in shown
    (profile,) = load_device_file(path)
    assert profile.sources["kernels.vector.memory_efficiency"].startswith(f"fit of 49 rows of {A3}, median error ")
    request = ["text-generate", "Qwen/Qwen3-8B", "--num-queries", "1", "--query-length", "64"]
    request += ["--quantize-linear-action", "DISABLED", "--device", "MINE", "--device-file", str(path)]
    assert main(request) == 0


def test_without_a_base_the_memory_is_asked_for(few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cpu.yaml"
    assert main(["calibrate", str(few), "--name", "MY_CPU", "--output", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "kept: too few rows" in shown
    assert "--memory-gib gives it" in shown
    (profile,) = load_device_file(path)
    # The largest product: 2 * 4 * 512 * 256 FLOP in 8 us.
    assert profile.matrix_flops["bfloat16"] == pytest.approx(131.072e9, rel=1e-3)


def test_base_may_be_a_file(few: Path, tmp_path: Path) -> None:
    base, path = tmp_path / "base.yaml", tmp_path / "mine.yaml"
    base.write_text("name: BASE\nmatrix_flops: {bfloat16: 1e12}\nmemory_bytes: 1e10\nmemory_bandwidth: 1e11\n")
    flags = ["--device-file", str(base), "--memory-gib", "2", "--output", str(path)]
    assert main(["calibrate", str(few), "--name", "MINE", *flags]) == 0
    (profile,) = load_device_file(path)
    assert (profile.matrix_flops["bfloat16"], profile.memory_bytes) == (1e12, 2 * 2**30)
    assert profile.sources["memory_bandwidth"] == "as BASE: stated in base.yaml"


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--name", "H100"], "The name H100 is already taken"),
        (["--name", "two words"], "'two words' is no device name"),
        (["--name", "MINE", "--output", "."], "--output . is a directory"),
        (["--name", "MINE", "--output", "nowhere/mine.yaml"], "there is no directory nowhere"),
        (["--name", "MINE", "--output", "there.yaml"], "there.yaml is there already"),
        (["--name", "MINE", "--device", "H1OO"], "There is no device 'H1OO'"),
        (["--name", "MINE", "--memory-gib", "none"], "--memory-gib must be a number"),
        ([], "--name"),
    ],
)
def test_wrong_requests_are_one_sentence(
    few: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: Sequence[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.yaml").write_text("kept", encoding="utf-8")
    assert main(["calibrate", str(few), *flags]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.splitlines()) == 1
    assert Path("there.yaml").read_text(encoding="utf-8") == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["few", "there.yaml"]


def test_databases_of_no_use_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    output = ["--name", "MINE", "--output", str(tmp_path / "mine.yaml")]
    assert main(["calibrate", str(empty), *output]) == 2
    assert "has no kernel CSV files" in capsys.readouterr().err
    write_kernel(empty, "SwiGlu", [([((8, 64), BF16)], [((8, 32), BF16)])], duration="0")
    assert main(["calibrate", str(empty), *output]) == 2
    assert "has a valid duration" in capsys.readouterr().err
    assert not (tmp_path / "mine.yaml").exists()


def test_a_file_that_cannot_be_written_is_one_sentence(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{'x' * 250}.yaml"
    assert main(["calibrate", str(few), "--name", "MINE", "--output", str(path)]) == 1
    assert "Cannot write" in capsys.readouterr().err
