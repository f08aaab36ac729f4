from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.errors import ModelingError
from tensor_cast.models import catalog

CATALOG = Path(catalog.__file__).parent
PUBLISHED = Path(__file__).parents[3] / "shared" / "model_configs"

RECORDS: dict[str, dict[str, Any]] = {
    model_id: record
    for file in sorted(CATALOG.glob("*.json"))
    for model_id, record in json.loads(file.read_text(encoding="utf-8")).items()
}


@pytest.fixture
def opened_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the catalog files that are read while a test runs."""
    opened: list[str] = []
    read_text = Path.read_text

    def recording(path: Path, *args: Any, **kwargs: Any) -> str:
        if path.parent == CATALOG:
            opened.append(path.name)
        return read_text(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", recording)
    return opened


def found(name: str) -> catalog.CatalogEntry:
    entry = catalog.find(name)
    assert entry is not None, name
    return entry


def config_of(name: str) -> dict[str, Any]:
    config = found(name).config
    assert config is not None, name
    return config


def without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    assert len(set(keys)) == len(keys), f"a key occurs twice in {keys[:3]}"
    return dict(pairs)


def test_exact_id_gives_the_published_figures() -> None:
    entry = found("Qwen/Qwen3-32B")
    assert entry.id == "Qwen/Qwen3-32B"
    assert entry.pipeline is None
    # https://huggingface.co/Qwen/Qwen3-32B/blob/main/config.json
    expected = {"model_type": "qwen3", "num_hidden_layers": 64, "hidden_size": 5120, "num_key_value_heads": 8}
    assert expected.items() <= (entry.config or {}).items()


def test_exact_id_opens_only_its_organisations_file(opened_files: list[str]) -> None:
    assert catalog.find("Qwen/Qwen3-32B") is not None
    assert opened_files == ["Qwen.json"]


def test_a_second_call_does_not_see_what_the_first_caller_changed() -> None:
    config_of("Qwen/Qwen3-32B")["hidden_size"] = 1
    assert config_of("Qwen/Qwen3-32B")["hidden_size"] == 5120


@pytest.mark.parametrize(
    ("name", "model_id"),
    [
        ("qwen3-32b", "Qwen/Qwen3-32B"),
        ("qwen/qwen3-32b", "Qwen/Qwen3-32B"),
        ("Qwen3_32B", "Qwen/Qwen3-32B"),
        ("deepseek-v3", "deepseek-ai/DeepSeek-V3"),
        ("deepseek-r1", "deepseek-ai/DeepSeek-R1"),
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
        ("glm-4.7", "zai-org/GLM-4.7"),
        ("wan2.2 t2v-14b", "Wan-AI/Wan2.2-T2V-A14B-Diffusers"),
    ],
)
def test_short_names(name: str, model_id: str) -> None:
    assert found(name).id == model_id


@pytest.mark.parametrize(
    "name", ["", "Qwen", "Qwen/", "/Qwen3-32B", "../Qwen/Qwen3-32B", "Qwen/Qwen3-32B/", "a/b", "\0"]
)
def test_unknown_names_are_not_found(name: str) -> None:
    assert catalog.find(name) is None


def test_ambiguous_short_name_lists_the_candidates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for organisation in ("acme", "zenith"):
        record = {f"{organisation}/Tiny-1B": {"source": "a test", "config": {"model_type": organisation}}}
        (tmp_path / f"{organisation}.json").write_text(json.dumps(record), encoding="utf-8")
    monkeypatch.setattr(catalog, "_DIRECTORY", tmp_path)
    catalog._names.cache_clear()
    try:
        with pytest.raises(
            ModelingError, match=r"'tiny-1b' fits several models: use one of acme/Tiny-1B, zenith/Tiny-1B"
        ):
            catalog.find("tiny-1b")
        assert config_of("zenith/Tiny-1B") == {"model_type": "zenith"}
    finally:
        catalog._names.cache_clear()


def test_closest_ids_compare_a_bare_name_with_bare_names() -> None:
    assert catalog.closest_ids("qwen3-33b")[0] == "Qwen/Qwen3-32B"
    assert catalog.closest_ids("Qwen/Qwen3-33B")[0] == "Qwen/Qwen3-32B"
    assert catalog.closest_ids("deepseek-v33", limit=1) == ["deepseek-ai/DeepSeek-V3"]
    assert catalog.closest_ids("\u4f60\u597d") == []


def test_closest_ids_are_those_with_every_word_of_the_name() -> None:
    found = catalog.closest_ids("wan2.2")
    assert "Wan-AI/Wan2.2-T2V-A14B-Diffusers" in found
    assert all(model_id.startswith("Wan-AI/Wan2.2") for model_id in found)
    assert catalog.closest_ids("Wan2.2_t2v") == ["Wan-AI/Wan2.2-T2V-A14B-Diffusers"]
    assert catalog.ids_with_words(" - ") == []


def test_same_as_takes_the_other_entry_and_its_own_overrides() -> None:
    config = config_of("zai-org/GLM-4.7")
    assert config == {**config_of("zai-org/GLM-4.5"), "max_position_embeddings": 202752}
    assert config["use_qk_norm"] is True
    assert found("zai-org/GLM-4.7").source != found("zai-org/GLM-4.5").source


def test_pipeline_holds_each_component() -> None:
    entry = found("Wan-AI/Wan2.2-T2V-A14B-Diffusers")
    assert entry.config is None
    assert entry.pipeline is not None
    components = {"transformer", "transformer_2", "vae", "text_encoder", "scheduler"}
    assert set(entry.pipeline) == {"model_index", *components}
    assert entry.pipeline["scheduler"]["flow_shift"] == 3.0
    assert entry.pipeline["model_index"]["boundary_ratio"] == 0.875
    assert entry.pipeline["transformer"]["num_layers"] == 40


@pytest.mark.parametrize(
    ("folded", "names"),
    [
        ("lm_head", ["lm_head"]),
        ("layers.7.mlp", ["layers.7.mlp"]),
        ("layers.{0-1,4}.mlp", ["layers.0.mlp", "layers.1.mlp", "layers.4.mlp"]),
        ("a.{0-1}.b.{2,3}.c", ["a.0.b.2.c", "a.0.b.3.c", "a.1.b.2.c", "a.1.b.3.c"]),
        (r"re:.*mlp\.(gate|up)_proj.*", [r"re:.*mlp\.(gate|up)_proj.*"]),
    ],
)
def test_folded_module_names(folded: str, names: list[str]) -> None:
    assert list(catalog.unfolded_names(folded)) == names


@given(st.sets(st.integers(0, 200), min_size=1))
def test_folding_loses_no_layer(layers: set[int]) -> None:
    folded = "layers.{" + ",".join(map(str, sorted(layers))) + "}.mlp"
    assert list(catalog.unfolded_names(folded)) == [f"layers.{layer}.mlp" for layer in sorted(layers)]


def test_module_names_come_as_published() -> None:
    # 48 layers, each with two norms and the router, and lm_head: 48 * 3 + 1.
    modules = config_of("Qwen/Qwen3-30B-A3B-FP8")["quantization_config"]["modules_to_not_convert"]
    assert len(modules) == len(set(modules)) == 145
    assert "model.layers.47.mlp.gate" in modules


@pytest.mark.parametrize("file", sorted(CATALOG.glob("*.json")), ids=lambda file: file.stem)
def test_file_has_one_model_a_line_and_no_repeated_key(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    records = json.loads(text, object_pairs_hook=without_repeated_keys)
    assert len(text.splitlines()) == len(records) + 2
    assert list(records) == sorted(records, key=str.casefold)
    assert all(model_id.startswith(f"{file.stem}/") for model_id in records)


@pytest.mark.parametrize("model_id", RECORDS)
def test_every_record_is_complete(model_id: str) -> None:
    record = RECORDS[model_id]
    assert set(record) <= {"source", "aliases", "config", "pipeline", "same_as"}
    assert len(record["source"]) > 10
    if "same_as" in record:
        assert "same_as" not in RECORDS[record["same_as"]]
    else:
        assert ("config" in record) != ("pipeline" in record)
    entry = found(model_id)
    if entry.pipeline is None:
        config = config_of(model_id)
        assert "model_type" in config
        text = config.get("text_config", config)
        assert all(text[key] > 0 for key in ("hidden_size", "vocab_size", "num_attention_heads"))
    else:
        assert "_class_name" in entry.pipeline["model_index"]
        assert "_class_name" in entry.pipeline["transformer"]
        # A component that the index names without its config is missing on purpose, and the source says so.
        named = {
            name
            for name in entry.pipeline["model_index"]
            if name.startswith(("transformer", "vae", "text_encoder")) and name not in entry.pipeline
        }
        assert not named or "left out" in entry.source


def test_catalog_ids_are_every_record() -> None:
    assert catalog.catalog_ids() == sorted(RECORDS)


def test_every_alias_leads_to_its_model() -> None:
    for model_id, record in RECORDS.items():
        for alias in record.get("aliases", []):
            assert found(alias).id == model_id


def test_every_id_without_its_organisation_leads_to_its_model() -> None:
    for model_id in RECORDS:
        assert found(model_id.partition("/")[2]).id == model_id


def test_quantised_checkpoints_say_how_they_are_quantised() -> None:
    for model_id in RECORDS:
        if model_id.endswith(("-FP8", "-NVFP4", "-FP8-dynamic")):
            assert "quantization_config" in config_of(model_id), model_id


PER_LAYER_LISTS = {
    "layer_types", "attn_type_list", "layers_block_type", "hybrid_layer_pattern", "compress_ratios",
    "indexer_types", "mlp_layer_types", "moe_layer_freq", "block_configs",
}  # fmt: skip


def test_per_layer_lists_have_an_item_a_layer() -> None:
    for model_id in RECORDS:
        if (config := found(model_id).config) is None:
            continue
        config = config.get("text_config", config)
        layers = config.get("num_hidden_layers")
        for key in PER_LAYER_LISTS & set(config):
            if isinstance(config[key], list) and layers is not None:
                extra = config.get("num_nextn_predict_layers") or 0
                assert len(config[key]) in (layers, layers + extra), (model_id, key)


def published_configs() -> Iterator[tuple[str, Path]]:
    if not PUBLISHED.is_dir():
        return
    with (PUBLISHED / "provenance.csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            file = PUBLISHED / row["file"]
            if file.name.endswith("config.json") and row["model_id"] in RECORDS and file.is_file():
                yield row["model_id"], file


def kept_keys_differ(kept: Any, published: Any, path: str = "$") -> list[str]:
    """Where the catalog's value is not the published one; the catalog may lack keys, never list items."""
    if isinstance(kept, dict) and isinstance(published, dict):
        if unknown := set(kept) - set(published) - {"_class_name"}:
            return [f"{path}: {sorted(unknown)} not published"]
        return [
            difference
            for key in kept
            if key in published
            for difference in kept_keys_differ(kept[key], published[key], f"{path}.{key}")
        ]
    if isinstance(kept, list) and isinstance(published, list) and "quantization_config" in path:
        return [] if sorted(kept) == sorted(published) else [f"{path}: another set of modules"]
    return [] if kept == published else [f"{path}: {kept!r} instead of {published!r}"]


