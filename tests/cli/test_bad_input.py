"""A wrong request: one sentence on stderr that names what is wrong, exit status 2, nothing on stdout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import main

BASE: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "intermediate_size": 4096,
    "vocab_size": 32000,
}
REQUEST = ("--num-queries", "2", "--query-length", "64", "--quantize-linear-action", "DISABLED")
A2 = "ATLAS_800_A2_376T_64G"


def refusal(capsys: pytest.CaptureFixture[str], *words: str, status: int = 2) -> str:
    """The sentence with which a command line is refused."""
    assert main(words) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert "Traceback" not in err
    return err


@pytest.fixture
def config(tmp_path: Path) -> Any:
    """Writes a config.json and gives its path."""

    def write(content: object, name: str = "config.json") -> str:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    return write


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--num-queries", "0"), "--num-queries must be a whole number of at least 1, got '0'"),
        (("--num-queries", "-1"), "--num-queries must be a whole number of at least 1, got '-1'"),
        (("--num-queries", "1e3"), "--num-queries must be a whole number of at least 1, got '1e3'"),
        (("--query-length", "2.5"), "--query-length must be a whole number of at least 1, got '2.5'"),
        (("--context-length", "abc"), "--context-length must be a whole number of at least 0, got 'abc'"),
        (("--num-devices", "0"), "--world-size must be a whole number of at least 1, got '0'"),
        (("--query-length", "9" * 30), "--query-length must be a whole number of at least 1 and at most"),
        (("--num-queries",), "--num-queries expected one argument"),
        (("--prefix-cache-hit-rate", "1"), "--prefix-cache-hit-rate must be a number of at least 0 and less than 1"),
        (("--prefix-cache-hit-rate", "nan"), "--prefix-cache-hit-rate must be a number of at least 0"),
        (("--mtp-acceptance-rate", "1.5"), "--mtp-acceptance-rate must be a number of at least 0 and at most 1"),
        (
            ("--reserved-memory-gb", "-1"),
            "--reserved-memory-gb must be a number of at least 0 and less than 1e+09, got '-1'",
        ),
        (("--reserved-memory-gb", "1e300"), "--reserved-memory-gb must be a number of at least 0 and less than 1e+09"),
        (("--acceptance-length", "2"), "needs drafted tokens: --num-mtp-tokens or --num-draft-tokens."),
        (
            ("--device", "MI355X", "--world-size", "2", "--tp-size", "2"),
            "the profile of MI355X has none: describe",
        ),
        (
            ("--reserved-memory-gb", "inf"),
            "--reserved-memory-gb must be a number of at least 0 and less than 1e+09, got 'inf'",
        ),
        (("--dtype", "int3"), "--dtype must be one of bfloat16, float16, float32"),
        (("--quantize-linear-action", "W8A8"), "--quantize-linear-action must be one of DISABLED, W8A16_STATIC"),
        (("--quantize-attention-action", "FP4"), "--quantize-attention-action must be one of DISABLED, INT8, FP8"),
        (("--compilation-config", "enable_it"), "--compilation-config does not know enable_it: it takes enable_multi"),
        (("--compilation-config", "enable_multistream"), "it needs compile (--compile)"),
        (("--num-quries", "3"), "there is no argument --num-quries. Did you mean --num-queries"),
        (("--tp_size", "3"), "there is no argument --tp_size. Did you mean --tp-size"),
        (("more",), "there is no argument more"),
        (("--log-level", "loud"), "--log-level must be one of DEBUG, INFO, WARNING, ERROR"),
        (("--remote-source", "disk"), "--remote-source must be one of huggingface, modelscope"),
        (("--model-id", "other"), "Two models are given"),
        (("--decode",), "A decode step needs --context-length of at least 1"),
        (("--decode", "--context-length", "9", "--prefix-cache-hit-rate", "0.1"), "--prefix-cache-hit-rate belongs to"),
        (("--num-mtp-tokens", "1"), "--num-mtp-tokens belongs to a decode step"),
        (("--mtp-acceptance-rate", "0.5"), "--mtp-acceptance-rate is given, but --num-mtp-tokens is 0"),
        (("--decode", "--context-length", "9", "--num-mtp-tokens", "1"), "has no multi-token-prediction layer"),
        (("--draft-model", "qwen3-0.6b"), "--draft-model qwen3-0.6b needs --num-draft-tokens"),
        (("--image-height", "1024"), "--image-height and --image-width need --image-batch-size"),
        (("--quantize-linear-action", "CHECKPOINT"), "--quantize-linear-action CHECKPOINT needs a quantization_config"),
        (("--world-size", "2", "--ep-size", "2"), "--ep-size 2 is given, but the model has no experts"),
        (("--enable-redundant-experts",), "--enable-redundant-experts is given, but the model has no experts"),
        (("--quantize-linear-action", "FP8"), f"{A2} has no fp8 matrix rate; it has bfloat16"),
        (("--quantize-attention-action", "FP8"), f"{A2} has no fp8 matrix rate"),
        (("--world-size", "4096", "--tp-size", "8"), "--world-size 4096 is more than the 1024 devices"),
        (("--world-size", "3", "--tp-size", "3"), "--tp-size 3 does not divide the 8 attention heads"),
        (
            ("--world-size", "8", "--tp-size", "4", "--dp-size", "4"),
            "--tp-size 4 x --dp-size 4 = 16 is not --world-size 8",
        ),
        (("--num-hidden-layers-override", "9"), "--num-hidden-layers-override 9 is not between 1 and 4"),
        (("--model-family", "nonsense"), "Unknown model family 'nonsense': one of "),
        (("--device-file", "/nowhere.yaml"), "Cannot read the device file /nowhere.yaml"),
        (("--device", "ATLAS_900"), "There is no device 'ATLAS_900'."),
    ],
)
def test_a_wrong_flag(capsys: pytest.CaptureFixture[str], config: Any, words: tuple[str, ...], sentence: str) -> None:
    err = refusal(capsys, "text-generate", config(BASE), "--device", A2, *REQUEST, *words)
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is empty"),
        ('{"hidden_size": 10', "is not valid JSON"),
        ("null", "holds null"),
        ('"text"', "holds a string"),
        ("[1]", "holds a list"),
        ('{"model_type": "qwen3", "hidden_size": NaN}', "$.hidden_size = nan"),
        (BASE | {"hidden_size": "1024"}, "$.hidden_size is '1024', expected a whole number"),
        (BASE | {"hidden_size": None}, "$.hidden_size is missing"),
        (BASE | {"vocab_size": [32000]}, "$.vocab_size is [32000], expected a whole number"),
        (BASE | {"num_hidden_layers": -4}, "$.num_hidden_layers is -4"),
        (BASE | {"num_hidden_layers": 10**9}, "$.num_hidden_layers is 1000000000, expected a whole number of at least"),
        (BASE | {"num_attention_heads": 0}, "$.num_attention_heads is 0"),
        (BASE | {"model_type": "mystery"}, "model_type 'mystery' is of no known family"),
        ({**BASE, "model_type": None}, "$.model_type is missing; name one of the families with --model-family"),
    ],
)
def test_a_wrong_config(capsys: pytest.CaptureFixture[str], config: Any, content: object, sentence: str) -> None:
    path = config(content, "ein größeres config.json")
    err = refusal(capsys, "text-generate", path, "--device", A2, *REQUEST)
    assert sentence in err
    assert path in err
    assert err.count("\n") == 1


def test_a_config_of_100_mb(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(100 * 2**20)
    assert "has 100 MiB, more than the 64 MiB" in refusal(capsys, "text-generate", str(path), "--device", A2, *REQUEST)


def test_a_missing_path(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "nothing here" / "config.json"
    assert f"The config path {path} does not exist" in refusal(
        capsys, "text-generate", str(path), "--device", A2, *REQUEST
    )


def test_an_unknown_model_names_the_closest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    err = refusal(capsys, "text-generate", "Qwen/Qwen3-33B", "--device", A2, *REQUEST)
    assert "Qwen/Qwen3-33B" in err
    assert "The closest in the catalog: Qwen/Qwen3-32B" in err


def test_a_pipeline_is_no_language_model(capsys: pytest.CaptureFixture[str]) -> None:
    err = refusal(capsys, "text-generate", "Wan-AI/Wan2.1-T2V-14B-Diffusers", "--device", A2, *REQUEST)
    assert "Wan-AI/Wan2.1-T2V-14B-Diffusers is a diffusion pipeline" in err


def test_all_that_is_missing_is_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    err = refusal(capsys, "text-generate")
    for name in ("MODEL", "--device", "--num-queries", "--query-length", "--quantize-linear-action"):
        assert name in err.splitlines()[0]
    for offered in (A2, "H20_96GB", "W8A8_DYNAMIC", "Qwen/Qwen3-32B"):
        assert offered in err


def test_of_a_complete_half_only_the_rest_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    err = refusal(capsys, "text-generate", "Qwen/Qwen3-33B", "--device", A2, "--num-queries", "1")
    assert err.splitlines()[0] == "error: Missing and without a default: --query-length, --quantize-linear-action."
    assert "Qwen/Qwen3-33B is not in the catalog; the closest there: Qwen/Qwen3-32B" in err


def test_a_world_without_a_strategy_gets_one_to_paste(capsys: pytest.CaptureFixture[str]) -> None:
    request = ("text-generate", "deepseek-ai/DeepSeek-V3", "--device", A2, *REQUEST)
    err = refusal(capsys, *request, "--world-size", "16")
    flags = "--world-size 16 --tp-size 8 --dp-size 2 --ep-size 16"
    assert err.endswith(f"this one suits: {flags}\n")
    assert main((*request, *flags.split())) == 0


@pytest.mark.parametrize("flag", ["--json", "--chrome-trace-file"])
def test_a_file_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], config: Any, tmp_path: Path, flag: str
) -> None:
    request = ("text-generate", config(BASE), "--device", A2, *REQUEST)
    missing = tmp_path / "missing" / "out.json"
    assert f"there is no directory {missing.parent}" in refusal(capsys, *request, flag, str(missing))
    assert f"{flag} {tmp_path} is a directory" in refusal(capsys, *request, flag, str(tmp_path))
    too_long = tmp_path / ("x" * 300)
    assert f"Cannot write {too_long}" in refusal(capsys, *request, flag, str(too_long), status=1)


def test_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean text-generate" in refusal(capsys, "text-generat")
    assert "Name a command" in refusal(capsys, "--", status=2)


def test_an_error_of_the_program_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("tensor_cast.simulator.simulate", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        main(("text-generate", "Qwen/Qwen3-8B", "--device", A2, *REQUEST))


def test_an_interrupt_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tensor_cast.simulator.simulate", interrupted)
    assert main(("text-generate", "Qwen/Qwen3-8B", "--device", A2, *REQUEST)) == 130


STEP = ("--num-queries", "1", "--query-length", "8", "--quantize-linear-action", "DISABLED", "--device", "H100")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--chrome-trace-file", "-"), "--chrome-trace-file - is no file: only --json may be - for stdout"),
        (("--json", "a", "--chrome-trace-file", "./a"), "--json and --chrome-trace-file are both a: give two files."),
        (
            ("--performance-model", "profiling", "--profiling-database-path", "nowhere"),
            "--profiling-database-path nowhere is no directory.",
        ),
        (("--performance-model", "profiling"), "No measured times of H100_SXM_80GB come with the package"),
    ],
)
def test_files_that_cannot_be_meant(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["text-generate", "Qwen/Qwen3-0.6B", *STEP, *flags]) == 2
    output = capsys.readouterr()
    assert output.err.startswith(f"error: {sentence}")
    assert not output.out
    assert not list(tmp_path.iterdir())
