"""Devices by name, and where names come from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensor_cast.devices import DeviceRegistry, get_device
from tensor_cast.errors import ModelingError

MINE = "name: {name}\naliases: [{alias}]\nmatrix_flops: {{bfloat16: 1e12}}\nmemory_bytes: 1e9\nmemory_bandwidth: 1e9\n"


def write(path: Path, name: str = "MINE", alias: str = "M1") -> Path:
    path.write_text(MINE.format(name=name, alias=alias), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("H100", "H100_SXM_80GB"),
        ("h200", "H200_SXM_141GB"),
        ("A100", "A100_SXM_80GB"),
        ("B200", "B200_SXM"),
        ("mi300x", "MI300X"),
        ("atlas_800_a3_752t_128g_die", "ATLAS_800_A3_752T_128G_DIE"),
    ],
)
def test_names_and_aliases_in_any_case(asked: str, name: str) -> None:
    assert get_device(asked).name == name


@pytest.mark.parametrize(
    ("asked", "near"), [("H10", "H100_SXM_80GB"), ("A3_752T", "ATLAS_800_A3_752T_128G_DIE"), ("MI300", "MI300X")]
)
def test_an_unknown_name_lists_the_closest(asked: str, near: str) -> None:
    with pytest.raises(ModelingError, match=f"There is no device '{asked}'. The closest are {near}") as caught:
        get_device(asked)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize("asked", ["", "?", "qqqqqqqqqqqq"])
def test_a_name_like_nothing_says_how_to_list(asked: str) -> None:
    with pytest.raises(ModelingError, match="`msmodeling devices` lists all"):
        get_device(asked)


def test_the_mapping_takes_exact_names_only() -> None:
    registry = DeviceRegistry()
    assert "H100" not in registry
    assert registry["H100_SXM_80GB"] is registry["H100_SXM_80GB"]
    with pytest.raises(KeyError):
        registry["H100"]


def test_a_device_file_adds_names(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.yaml")
    assert get_device("m1", [path]).name == "MINE"
    assert get_device("H100", [path, path]).name == "H100_SXM_80GB"
    with pytest.raises(ModelingError, match="There is no device 'MINE'"):
        get_device("MINE")


def test_the_path_variable_names_directories_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "many").mkdir()
    write(tmp_path / "many" / "b.yaml", "B", "B1")
    write(tmp_path / "many" / "c.yml", "C", "C1")
    (tmp_path / "many" / "notes.txt").write_text("no device", encoding="utf-8")
    single = write(tmp_path / "single.conf", "D", "D1")
    monkeypatch.setenv("MSMODELING_DEVICE_PATH", os.pathsep.join(["", str(tmp_path / "many"), str(single)]))
    registry = DeviceRegistry()
    assert {"B", "C", "D", "TEST_DEVICE"} <= set(registry)
    assert registry.resolve("c1") == "C"
    monkeypatch.setenv("MSMODELING_DEVICE_PATH", str(tmp_path / "absent"))
    with pytest.raises(ModelingError, match=r"MSMODELING_DEVICE_PATH names .*absent, which does not exist"):
        len(DeviceRegistry())


@pytest.mark.parametrize(("name", "alias"), [("h100_sxm_80gb", "X"), ("H100", "X"), ("X", "GB200"), ("X", "a100")])
def test_a_packaged_name_is_not_redefined(tmp_path: Path, name: str, alias: str) -> None:
    with pytest.raises(ModelingError, match=r"mine.yaml: the name \w+ is already taken \(packaged\)"):
        get_device("H100", [write(tmp_path / "mine.yaml", name, alias)])


def test_two_files_with_one_name_are_refused(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.yaml"), write(tmp_path / "b.yaml")
    with pytest.raises(ModelingError, match=r"b.yaml: the name MINE is already taken \(.*a.yaml\)"):
        get_device("MINE", [first, second])


def run_python(code: str) -> str:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_package_needs_neither_yaml_nor_msgspec() -> None:
    code = "import sys, tensor_cast.devices; print({'yaml', 'msgspec', 'rich', 'polars'} & set(sys.modules))"
    assert run_python(code) == "set()"


def test_one_device_reads_one_family() -> None:
    code = (
        "import tensor_cast.devices.yaml_document as document\n"
        "from tensor_cast.devices import get_device\n"
        "read, paths = document.read_yaml, []\n"
        "document.read_yaml = lambda path: (paths.append(path.name), read(path))[1]\n"
        "get_device('H100'); print(paths)"
    )
    assert run_python(code) == "['nvidia_hopper.yaml']"