def test_kept_keys_are_compared_at_every_depth() -> None:
    published = {"a": 1, "text_config": {"b": [1, 2]}, "quantization_config": {"ignore": ["y", "x"]}, "dropped": 0}
    kept = {"a": 1, "text_config": {"b": [1, 2]}, "quantization_config": {"ignore": ["x", "y"]}}
    assert kept_keys_differ(kept, published) == []
    assert kept_keys_differ({**kept, "a": 2}, published) == ["$.a: 2 instead of 1"]
    assert kept_keys_differ({**kept, "text_config": {"b": [2, 1]}}, published) == [
        "$.text_config.b: [2, 1] instead of [1, 2]"
    ]
    assert kept_keys_differ({"c": 1}, published) == ["$: ['c'] not published"]


# Figures of the released configs: Qwen3 technical report (arXiv 2505.09388, table 1), DeepSeek-V3 (arXiv 2412.19437,
# section 4.2), gpt-oss model card (arXiv 2508.10925, table 1), Llama 3 (arXiv 2407.21783, table 3).
RELEASED: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-32B": {
        "num_hidden_layers": 64,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "hidden_size": 5120,
    },
    "Qwen/Qwen3-30B-A3B": {"num_hidden_layers": 48, "num_experts": 128, "num_experts_per_tok": 8, "hidden_size": 2048},
    "deepseek-ai/DeepSeek-V3": {
        "num_hidden_layers": 61,
        "hidden_size": 7168,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_rope_head_dim": 64,
        "n_routed_experts": 256,
        "first_k_dense_replace": 3,
    },
    "openai/gpt-oss-120b": {
        "num_hidden_layers": 36,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "hidden_size": 2880,
    },
    "meta-llama/Llama-3.1-70B": {"num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 28672},
}


