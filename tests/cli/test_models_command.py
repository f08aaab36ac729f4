"""``msmodeling models`` and ``models show``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.main import main
from tensor_cast.models.catalog import catalog_ids

PIPELINE = "Wan-AI/Wan2.2-T2V-A14B-Diffusers"


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    status = main(("models", *words))
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    return out


def test_the_whole_catalog_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys)
    header, *rows = [line.split() for line in text.partition("\n\n")[0].splitlines()]
    assert header == ["model", "family", "parameters", "active", "a", "token"]
    assert [row[0] for row in rows] == catalog_ids()
    by_id = {row[0]: row[1:] for row in rows}
    assert by_id["Qwen/Qwen3-32B"] == ["qwen3", "32.8", "B", "32.8", "B"]
    assert by_id["deepseek-ai/DeepSeek-V3"][1:] == ["671", "B", "37.6", "B"]
    assert by_id["Wan-AI/Wan2.1-T2V-14B-Diffusers"][0].endswith("Pipeline")
    assert printed(capsys, "list") == text


def test_the_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["id"]: row for row in json.loads(printed(capsys, "--json"))}
    assert rows["Qwen/Qwen3-8B"]["parameters"] == {"total": 8_190_735_360, "active": 8_190_735_360}
    assert rows["Qwen/Qwen3-8B"]["supported"]
    assert list(rows) == catalog_ids()


def test_the_list_as_json_wherever_the_flag_stands(capsys: pytest.CaptureFixture[str]) -> None:
    before, after = (printed(capsys, *words) for words in (("--json", "list"), ("list", "--json")))
    assert before == after == printed(capsys, "--json")


def test_show_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("show", "Qwen/Qwen3-32B", "--json", "--context-length", "1000", "--tp-size", "16")
    found = json.loads(printed(capsys, *words, "--quantize-attention-action", "INT8", "--block-size", "128"))
    assert found["parameters"] == {"total": 32_762_123_264, "active": 32_762_123_264}
    # 64 layers x key and value x 8 heads x 128, one byte each; 8 KV heads on 16 ranks leave one on each.
    assert found["kv_cache"]["bytes_per_token"] == 131_072
    assert found["kv_cache"]["bytes_per_token_per_rank"] == 131_072 / 8
    assert found["kv_cache"]["bytes_per_sequence"] == 1024 * 131_072
    assert found["weight_bytes"] == 2 * 32_762_123_264
    assert found["ignored_keys"] == []
    assert {"model_type", "family", "state_bytes_per_sequence"} <= found.keys()
    assert found["flops_per_token"].keys() >= {"linear", "attention_per_context_token"}


def test_show_derives_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "show", "Qwen/Qwen3-32B")
    parts = text.split("Parameters: shape x copies\n")[1].split("\n\n")[0].splitlines()[1:]
    total = 0
    for line in parts[:-2]:
        _, *shape, copies, count, active = line.replace(" x ", "x").split()
        product = int(copies)
        for size in shape[0].split("x"):
            product *= int(size)
        assert f"{product:,}" == count
        assert active == "all"
        total += product
    assert parts[-1].split() == ["total", f"{total:,}", f"{total:,}"]
    assert "262,144 bytes a token in bfloat16" in text


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("Qwen/Qwen3-VL-8B-Instruct", "576,388,336 (576 M) of them are the vision encoder's"),
        ("Qwen/Qwen3.5-9B", "456,010,480 (456 M) more, not counted by the model's class but in the weights,"),
    ],
)
def test_rows_of_an_encoder_add_up_to_the_totals(capsys: pytest.CaptureFixture[str], model: str, words: str) -> None:
    text = printed(capsys, "show", model)
    assert words in text
    section = text.split("Parameters: shape x copies\n")[1].split("\n\n")[0].splitlines()[1:]
    rows = [line.replace(" x ", "x").split() for line in section if not line.startswith("  -")]
    total = next(row for row in rows if row[0] == "total")
    counted = [(row[3], "".join(row[4:])) for row in rows[: rows.index(total)]]
    language = sum(int(size.replace(",", "")) for size, active in counted if active != "imagesonly")
    everything = sum(int(size.replace(",", "")) for size, _ in counted)
    beside = "The total leaves out the" in text
    assert total == ["total", f"{language if beside else everything:,}", f"{language:,}"]
    as_json = json.loads(printed(capsys, "show", model, "--json"))
    assert sum(part["active"] for part in as_json["parts"]) == as_json["parameters"]["active"] == language


def test_a_config_with_unknown_keys(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8}
    config |= {"intermediate_size": 1024, "vocab_size": 1000, "attention_twist": 3}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    assert "does not know these config keys and ignores them: attention_twist" in printed(capsys, "show", str(path))
    found = json.loads(printed(capsys, "show", str(path), "--json", "--model-family", "mistral", "--dtype", "float32"))
    assert found["ignored_keys"] == ["attention_twist"]
    assert found["family"] == "mistral"
    assert found["weight_bytes"] == 4 * found["parameters"]["total"]


def test_windows_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "show", "openai/gpt-oss-20b", "--context-length", "131072", "--tp-size", "2")
    assert "the last 128" in text
    assert "24,576 bytes a token once the windows are full" in text
    assert "3,224,371,200 bytes (3.22 GB, 3.00 GiB) for a sequence of 131,072 tokens" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("show", "Lightricks/LTX-Video"), "LTXVideoTransformer3DModel' is of no known family"),
        (("show", "Qwen/Qwen3-8B", "--tp-size", "3"), "--tp-size 3 does not divide"),
        (("show", "Qwen/Qwen3-8B", "--context-length", "0"), "--context-length must be a whole number of at least 1"),
        (("show",), "the following arguments are required: ID_OR_PATH"),
        (("show", "wan2.2"), "Wan-AI/Wan2.2-T2V-A14B-Diffusers"),
        (
            ("show", "Qwen/Qwen3-8B", "--height", "480"),
            "is a language model: --height belongs to diffusion pipelines alone",
        ),
        (("show", PIPELINE, "--tp-size", "1", "--dtype", "bf16"), "--tp-size, --dtype belong to language models alone"),
        (("show", PIPELINE, "--ulysses-size", "4"), "A size needs --height, --width, --frame-num too."),
        (("show", PIPELINE, "--height", "480", "--width", "832", "--frame-num", "80"), "--frame-num 80 is not 4k + 1"),
    ],
)
def test_wrong_requests(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str) -> None:
    assert main(("models", *words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
