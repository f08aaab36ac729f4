from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.models.source import LoadedConfig, load_config

CONFIG = {"model_type": "qwen3", "hidden_size": 64, "num_hidden_layers": 2}


def written(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def refusal(model: str | Path, **options: Any) -> str:
    """The one sentence with which a model is refused."""
    with pytest.raises(ModelingError) as caught:
        load_config(str(model), **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# A path


def test_directory_with_config(tmp_path: Path) -> None:
    file = written(tmp_path / "my-model" / "config.json", CONFIG)
    expected = LoadedConfig("my-model", CONFIG, None, "path", str(file))
    assert load_config(str(file.parent)) == expected
    assert load_config(f"{file.parent}{os.sep}") == expected


def test_json_file_of_any_name(tmp_path: Path) -> None:
    file = written(tmp_path / "tiny.json", CONFIG)
    assert load_config(str(file)) == LoadedConfig("tiny", CONFIG, None, "path", str(file))


@pytest.mark.parametrize("name", ["with space", "\u6a21\u578b-\u00e9\u00fc", "a[1]{2}", "'quoted'"])
def test_path_with_unusual_characters(tmp_path: Path, name: str) -> None:
    written(tmp_path / name / "config.json", CONFIG)
    loaded = load_config(str(tmp_path / name))
    assert (loaded.name, loaded.config) == (name, CONFIG)


def test_relative_path_and_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "model" / "config.json", CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_config("model").config == CONFIG
    assert load_config("./model").config == CONFIG
    assert load_config("~/model").config == CONFIG


def test_path_comes_before_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "Qwen" / "Qwen3-32B" / "config.json", CONFIG)
    monkeypatch.chdir(tmp_path)
    assert load_config("Qwen/Qwen3-32B").origin == "path"


def test_diffusers_directory(tmp_path: Path) -> None:
    index = {
        "_class_name": "WanPipeline",
        "boundary_ratio": 0.875,
        "scheduler": ["diffusers", "UniPCMultistepScheduler"],
        "tokenizer": ["transformers", "T5TokenizerFast"],
        "transformer": ["diffusers", "WanTransformer3DModel"],
        "transformer_2": [None, None],
        "vae": ["diffusers", "AutoencoderKLWan"],
    }
    file = written(tmp_path / "wan" / "model_index.json", index)
    for component in ("transformer", "vae", "tokenizer", "not_in_the_index"):
        written(tmp_path / "wan" / component / "config.json", {"part": component})
    pipeline = {"transformer": {"part": "transformer"}, "vae": {"part": "vae"}}
    expected = LoadedConfig("wan", index, pipeline, "path", str(file))
    assert load_config(str(tmp_path / "wan")) == expected
    assert load_config(str(file)) == expected


def test_modelopt_quantisation_is_read_from_its_own_file(tmp_path: Path) -> None:
    written(tmp_path / "config.json", CONFIG)
    quantisation = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}
    written(tmp_path / "hf_quant_config.json", {"producer": {"name": "modelopt"}, "quantization": quantisation})
    expected = {**CONFIG, "quantization_config": {"quant_method": "modelopt", **quantisation}}
    assert load_config(str(tmp_path)).config == expected
    written(tmp_path / "config.json", {**CONFIG, "quantization_config": {"quant_method": "fp8"}})
    assert load_config(str(tmp_path)).config["quantization_config"] == {"quant_method": "fp8"}


def test_modelopt_file_without_quantisation(tmp_path: Path) -> None:
    written(tmp_path / "config.json", CONFIG)
    file = written(tmp_path / "hf_quant_config.json", {"quantization": None})
    assert refusal(tmp_path) == (f"The config file {file} has no object $.quantization: give one written by ModelOpt.")


@pytest.mark.parametrize("model", ["./missing", "/no/such/place", "missing.json", "~/missing", "a/b/c"])
def test_missing_path(model: str) -> None:
    assert refusal(model) == f"The config path {Path(model).expanduser()} does not exist."


def test_directory_without_config_says_what_it_holds(tmp_path: Path) -> None:
    assert refusal(tmp_path).endswith("has neither config.json nor model_index.json; it holds nothing.")
    for name in ("a.bin", "b.bin", "c.bin", "d.bin", "e.bin", "f.bin", "g.bin"):
        (tmp_path / name).touch()
    (tmp_path / "b").mkdir()
    assert refusal(tmp_path).endswith("it holds a.bin, b.bin, b/, c.bin, d.bin and 3 more.")


@pytest.mark.parametrize("model", ["", " ", "\t"])
def test_empty_name(model: str) -> None:
    assert refusal(model) == "The model's name is empty: give a path, or an id such as Qwen/Qwen3-32B."


# The catalog


def test_catalog_id_and_alias() -> None:
    loaded = load_config("Qwen/Qwen3-32B")
    assert (loaded.name, loaded.origin, loaded.pipeline) == ("Qwen/Qwen3-32B", "catalog", None)
    assert loaded.config["num_hidden_layers"] == 64
    assert "config.json" in loaded.source
    assert load_config("qwen3-32b") == loaded


def test_catalog_pipeline() -> None:
    loaded = load_config("wan2.2-t2v-14b")
    assert loaded.name == "Wan-AI/Wan2.2-T2V-A14B-Diffusers"
    assert loaded.config["boundary_ratio"] == 0.875
    assert loaded.pipeline is not None
    assert set(loaded.pipeline) == {"transformer", "transformer_2", "vae", "text_encoder", "scheduler"}


@pytest.mark.parametrize("model", ["qwen3-33b", "no such model", "Qwen/", "a\0b", "x" * 5000])
def test_name_that_no_hub_can_have(model: str) -> None:
    message = refusal(model)
    assert message.startswith(f"The model {model!r} is neither a path nor in the catalog, and it is not of the form")
    if model == "qwen3-33b":
        assert "The closest in the catalog: Qwen/Qwen3-32B" in message
