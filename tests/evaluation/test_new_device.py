from __future__ import annotations

import builtins
import sys
from pathlib import Path

import pytest

from cli.main import main
from tensor_cast.devices.registry import DeviceRegistry, load_device_file
from tensor_cast.evaluation.new_device import reference, reference_names, suggested_reference

FIGURES = ("--bf16-tflops", "320", "--memory-gib", "64", "--memory-bandwidth-gbps", "1600")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MSMODELING_DEVICE_PATH", raising=False)


def test_three_figures_make_a_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "add", "MY_CARD", *FIGURES]) == 0
    printed = capsys.readouterr().out
    assert "MY_CARD.yaml: MY_CARD, written and checked" in printed
    assert "one estimate: text-generate Qwen/Qwen3-8B" in printed
    assert "--device MY_CARD --device-file MY_CARD.yaml" in printed
    (profile,) = load_device_file(tmp_path / "MY_CARD.yaml")
    assert profile.matrix_flops["bfloat16"] == 320e12
    assert profile.memory_bytes == 64 * 2**30
    assert profile.memory_bandwidth == 1600e9
    assert profile.interconnect.device_count == 1
    assert profile.sources["memory_bytes"] == "given by the user"


def test_links_and_further_figures_are_written(tmp_path: Path) -> None:
    links = ("--link-bandwidth-gbps", "200", "--devices-per-server", "4", "--topology", "full_mesh")
    options = ("--int8-tops", "640", "--matrix-cores", "32", "--source", "data sheet", "--output", "sub.yaml")
    assert main(["devices", "add", "MY_CARD", *FIGURES, *links, *options]) == 0
    (profile,) = load_device_file(tmp_path / "sub.yaml")
    (level,) = profile.interconnect.levels
    assert (level.size, level.topology, level.bandwidth, level.latency_s) == (4, "full_mesh", 200e9, 1e-6)
    assert profile.matrix_flops["int8"] == 640e12
    assert profile.matrix_cores == 32
    assert profile.sources["matrix_flops.int8"] == "data sheet"


def test_an_added_device_can_be_evaluated_and_an_unknown_one_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request = (
        *("evaluate", "text", "--model", "Qwen/Qwen3-0.6B", "--num-queries", "1", "--query-length", "64"),
        *("--quantize-linear-action", "DISABLED", "--iterations", "1", "--no-advice", "--device", "MY_CARD"),
    )
    assert main([*request]) == 2
    assert "There is no device 'MY_CARD'" in capsys.readouterr().err
    assert main(["devices", "add", "MY_CARD", *FIGURES]) == 0
    assert main([*request, "--device-file", "MY_CARD.yaml"]) == 0
    assert (tmp_path / "results" / "qwen3_0.6b_my-card_w1_tp1_dp1_ep1").is_dir()


def test_the_search_path_takes_new_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "devices"
    directory.mkdir()
    monkeypatch.setenv("MSMODELING_DEVICE_PATH", str(directory))
    assert main(["devices", "add", "MY_CARD", *FIGURES]) == 0
    assert "MY_CARD" in DeviceRegistry()


def test_a_reference_gives_what_is_not_given(tmp_path: Path) -> None:
    assert main(["devices", "add", "MY_H100", "--like", "H100_SXM_80GB", "--memory-gib", "96"]) == 0
    (profile,) = load_device_file(tmp_path / "MY_H100.yaml")
    original = DeviceRegistry()["H100_SXM_80GB"]
    assert profile.matrix_flops["bfloat16"] == original.matrix_flops["bfloat16"]
    assert profile.sources["matrix_flops.bfloat16"].startswith("H100_SXM_80GB: ")
    assert profile.memory_bytes == 96 * 2**30
    assert profile.family == original.family
    assert profile.interconnect.levels[-1].bandwidth == original.interconnect.levels[-1].bandwidth