@pytest.mark.parametrize("model_id", RELEASED)
def test_the_catalog_has_the_released_figures(model_id: str) -> None:
    assert kept_keys_differ(RELEASED[model_id], config_of(model_id)) == []


def test_kept_keys_equal_the_published_ones() -> None:
    """Every config that is beside the checkout; the tests above run on what the project carries."""
    compared = 0
    for model_id, file in published_configs():
        entry = found(model_id)
        published = json.loads(file.read_text(encoding="utf-8"))
        if entry.pipeline is not None:
            component = file.parent.name
            if component not in entry.pipeline or len(published) < 2:
                continue
            kept: dict[str, Any] | None = entry.pipeline[component]
        else:
            kept = entry.config
        assert kept_keys_differ(kept, published) == [], model_id
        compared += 1
    assert compared > 120 or not PUBLISHED.is_dir()


def test_per_layer_lists_are_those_of_the_released_models() -> None:
    def text_config(model_id: str) -> dict[str, Any]:
        config = config_of(model_id)
        text: dict[str, Any] = config.get("text_config", config)
        return text

    # gpt-oss alternates a window of 128 with full attention, starting with the window (arXiv:2508.10925, 2.2).
    assert text_config("openai/gpt-oss-20b")["layer_types"] == ["sliding_attention", "full_attention"] * 12
    # Qwen3.5 has three linear layers before each full one.
    assert text_config("Qwen/Qwen3.5-27B")["layer_types"] == (["linear_attention"] * 3 + ["full_attention"]) * 16
