"""Finding versions on a machine."""

from __future__ import annotations

import sys
import types
from importlib import metadata
from pathlib import Path

import pytest

from tensor_cast.performance_model.profiling_database.versions import (
    CANN_HOME_VARIABLES,
    cann_version_on_disk,
    detected_versions,
)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("ascend_toolkit_install.info", "package_name=Ascend-cann-toolkit\nversion=8.5.0\n"),
        ("version.info", "package_version: 8.5.0\n"),
        ("latest/version.info", "Version=[8.5.0]\n"),
        ("version.info", 'version="8.5.0"\n'),
        ("version.info", "version=[8.5.0:CANN-8.5]\n"),
        ("aarch64-linux/ascend_toolkit_install.info", "version = 8.5.0\ninnerversion=V100\n"),
    ],
)
def test_cann_is_read_from_its_installation(tmp_path: Path, place: str, text: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text(text)
    assert cann_version_on_disk({"ASCEND_TOOLKIT_HOME": str(tmp_path)}, usual_homes=()) == "8.5.0"
    assert cann_version_on_disk({}, usual_homes=[str(tmp_path)]) == "8.5.0"


def test_variables_are_tried_in_their_order(tmp_path: Path) -> None:
    environment = {}
    for number, variable in enumerate(CANN_HOME_VARIABLES):
        home = tmp_path / variable
        home.mkdir()
        (home / "version.info").write_text(f"version=8.{number}\n")
        environment[variable] = str(home)
    assert cann_version_on_disk(environment, usual_homes=()) == "8.0"
    (tmp_path / CANN_HOME_VARIABLES[0] / "version.info").write_text("nothing of use\n")
    assert cann_version_on_disk(environment, usual_homes=()) == "8.1"
    assert cann_version_on_disk({}, usual_homes=[str(tmp_path)]) is None


def test_packages_before_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"vllm_ascend": "0.18.0"}

    def version(name: str) -> str:
        try:
            return installed[name]
        except KeyError:
            raise metadata.PackageNotFoundError(name) from None

    monkeypatch.setattr(metadata, "version", version)
    torch = types.ModuleType("torch")
    torch.__version__ = "2.9.0+cpu"  # type: ignore[attr-defined]
    npu = types.ModuleType("torch_npu.version")
    npu.cann = "8.5.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch_npu", types.ModuleType("torch_npu"))
    monkeypatch.setitem(sys.modules, "torch_npu.version", npu)
    assert detected_versions(["vLLM-Ascend", "PyTorch", "CANN"], {}) == {
        "vLLM-Ascend": "0.18.0",
        "PyTorch": "2.9.0+cpu",
        "CANN": "8.5.0",
    }


def test_a_module_that_fails_to_load_has_no_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "vllm_ascend.py").write_text("raise OSError('libascend_hal.so: cannot open shared object file')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert detected_versions(["vLLM-Ascend"], {}) == {}