def test_every_reference_has_figures_with_a_source() -> None:
    assert len(reference_names()) > 30
    for name in reference_names():
        figures = reference(name).figures
        assert figures
        assert all(figure.value > 0.0 and figure.source.startswith(f"{name}: ") for figure in figures.values())
    assert suggested_reference("MY_H200") == "H200_SXM_141GB"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "NAME, --bf16-tflops, --memory-gib, --memory-bandwidth-gbps."),
        (("MY_H20", "--memory-gib", "96"), "Public figures are known of H20_96GB: --like H20_96GB."),
        (("MY_CARD", "--like", "H999"), "There are no reference figures of 'H999'"),
        (("ATLAS_800_A2_376T_64G", *FIGURES), "already taken (packaged)"),
        (("MY CARD", *FIGURES), "name"),
        (("MY_CARD", *FIGURES, "--memory-gib", "0"), "--memory-gib must be a number greater than 0"),
        (("MY_CARD", *FIGURES, "--family", "nobody"), "family: nobody is not packaged"),
        (("MY_CARD", *FIGURES, "--output", "none/x.yaml"), "there is no directory none"),
    ],
)
def test_a_wrong_device_is_not_written(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["devices", "add", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "MY_CARD.yaml").write_text("mine")
    assert main(["devices", "add", "MY_CARD", *FIGURES]) == 2
    assert "MY_CARD.yaml is there already" in capsys.readouterr().err
    assert (tmp_path / "MY_CARD.yaml").read_text() == "mine"


def test_a_terminal_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The name, no reference, a figure that is no number, then the figures, and no links.
    answers = iter(["CARD_9", "none", "many", "320", "64", "1600", "-"])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(builtins, "input", lambda _prompt="": next(answers))
    assert main(["devices", "add"]) == 0
    (profile,) = load_device_file(tmp_path / "CARD_9.yaml")
    assert profile.matrix_flops["bfloat16"] == 320e12
    assert next(answers, None) is None


def test_references_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "add", "--list-references"]) == 0
    assert "L20_48GB: bf16_tflops 119.5, memory_gib 48" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flag", "value", "sentence"),
    [
        ("--bf16-tflops", "0", "--bf16-tflops must be a number greater than 0 and less than 1e+09, got '0'."),
        ("--bf16-tflops", "1e30", "--bf16-tflops must be a number greater than 0 and less than 1e+09, got '1e30'."),
        ("--memory-gib", "1e300", "--memory-gib must be a number greater than 0 and less than 1e+09, got '1e300'."),
        ("--memory-bandwidth-gbps", "nan", "--memory-bandwidth-gbps must be a number greater than 0"),
        ("--cache-mib", "-1", "--cache-mib must be a number of at least 0 and less than 1e+09, got '-1'."),
        ("--matrix-cores", "1.5", "--matrix-cores must be a whole number of at least 1, got '1.5'."),
        ("--link-latency-us", "1e300", "--link-latency-us must be a number of at least 0 and less than 1e+09"),
        ("--topology", "full_mesh", "--topology describes links between devices: add --link-bandwidth-gbps"),
        ("--devices-per-server", "4", "--devices-per-server describes links between devices"),
        ("--link-latency-us", "0", "--link-latency-us describes links between devices"),
    ],
)
def test_a_figure_that_no_device_has_is_refused_by_its_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, value: str, sentence: str
) -> None:
    assert main(["devices", "add", "MY_CARD", *FIGURES, flag, value]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {sentence}")
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_rate_far_below_a_teraflop_is_written_as_a_number(tmp_path: Path) -> None:
    # 1e-6 TFLOP/s = 1e6 FLOP/s; as "1e-06e12" it would be text.
    assert main(["devices", "add", "MY_CARD", *FIGURES, "--int8-tops", "1e-6"]) == 0
    (profile,) = load_device_file(tmp_path / "MY_CARD.yaml")
    assert profile.matrix_flops["int8"] == 1e6
