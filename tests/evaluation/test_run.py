"""Whole evaluations, by the command that people type."""

from __future__ import annotations

import builtins
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from tensor_cast.evaluation import run as run_module
from tensor_cast.evaluation.simulator_process import Simulation, simulate_in_process
from tests.evaluation.conftest import TEXT, VIDEO


def _config(results: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((results / "config.json").read_text())
    return config


def _summary(results: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((results / "summary.json").read_text())
    return summary


def test_an_evaluation_leaves_its_files_and_nothing_else(text_results: Path) -> None:
    assert sorted(path.name for path in text_results.iterdir()) == [
        "config.json",
        "evaluation_report.html",
        "evaluation_report.md",
        "iteration_1.log",
        "iteration_2.log",
        "summary.json",
    ]
    assert [path.name for path in text_results.parent.iterdir()] == [text_results.name]


def test_the_configuration_tells_given_from_default(text_results: Path) -> None:
    config = _config(text_results)
    assert config["kind"] == "text"
    assert config["model"] == {"model": "qwen3", "spec": "0.6b", "reference": "Qwen/Qwen3-0.6B"}
    assert config["parameters"]["num_queries"] == 8
    assert "num_queries" in config["given"]
    assert config["parameters"]["compile"] is False
    assert "compile" in config["defaulted"]
    assert not set(config["given"]) & set(config["defaulted"])
    assert config["parallel"] == {"world": 1, "tp": 1, "dp": 1, "ep": 1}
    assert config["strategy"]["chosen_by"] == "single device"
    figures = {figure["path"]: figure for figure in config["device"]["figures"]}
    assert figures["matrix_flops.bfloat16"]["value"] == 353.9e12
    assert figures["matrix_flops.bfloat16"]["source"]
    assert {"msmodeling", "numpy", "python", "revision"} <= set(config["versions"])


def test_the_recorded_command_evaluates_the_same_again(text_results: Path, tmp_path: Path) -> None:
    words = shlex.split(_config(text_results)["command"])
    assert words[:3] == ["msmodeling", "evaluate", "text"]
    words[words.index("--output-dir") + 1] = str(tmp_path)
    assert main([*words[1:], "--no-advice"]) == 0
    again = _summary(tmp_path / text_results.name)
    assert again["estimate"] == _summary(text_results)["estimate"]


def test_a_log_holds_the_simulators_own_report(text_results: Path) -> None:
    log = (text_results / "iteration_2.log").read_text()
    assert log.startswith("$ msmodeling text-generate Qwen/Qwen3-0.6B --device ATLAS_800_A2_376T_64G")
    for part in ("Configuration", "Kernels", "Categories", "FlashAttention", "execution time", "Memory"):
        assert part in log
    assert log.endswith("exit status 0\n")


def test_the_summary_is_the_simulators_document(text_results: Path) -> None:
    summary = _summary(text_results)
    arguments = shlex.split(_config(text_results)["simulator_command"])[1:]
    document = simulate_in_process(arguments).document
    assert summary["status"] == "ok"
    assert summary["estimate"] == document
    assert summary["metrics"]["execution_time_s"] == document["total_time_s"]
    assert [one["execution_time_s"] for one in summary["iterations"]] == [document["total_time_s"]] * 2
    categories = summary["operators"]["categories"]
    between = document["idle_s"] / (document["idle_s"] + sum(document["categories"].values()))
    assert sum(one["share"] for one in categories.values()) == pytest.approx(1.0 - between)
    kernels = sum(row["total_s"] for row in summary["kernels"])
    assert kernels == pytest.approx(sum(one["total_s"] for one in categories.values()), rel=1e-6)


def test_every_gain_was_really_run(text_results: Path) -> None:
    summary = _summary(text_results)
    ran = [one for one in summary["advice"] if one["outcome"] == "ran"]
    assert ran
    one = ran[0]
    document = simulate_in_process(shlex.split(one["command"])[1:]).document
    assert one["execution_time_s"] == document["total_time_s"]
    base = summary["estimate"]["tokens_per_s_per_device"]
    assert one["throughput_gain"] == pytest.approx(document["tokens_per_s_per_device"] / base - 1.0)


def test_an_accepted_recommendation_is_recorded_as_such(shared_text_results: Path) -> None:
    config = _config(shared_text_results)
    assert config["strategy"]["chosen_by"] == "recommendation"
    assert config["strategy"]["accepted"] == "--accept-recommended"
    assert config["strategy"]["flags"] == {"--tp-size": "4", "--dp-size": "1"}
    assert any(line.startswith("all_reduce over 4 devices") for line in config["strategy"]["collectives"])
    assert config["accepted"] == ["dp_size", "tp_size"]
    assert "tp_size" not in config["given"]


def test_a_users_choice_is_recorded_beside_what_was_recommended(video_results: Path) -> None:
    config = _config(video_results)
    assert config["strategy"]["chosen_by"] == "user"
    assert config["strategy"]["flags"] == {"--ulysses-size": "4"}
    assert config["strategy"]["recommended"] == {"--ulysses-size": "4"}
    assert config["parallel"] == {"world": 4, "ulysses": 4, "cfg": 0}
    assert config["parameters"]["resolution"] == "480x832"
    assert _summary(video_results)["metrics"]["step_time_s"] > 0.0


def test_a_second_run_does_not_touch_the_first(tmp_path: Path) -> None:
    command = [*TEXT, "--iterations", "1", "--no-advice", "--output-dir", str(tmp_path)]
    assert [main(command), main(command)] == [0, 0]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["qwen3_0.6b_a2-376t-64g_w1_tp1_dp1_ep1", "qwen3_0.6b_a2-376t-64g_w1_tp1_dp1_ep1_run2"]
    before = (tmp_path / names[0] / "config.json").stat().st_mtime_ns
    assert main([*command, "--overwrite"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert (tmp_path / names[0] / "config.json").stat().st_mtime_ns > before


def test_an_interrupted_evaluation_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cli.main", *TEXT, "--iterations", "500", "--output-dir", str(tmp_path)]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        # A shell's background job ignores interrupts, and so would what it starts: the test would never end.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        # The second iteration has begun, so the first one's log is there.
        next(line for line in process.stderr if line.startswith("iteration 2"))
        assert list(tmp_path.glob(".incomplete-*/iteration_1.log"))
        process.send_signal(signal.SIGINT)
        process.stderr.read()
        assert process.wait(60) == 130
    assert list(tmp_path.iterdir()) == []


def test_everything_that_is_missing_is_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "video", "--model", "wan2.2"]) == 2
    error = capsys.readouterr().err
    assert "--spec, --device, --resolution, --frame-num, --quantize-linear-action." in error
    assert "t2v-a14b" in error
    assert "ATLAS_800_A2_376T_64G" in error
    assert main(["evaluate", "text"]) == 2
    expected = "--model, --spec, --device, --num-queries, --query-length, --quantize-linear-action."
    assert expected in capsys.readouterr().err


def test_a_path_is_asked_what_its_model_is_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TEXT[:2], "--model", str(tmp_path), *TEXT[6:]]) == 2
    error = capsys.readouterr().err
    assert "Missing and without a default: --spec." in error
    assert "such as --spec 7b" in error


