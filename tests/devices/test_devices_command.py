"""``msmodeling devices`` as its output is read: by a person, by a pipe, and by the loader again."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from cli import devices
from tensor_cast.devices import DeviceRegistry, get_device, load_device_file
from tensor_cast.devices.figures import list_figures
from tensor_cast.errors import ModelingError

MINE = "name: MINE\nmatrix_flops: {bfloat16: 1e12}\nmemory_bytes: 1073741824\nmemory_bandwidth: 1e9\n"


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    devices.add_parser(parser.add_subparsers())
    return devices.run(parser.parse_args(["devices", *words]))


def test_a_pipe_gets_whole_names_and_no_drawing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert run() == 0
    header, *rows = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert header.split() == ["name", "vendor", "bf16", "int8", "fp8", "memory", "bandwidth", "links"]
    assert [row.split()[0] for row in rows] == list(DeviceRegistry())
    (die,) = (row for row in rows if row.startswith("ATLAS_800_A3_752T_128G_DIE "))
    assert die.split()[1:] == ["Huawei", "353.9", "752", "-", "64", "1600", "48x8x2", "at", "196/196/224"]
    assert "".join(rows).isascii()


def test_a_terminal_of_80_columns_keeps_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert run() == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in DeviceRegistry())


def test_show_marks_what_is_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "h100") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "H100_SXM_80GB: H100 SXM5, 80 GB HBM3"
    for figure in list_figures(get_device("H100")):
        (line,) = (line for line in lines if figure.path in line.split())
        assert line.startswith("~" if figure.assumed else " ")
        assert line.endswith(figure.source)
    assert any(line.split()[:3] == ["memory_bandwidth", "3350", "GB/s"] for line in lines)


def test_json_is_a_device_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "H100", "--json") == 0
    path = tmp_path / "copy.yaml"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    assert json.loads(path.read_text(encoding="utf-8"))["memory_bandwidth"] == 3350e9
    assert load_device_file(path) == [get_device("H100")]


@pytest.mark.parametrize("order", ["before", "after"])
def test_a_file_of_ones_own_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str], order: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE, encoding="utf-8")
    option = ["--device-file", str(path)]
    assert run(*([*option, "show", "mine"] if order == "before" else ["show", "mine", *option])) == 0
    assert "memory_bytes" in capsys.readouterr().out


def test_the_list_has_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE, encoding="utf-8")
    assert run("--device-file", str(path)) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("MINE "))
    assert row.split() == ["MINE", "unknown", "1", "-", "-", "1", "1", "none"]


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ModelingError, match="There is no device 'H1000'"):
        run("show", "H1000")
