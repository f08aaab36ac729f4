"""Directories from device and versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database import paths
from tensor_cast.performance_model.profiling_database.paths import (
    communication_directories,
    database_directory,
    newest,
    version_text,
)

DEVICE = "ATLAS_800_A3_752T_128G_DIE"


@pytest.mark.parametrize(
    ("vllm", "torch", "cann", "name"),
    [
        ("0.18.0", "2.9.0", "8.5.0", "vllm0.18.0_torch2.9.0_cann8.5.0"),
        (" vllmv0.18.0 ", "torch2.9.0+cpu", "CANN8.5.0", "vllm0.18.0_torch2.9.0_cann8.5.0"),
        ("v0.18.0rc1", "2.9.0.post1", "8.5.RC1", "vllm0.18.0rc1_torch2.9.0.post1_cann8.5.RC1"),
    ],
)
def test_versions_are_normalised(vllm: str, torch: str, cann: str, name: str) -> None:
    directory = database_directory(DEVICE, vllm, torch, cann, data_directory=Path("/data"))
    assert directory == Path("/data") / DEVICE / "vllm_ascend" / name


def test_a_whole_directory_name_is_taken_verbatim() -> None:
    name = "vllm0.18.0_torch2.9.0_cann8.5_shape_generated"
    assert database_directory(DEVICE, name, data_directory=Path("/data")).name == name


@pytest.mark.parametrize("others", [("2.9.0", None), (None, "8.5"), ("2.9.0", "8.5")])
def test_a_whole_directory_name_takes_no_other_version(others: tuple[str | None, str | None]) -> None:
    with pytest.raises(ModelingError, match="names the whole stack: leave out --torch-version and --cann-version"):
        database_directory(DEVICE, "vllm0.18.0_torch2.9.0_cann8.5", *others)


def test_missing_versions_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def detected(parts: list[str]) -> dict[str, str]:
        asked.extend(parts)
        return {"PyTorch": "2.9.0+cpu", "CANN": "8.5.0"}

    monkeypatch.setattr(paths, "detected_versions", detected)
    assert database_directory(DEVICE, "0.18.0").name == "vllm0.18.0_torch2.9.0_cann8.5.0"
    assert asked == ["PyTorch", "CANN"]


def test_undetected_versions_are_named_with_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "detected_versions", lambda _parts: {"PyTorch": "2.9.0"})
    with pytest.raises(
        ModelingError, match=r"version of vLLM-Ascend and CANN was not found.*--vllm-version and --cann"
    ):
        database_directory(DEVICE)


@pytest.mark.parametrize("text", ["0.18.0", "vllm0.18.0_torch2.9.0+cpu_cann8.5", " 8.5.RC1-1 "])
def test_versions(text: str) -> None:
    assert version_text(text) == text.strip()


@pytest.mark.parametrize("text", ["", "..", "../x", "a/b", "1..2", "-1", "1_"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version"):
        version_text(text)


def test_collectives_lie_beside_the_kernels(tmp_path: Path) -> None:
    database = tmp_path / DEVICE / "vllm_ascend" / "vllm0.18.0_torch2.9.0_cann8.5.0_shape_generated"
    short = tmp_path / DEVICE / "hccl" / "v8.5"
    assert communication_directories(database) == []
    short.mkdir(parents=True)
    assert communication_directories(database) == [short]
    exact = short.parent / "v8.5.0"
    exact.mkdir()
    assert communication_directories(database) == [exact, short]
    assert communication_directories(tmp_path / "mine") == []


def test_the_newest_has_the_highest_numbers_and_not_the_last_letters() -> None:
    names = ("vllm0.9.2_torch2.5.1_cann8.1", "vllm0.15.0_torch2.9.0_cann8.5", "vllm0.15.0_torch2.7.1_cann8.5")
    assert newest(map(Path, names)) == Path("vllm0.15.0_torch2.9.0_cann8.5")
    assert newest([]) is None
