"""``msmodeling perf-db accuracy``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.main import main
from tensor_cast.performance_model.profiling_database.merge import ProfiledRow
from tensor_cast.performance_model.profiling_database.paths import DEFAULT_DEVICE, database_directory
from tensor_cast.performance_model.profiling_database.store import update_database

TOOLS = Path(__file__).parents[2] / "tools" / "perf_data_collection"
A3 = database_directory(DEFAULT_DEVICE, "0.15.0", "2.9.0", "8.5")


def test_packaged_rows_predict_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["perf-db", "accuracy", str(A3), "--limit", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    header, *rows = (line.split() for line in lines[:-4])
    assert header[:5] == ["kernel", "rows", "interpolated", "extrapolated", "none"]
    counts = {row[0]: list(map(int, row[1:5])) for row in rows if row[0] != "all"}
    # Seven products of 16 heads by 1 to 12 tokens: the ends of the axis are extrapolated, the rest interpolated.
    assert counts["BatchMatMulV2"] == [7, 5, 2, 0]
    assert all(sum(parts) == total for total, *parts in counts.values())
    unused = "Rows that are not used, their layout or their lengths being unknown"
    assert lines[-4] == f"{unused}: FusedInferAttentionScore 1."
    assert lines[-3] == "Worst predictions:"


@pytest.mark.parametrize("name", ["readme_en.md", "readme.md"])
def test_the_guides_tell_how_good_it_is(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Section 5.3: median and p90 of interpolated rows, the analytic median there; the two medians of extrapolated."""
    assert main(["perf-db", "accuracy", str(A3)]) == 0
    printed = capsys.readouterr().out
    found = [
        re.findall(rf"^all {how} .*", printed, re.MULTILINE)[0].split()[3:] for how in ("interpolated", "extrapolated")
    ]
    interpolated, extrapolated = ([float(cell.rstrip("%")) for cell in cells] for cells in found)
    section = (TOOLS / name).read_text(encoding="utf-8").partition("### 5.3 ")[2].partition("## 6")[0]
    stated = [float(number) for number in re.findall(r"([\d.]+)\s%", section)]
    assert stated == pytest.approx([*interpolated[:3], extrapolated[0], extrapolated[2]], abs=0.6)


def test_device_must_be_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    update_database(tmp_path, {"Add": []})
    assert main(["perf-db", "accuracy", str(tmp_path)]) == 2
    assert "does not tell which device was measured: give --device" in capsys.readouterr().err
    assert main(["perf-db", "accuracy", str(tmp_path), "--device", "TEST_DEVICE"]) == 0
    assert "No row can be left out" in capsys.readouterr().out


def test_kernels_that_are_not_understood_are_listed_up_to_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ("dynamic", "AI_CORE", '"4"', "FLOAT", "ND", '"4"', "FLOAT", "ND")
    rows = [
        ProfiledRow((*base[:2], f'"{size}"', *base[3:]), ("1.0", "1.0", "0.0", *["0.0"] * 25, "1")) for size in (4, 5)
    ]
    update_database(tmp_path, {"OneA": rows[:1], "Two": rows, "OneB": rows[:1]})
    assert main(["perf-db", "accuracy", str(tmp_path), "--device", "TEST_DEVICE", "--limit", "1"]) == 0
    assert "being unknown: Two 2, 2 more kernel types (--limit)." in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--samples", "--limit"])
def test_numbers_are_checked(flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["perf-db", "accuracy", str(tmp_path), flag, "few"]) == 2
    assert f"{flag} must be a whole number of at least 0, got 'few'" in capsys.readouterr().err
