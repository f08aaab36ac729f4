from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensor_cast.evaluation.validate import results_within, validate_results

SCRIPT = Path(__file__).parents[2] / "skills/performance-evaluation/scripts/validate_results.py"


@pytest.fixture
def results(text_results: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(text_results, tmp_path / text_results.name))


def _edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def _faults(directory: Path) -> list[str]:
    return [str(fault) for fault in validate_results(directory)]


def test_what_an_evaluation_writes_is_sound(text_results: Path, shared_text_results: Path, video_results: Path) -> None:
    assert [_faults(directory) for directory in (text_results, shared_text_results, video_results)] == [[], [], []]


def test_the_older_short_name_is_sound(video_results: Path, tmp_path: Path) -> None:
    older = tmp_path / "wan2.2_t2v-14b_a2-376t-64g_d4_u4_cfg0"
    shutil.copytree(video_results, older)
    assert _faults(older) == []


def test_a_report_beside_the_directory_is_found(results: Path) -> None:
    (results / "evaluation_report.md").rename(results.parent / "evaluation_report.md")
    assert _faults(results) == []


CONFIG_FAULTS: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda c: c.pop("command"), "config.json: command: is missing"),
    (lambda c: c["model"].pop("spec"), "config.json: model.spec: is missing"),
    (lambda c: c.update(iterations="2"), "config.json: iterations: expected a whole number, got '2'"),
    (lambda c: c.update(iterations=True), "config.json: iterations: expected a whole number, got True"),
    (lambda c: c.update(device=None), "config.json: device.name: is missing"),
    (lambda c: c.update(kind="audio"), "config.json: kind: expected text, video or image, got 'audio'"),
    (lambda c: c.update(time="noon"), "config.json: time: expected a time such as"),
    (lambda c: c["given"].append("nothing"), "config.json: given: names nothing, which is not in parameters"),
    (lambda c: c["parallel"].update(tp=2), "config.json: parallel.tp: is 2, but the directory's name says 1"),
    (lambda c: c["device"].update(name="H20_96GB"), "config.json: device.name: is h20-96gb, but the directory's"),
    (lambda c: c.update(iterations=3), "summary.json: iterations: has 2, but config.json says 3"),
]
SUMMARY_FAULTS: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda s: s.pop("memory"), "summary.json: memory.device_bytes: is missing"),
    (lambda s: s.update(status="fine"), "summary.json: status: expected ok or error, got 'fine'"),
    (lambda s: s.update(status="error"), "summary.json: status: is error, but there are 0 errors"),
    (lambda s: s["metrics"].update(fits=1), "summary.json: metrics.fits: expected true or false, got 1"),
    (lambda s: s["metrics"].update(tpot_s=-1.0), "summary.json: metrics.tpot_s: expected a number of at least 0"),
    (lambda s: s["metrics"].update(execution_time_s=9.0), "summary.json: metrics.execution_time_s: is not estimate."),
    (lambda s: s["operators"]["categories"].pop("Comm"), "summary.json: operators.categories.Comm.total_s: expected"),
    (lambda s: s["iterations"][1].pop("log"), "summary.json: iterations[1].log: is missing"),
    (lambda s: s["iterations"][0].update(log="../x"), "summary.json: iterations[0].log: names ../x, which is not"),
    (lambda s: s["iterations"][1].update(execution_time_s=1.0), "iteration_2.log: execution time: is 0.00"),
]


@pytest.mark.parametrize(("change", "expected"), CONFIG_FAULTS)
def test_faults_of_the_configuration(results: Path, change: Callable[[dict[str, Any]], object], expected: str) -> None:
    _edit(results / "config.json", change)
    assert any(fault.startswith(expected) for fault in _faults(results)), _faults(results)


@pytest.mark.parametrize(("change", "expected"), SUMMARY_FAULTS)
def test_faults_of_the_summary(results: Path, change: Callable[[dict[str, Any]], object], expected: str) -> None:
    _edit(results / "summary.json", change)
    assert any(fault.startswith(expected) for fault in _faults(results)), _faults(results)


def test_faults_of_files(results: Path) -> None:
    (results / "iteration_1.log").write_text("Configuration\nKernels\nCategories\n")
    (results / "iteration_7.log").write_text("")
    (results / "evaluation_report.md").unlink()
    (results / "config.json").write_text("{")
    assert _faults(results) == [
        "config.json: 1: this is not JSON (Expecting property name enclosed in double quotes)",
        "iteration_1.log: has no part Memory",
        "iteration_1.log: exit status: is missing: the log is cut off",
        "iteration_1.log: execution time: is missing",
        "iteration_7.log: is not in summary.json",
        "evaluation_report.md: is missing",
    ]


def test_an_empty_directory_of_another_name(tmp_path: Path) -> None:
    directory = tmp_path / "whatever"
    directory.mkdir()
    faults = _faults(directory)
    assert faults[0].startswith("whatever: the directory's name is not <model>_<spec>_<device>_w<N>")
    assert faults[1:] == ["config.json: is missing", "summary.json: is missing", "evaluation_report.md: is missing"]


def _script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)


def test_the_script_tells_by_its_exit_status(text_results: Path, results: Path, tmp_path: Path) -> None:
    good = _script(str(text_results))
    assert (good.returncode, good.stdout) == (0, f"{text_results}: sound\n")
    (results / "summary.json").unlink()
    bad = _script(str(text_results), str(results))
    assert bad.returncode == 1
    assert "  summary.json: is missing" in bad.stdout
    absent = _script(str(tmp_path / "nowhere"))
    assert (absent.returncode, absent.stdout) == (2, "")
    assert "There is no results directory" in absent.stderr


def test_a_directory_of_results_stands_for_all_of_them(text_results: Path, tmp_path: Path) -> None:
    for name in (text_results.name, f"{text_results.name}_run2"):
        shutil.copytree(text_results, tmp_path / name)
    (tmp_path / "compare").mkdir()
    assert results_within(tmp_path) == [tmp_path / text_results.name, tmp_path / f"{text_results.name}_run2"]
    assert results_within(text_results) == [text_results]
    assert results_within(tmp_path / "absent") == [tmp_path / "absent"]


def test_the_script_writes_json(results: Path) -> None:
    _edit(results / "config.json", lambda config: config.pop("command"))
    written = _script("--json", str(results))
    assert written.returncode == 1
    assert json.loads(written.stdout) == [
        {
            "results": str(results),
            "valid": False,
            "faults": [{"file": "config.json", "field": "command", "message": "is missing"}],
        }
    ]
