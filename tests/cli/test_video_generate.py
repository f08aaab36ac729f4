"""``msmodeling video-generate`` and ``image-generate``: what they print, write and refuse; their guides."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.main import _parser, main
from tensor_cast.quantization import LINEAR_SCHEMES
from tests.commands import document, printed

DOCS = Path(__file__).parents[2] / "docs"
WAN, A2 = "Wan-AI/Wan2.2-T2V-A14B-Diffusers", "ATLAS_800_A2_376T_64G"
SIZE = ("--height", "480", "--width", "832", "--frame-num", "81")
REQUEST = ("video-generate", WAN, "--device", A2, *SIZE, "--quantize-linear-action", "W8A8_DYNAMIC")
SPREAD = ("--world-size", "8", "--ulysses-size", "4", "--use-cfg", "--cfg-parallel")
IMAGE = (
    "image-generate", "Qwen/Qwen-Image-Edit", "--device", "TEST_DEVICE", "--resolution", "1024x1024",
    "--quantize-linear-action", "DISABLED",
)  # fmt: skip


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    status = main(words)
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert "Traceback" not in err
    return err


def test_every_section_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *REQUEST, *SPREAD)
    titles = [line.split(":")[0] for line in text.splitlines() if line and not line.startswith((" ", "Warning"))]
    assert titles == [
        "Configuration", "Kernels", "Categories", "Collectives", "Stages", "Time", "Memory of a device"
    ]  # fmt: skip
    assert "32,760 of video, 64 of text and other conditions; 8,190 on each rank" in text
    assert "8 devices = ulysses 4 x cfg 2" in text
    assert "transformer_2 14,288,491,584 (14.3 B)" in text


def test_json_has_what_the_table_has(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, *REQUEST, *SPREAD, "--sample-step", "28")
    assert found["tokens"] == {"video": 32_760.0, "text": 64.0, "per_rank": 8_190.0}
    assert found["parameters"]["transformer_2"] == 14_288_491_584
    assert [stage["name"] for stage in found["stages"]] == ["text", "denoise", "vae"]
    assert sum(stage["total_s"] for stage in found["stages"]) == pytest.approx(found["total_time_s"], rel=1e-12)
    assert sum(stage["share"] for stage in found["stages"]) == pytest.approx(1.0)
    assert found["step_time_s"] * 28 == pytest.approx(found["stages"][1]["total_s"], rel=1e-12)
    assert sum(op["total_s"] for op in found["ops"]) == pytest.approx(found["total_time_s"], rel=1e-12)
    assert found["memory"]["fits"]
    assert {part["name"] for part in found["memory"]["components"] if part["resident"]} == set(found["parameters"])


def test_resolution_is_height_by_width(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("video-generate", WAN, "--device", A2, "--resolution", "480x832", "--frame-num", "81")
    found = document(capsys, *words, "--quantize-linear-action", "DISABLED")
    assert (found["workload"]["height"], found["workload"]["width"]) == (480.0, 832.0)


def test_a_trace_draws_one_run_of_each_kind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    found = document(capsys, *REQUEST, *SPREAD, "--chrome-trace-file", str(file))
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    end = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    runs = [run for stage in found["stages"] for run in stage["runs"]]
    assert end == pytest.approx(1e6 * sum(run["run_s"] for run in runs), rel=1e-6)


def test_dumps(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *REQUEST, "--stages", "denoise", "--dump-input-shapes", "--dump-op-bound-results")
    assert "bfloat16[32760,5120]" in text
    assert "Bounds: " in text


def test_it_says_first_that_it_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("video-generate", WAN, "--device", A2, *SIZE, "--quantize-linear-action", "DISABLED")
    text = printed(capsys, *words, "--reserved-memory-gb", "10")
    assert text.startswith("Does not fit: a device needs ")
    assert "--offload-inactive-expert" in text.splitlines()[0]
    found = document(capsys, *words, "--reserved-memory-gb", "10")
    assert not found["memory"]["fits"]
    assert {"offload_inactive_expert": True} in [remedy["changes"] for remedy in found["would_fit"]]


def test_an_editing_model_takes_images(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (document(capsys, *IMAGE, "--reference-images", str(count)) for count in (1, 2))
    assert one["tokens"]["per_rank"] == 2 * 4_096
    assert two["tokens"]["per_rank"] == 3 * 4_096


def test_tiles_are_advised_where_the_whole_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("video-generate", "hunyuanvideo-community/HunyuanVideo", "--device", A2, "--resolution", "720x1280")
    text = printed(capsys, *words, "--frame-num", "129", "--quantize-linear-action", "DISABLED", "--no-vae-tiling")
    assert "it would fit with the VAE in tiles (no --no-vae-tiling)" in text.splitlines()[0]


def test_all_that_is_missing_is_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    err = refusal(capsys, "video-generate")
    first, *lines = err.splitlines()
    assert "MODEL, --device, --height, --width, --frame-num, --quantize-linear-action" in first
    assert WAN in lines[0]
    assert "FLUX" not in lines[0]
    assert "--frame-num" not in refusal(capsys, "image-generate").splitlines()[0]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--resolution", "480x832"), "--resolution is given beside --height or --width"),
        (("--world-size", "8"), "Recommended: --ulysses-size 8."),
        (("--world-size", "8", "--use-cfg"), "Recommended: --ulysses-size 4 --cfg-parallel."),
        (("--cfg-parallel",), "--cfg-parallel splits the two forwards of --use-cfg"),
        (("--world-size", "6", "--ulysses-size", "6"), "the nearest that do are 5 and 8"),
        (("--cache-step-range", "1,4"), "--cache-step-range belongs to --dit-cache"),
        (("--dit-cache", "--cache-step-range", "4"), "--cache-step-range must be FIRST,END"),
        (("--dit-cache", "--cache-block-range", "0,41"), "--cache-block-range 0,41 goes beyond the 40 blocks"),
        (("--dit-cache", "--cache-step-interval", "1"), "--cache-step-interval must be a whole number of at least 2"),
        (("--attention-sparsity", "0.5"), "--attention-sparsity belongs to --attention-backend block_sparse_attention"),
        (
            ("--attention-block-size", "64"),
            "--attention-block-size belongs to --attention-backend block_sparse_attention",
        ),
        (("--attention-sparsity", "1"), "--attention-sparsity must be a number of at least 0 and less than 1"),
        (("--stages", "vea"), "--stages must be one of"),
        (("--seq-len", "0"), "--seq-len must be a whole number of at least 1"),
        (("--world-size", "4096", "--ulysses-size", "4096"), "is more than the 1024 devices"),
    ],
)
def test_wrong_requests(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str) -> None:
    assert sentence in refusal(capsys, *REQUEST, *words)


def test_sizes_are_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--height", "486", "--width", "838", "--frame-num", "80", "--quantize-linear-action", "DISABLED")
    err = refusal(capsys, "video-generate", WAN, "--device", A2, *words)
    assert "the nearest are 480 and 496" in err
    assert "the nearest are 832 and 848" in err
    assert "--frame-num 80 is not 4k + 1: the nearest are 77 and 81" in err


def test_the_other_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--device", A2, *SIZE, "--quantize-linear-action", "DISABLED")
    assert "image-generate" in refusal(capsys, "video-generate", "Qwen/Qwen-Image", *words)
    assert "text-generate" in refusal(capsys, "video-generate", "Qwen/Qwen3-8B", *words)
    assert "video-generate" in refusal(capsys, "image-generate", WAN, "--device", A2, *SIZE[:4], *words[-2:])


def test_models_show_a_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    size = ("--height", "480", "--width", "832", "--frame-num", "81", "--ulysses-size", "4")
    found = json.loads(printed(capsys, "models", "show", WAN, *size, "--json"))
    assert found["tokens"] == {"video": 32_760.0, "text": 64.0, "per_rank": 8_190.0}
    assert found["parameters"]["transformer"] == 14_288_491_584
    assert "1.664426e+15" in printed(capsys, "models", "show", WAN, *size)
    assert "tokens" not in json.loads(printed(capsys, "models", "show", WAN, "--json"))
    assert "A size needs --width, --frame-num too" in refusal(capsys, "models", "show", WAN, "--height", "480")


def flags_of(command: str) -> set[str]:
    _, parser = _parser(command)
    assert parser is not None
    options = {option for action in parser._actions for option in action.option_strings}
    return {option for option in options if option.startswith("--")} - {"--help"}


@pytest.mark.parametrize("guide", ["video-generate.md", "video-generate.zh.md"])
def test_every_flag_is_explained_and_no_other(guide: str) -> None:
    text = (DOCS / guide).read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    explained = {flag for cell in cells for flag in re.findall(r"--[a-z0-9-]+", cell)}
    assert explained == flags_of("video-generate") | flags_of("image-generate")
    assert all(f"`{scheme}`" in text for scheme in LINEAR_SCHEMES)


def keys_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            # What was asked for goes by the names of the Python API; parameters by those of directories.
            if key not in ("workload", "deployment", "changes", "parameters", "weight_bytes"):
                yield from keys_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


@pytest.mark.parametrize("language", ["", ".zh"])
def test_every_key_is_described(language: str, capsys: pytest.CaptureFixture[str]) -> None:
    # Rows of kernels are those of text-generate, described there.
    texts = [(DOCS / f"{name}{language}.md").read_text(encoding="utf-8") for name in ("json-video", "json")]
    described = {key for text in texts for key in re.findall(r"`(?:\w+\.)?(\w+)`", text)}
    documents = [
        document(capsys, *REQUEST, *SPREAD),
        json.loads(printed(capsys, "models", "show", WAN, *SIZE, "--json")),
    ]
    bounds = {"matrix", "vector", "memory", "comm", "fixed", "wait"}
    assert set(keys_of(documents)) - described - bounds == set()


def test_measured_times_say_how_much_they_are_of(capsys: pytest.CaptureFixture[str]) -> None:
    """The packaged A3 database has products near a video model's, and none of its attention."""
    request = ("video-generate", "Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "--device", "ATLAS_800_A3_752T_128G_DIE", *SIZE)
    request += ("--quantize-linear-action", "DISABLED", "--compile")
    text = printed(capsys, *request, "--performance-model", "profiling")
    assert re.search(r"Where times come from\n  source +total ms +share of kernels\n  measured ", text)
    # No grid is made of a generation's own sizes: the rows are of general ones.
    assert re.search(r"rows to measure +generate_shape_grid\.py --device \S+ --vllm-version \S+ --ops MatMulV2", text)
    assert re.search(r"their times +start_microbench\.py .*--update-mode missing-only --ops MatMulV2", text)
    found = document(capsys, *request, "--performance-model", "profiling")
    assert found["performance_model"] == "profiling"
    assert sum(found["sources_s"].values()) + found["idle_s"] == pytest.approx(found["total_time_s"], rel=1e-9)
    assert found["sources_s"]["extrapolated"] > 0.0
    analytic = document(capsys, *request)
    assert analytic["performance_model"] == "analytic"
    # As many launches, so as many gaps: those of measured times stand beside their rows, which are of the kernel alone.
    assert found["idle_s"] == pytest.approx(analytic["idle_s"], rel=1e-9)
    waiting = sum(row["parts_s"]["wait"] for row in found["ops"])
    assert 0.0 < waiting < found["idle_s"]
    rows = sum(row["total_s"] for row in found["ops"])
    assert rows + found["idle_s"] - waiting == pytest.approx(found["total_time_s"], rel=1e-9)
    assert analytic["sources_s"]["analytic"] + analytic["idle_s"] == pytest.approx(analytic["total_time_s"], rel=1e-9)
    assert "Where times come from" not in printed(capsys, *request)