def test_a_misspelt_flag_is_compared_with_the_kinds_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "video", "--frame-numb", "81"]) == 2
    assert "there is no argument --frame-numb. Did you mean --frame-num" in capsys.readouterr().err


def test_a_height_and_a_width_are_a_resolution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*VIDEO[:6], "--height", "480", "--width", "832"]) == 2
    error = capsys.readouterr().err
    assert "--resolution" not in error
    assert "--frame-num" in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--device", "NO_SUCH_CARD"), "There is no device 'NO_SUCH_CARD'"),
        (("--world-size", "4"), "Recommended is --tp-size 4 --dp-size 1"),
        (("--world-size", "4", "--tp-size", "3"), "3"),
        (("--quantize-linear-action", "FP8"), "no fp8 matrix rate"),
        (("--language", "fr"), "--language must be one of en, zh"),
    ],
)
def test_a_wrong_request_leaves_nothing(
    options: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "results"
    assert main([*TEXT, *options, "--output-dir", str(root)]) == 2
    assert message in capsys.readouterr().err
    assert not root.exists() or list(root.iterdir()) == []


def test_iterations_that_disagree_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[int] = []

    def unsteady(*arguments: Any, **options: Any) -> Simulation:
        simulation = simulate_in_process(*arguments, **options)
        calls.append(1)
        if len(calls) == 1:
            return simulation
        time_s = simulation.document["total_time_s"]
        return replace(simulation, document={**simulation.document, "total_time_s": 2.0 * time_s})

    monkeypatch.setattr(run_module, "simulate_in_process", unsteady)
    assert main([*TEXT, "--no-advice", "--output-dir", str(tmp_path)]) == 1
    assert "the iterations do not agree: iteration 2: $.total_time_s" in capsys.readouterr().err
    results = next(tmp_path.iterdir())
    assert _summary(results)["status"] == "error"
    assert "do not agree" in (results / "evaluation_report.md").read_text()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Answers that a person gives, in order."""
    answers: list[str] = []
    waiting: Iterator[str] = iter(())

    def answer(_prompt: str = "") -> str:
        nonlocal waiting
        if not calls:
            waiting = iter(answers)
        calls.append(_prompt)
        return next(waiting)

    calls: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(builtins, "input", answer)
    return answers


def test_a_terminal_is_asked_for_what_is_missing(terminal: list[str], tmp_path: Path) -> None:
    terminal += ["qwen3", "wrong", "0.6b", "ATLAS_800_A2_376T_64G", "8", "1", "1", "Y"]
    options = ("--decode", "--context-length", "512", "--world-size", "2", "--iterations", "1", "--no-advice")
    assert main(["evaluate", "text", *options, "--output-dir", str(tmp_path)]) == 0
    config = _config(tmp_path / "qwen3_0.6b_a2-376t-64g_w2_tp2_dp1_ep1")
    # 1 is the first scheme that is listed.
    assert config["parameters"]["quantize_linear_action"] == "DISABLED"
    assert config["parameters"]["num_queries"] == 8
    assert config["strategy"]["accepted"] == "answering Y"
    assert "--quantize-linear-action DISABLED" in config["command"]


def test_a_recommendation_that_is_not_wanted_ends_the_run(
    terminal: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal += ["N"]
    assert main([*TEXT, "--world-size", "2", "--output-dir", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert "tensor parallelism 2" in printed.out
    assert "Give a parallel strategy for --world-size 2" in printed.err


def test_guidance_recommends_its_own_parallelism(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*VIDEO, "--world-size", "4", "--use-cfg", "--output-dir", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert "CFG parallelism 2 x Ulysses sequence parallelism 2" in printed.out
    assert "all_to_all over 2 devices" in printed.out
    assert "--cfg-parallel --ulysses-size 2" in printed.err
