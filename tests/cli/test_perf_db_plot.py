"""``msmodeling perf-db plot``, on the packaged A3 collectives and on made-up ones."""

from __future__ import annotations

import argparse
import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cli import perf_db
from cli.main import main
from cli.text_scatter import Series, log_scatter
from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.paths import DATA_DIRECTORY, DEFAULT_DEVICE

Plot = Callable[..., int]
TOOLS = Path(__file__).parents[2] / "tools" / "perf_data_collection"
PACKAGED = DATA_DIRECTORY / DEFAULT_DEVICE / "hccl" / "v8.5"
HEADER = "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps\n"


@pytest.fixture
def plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plot:
    monkeypatch.chdir(tmp_path)

    def call(*words: str | Path) -> int:
        parser = argparse.ArgumentParser()
        perf_db.add_parser(parser.add_subparsers())
        return perf_db.run(parser.parse_args(["perf-db", "plot", *map(str, words)]))

    return call


def test_points_and_curve_lie_on_logarithmic_axes() -> None:
    # y = x from 1 to 10000 over 5 x 5 characters is the diagonal; the point at 100 is in the middle.
    series = Series("A", np.array([1.0, 100.0, 10000.0]), np.array([1.0, 100.0, 10000.0]), lambda x: x)
    assert log_scatter([series], "{:.0f}".format, "{:.0f}".format, width=5, height=5) == [
        "10000 |    A",
        "      |   ·",
        "  100 |  A",
        "      | ·",
        "    1 |A",
        "      +-----",
        "       110010000",
    ]


def test_a_single_point_has_room_around_it() -> None:
    lines = log_scatter([Series("A", np.array([8.0]), np.array([8.0]), lambda x: x)], str, str, width=9, height=5)
    assert "|    A" in lines[2]


def test_the_packaged_collectives_in_characters(plot: Plot, capsys: pytest.CaptureFixture[str]) -> None:
    assert plot(PACKAGED, "--text-only") == 0
    text = capsys.readouterr().out
    assert "all_gather, tier 1 (server): A 8 devices, B 16 devices; · model" in text
    assert text.count("  from 0 B") == 3
    assert "Each size predicted from the others (18 rows):" in text
    # Section 3.6 of the guides says what this comes to, in whole percent.
    errors = re.findall(r"(?:through the points|from the links) +18 +([\d.]+)% +([\d.]+)%", text)
    said = [f"{float(error):.0f} %" for row in errors for error in row]
    assert len(said) == 4
    for name in ("readme_en.md", "readme.md"):
        section = (TOOLS / name).read_text(encoding="utf-8").partition("### 3.6 ")[2].partition("## 4")[0]
        assert re.findall(r"\b(?!90 )\d+ %", section) == said
    assert not Path("collectives.png").exists()


def test_a_kernel_database_shows_the_collectives_beside_it(plot: Plot, capsys: pytest.CaptureFixture[str]) -> None:
    (database,) = (DATA_DIRECTORY / DEFAULT_DEVICE / "vllm_ascend").iterdir()
    assert plot(database, "--text-only") == 0
    assert "reduce_scatter, tier 1" in capsys.readouterr().out


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is an extra")
# Deprecations between matplotlib and its own dependencies are not ours.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_png(plot: Plot, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "picture.png"
    assert plot(PACKAGED, "--output", target) == 0
    assert f"Written: {target}" in capsys.readouterr().out
    content = target.read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    # Two columns of 6.4 inches at 120 dots an inch, in the header behind its eight-byte name.
    assert int.from_bytes(content[16:20], "big") == 1536


def test_without_matplotlib_the_message_names_the_way_out(plot: Plot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelingError, match="--text-only"):
        plot(PACKAGED)


def test_a_device_that_the_path_does_not_tell_is_asked_for(
    plot: Plot, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hcom_allReduce_.csv").write_text(f"{HEADER}1024,2,DT_BF16,2,10,0\n65536,2,DT_BF16,2,20,0\n")
    with pytest.raises(ModelingError, match="give --device"):
        plot(tmp_path, "--text-only")
    assert plot(tmp_path, "--text-only", "--device", "ATLAS_800_A3_752T_128G_DIE") == 0
    assert "all_reduce, tier 2 (package): A 2 devices" in capsys.readouterr().out


@pytest.mark.parametrize(("rows", "words"), [("", "no rows with a duration"), (None, "has no hcom_")])
def test_nothing_to_draw(plot: Plot, tmp_path: Path, rows: str | None, words: str) -> None:
    if rows is not None:
        (tmp_path / "hcom_allReduce_.csv").write_text(HEADER + rows)
    with pytest.raises(ModelingError, match=words):
        plot(tmp_path, "--text-only", "--device", "TEST_DEVICE")


def test_a_picture_is_named_as_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["perf-db", "plot", str(tmp_path), "--output", str(tmp_path / "plot.svg")]) == 2
    assert "plot.svg is no PNG file: give a name that ends in .png." in capsys.readouterr().err
