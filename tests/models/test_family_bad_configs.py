"""A config with any one key missing or malformed is read or refused in one sentence, whatever the family."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.models import catalog
from tensor_cast.models.facts import model_facts
from tensor_cast.models.families import FAMILIES, MULTIMODAL, read_spec

ABSENT = object()
MALFORMED = [ABSENT, None, "x", -1, 0, [], {}, float("nan"), True, 1.5, 3, ["a"], [None], [[]], 10**18]
SAMPLES = 60


def _models() -> list[str]:
    """One catalog model a family."""
    found: dict[str, str] = {}
    for model in catalog.catalog_ids():
        entry = catalog.find(model)
        if entry is not None and entry.config is not None:
            found.setdefault(entry.config.get("model_type", ""), model)
    return [model for kind, model in found.items() if kind in FAMILIES or kind in MULTIMODAL]


def _paths(config: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in config.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from _paths(value, (*path, key))


@pytest.mark.parametrize("model", _models())
def test_one_malformed_key(model: str) -> None:
    entry = catalog.find(model)
    assert entry is not None
    assert entry.config is not None
    cases = [(path, value) for path in _paths(entry.config) for value in MALFORMED]
    messages = []
    # A sample of its own for each family, the same in every run.
    for path, value in random.Random(model).sample(cases, min(SAMPLES, len(cases))):
        config = copy.deepcopy(entry.config)
        target = config
        for key in path[:-1]:
            target = target[key]
        if value is ABSENT:
            del target[path[-1]]
        else:
            target[path[-1]] = value
        try:
            spec = read_spec(config, name=model, where="config.json")
            if len(spec.layers) < 200:
                model_facts(spec)
        except ModelingError as error:
            messages.append(str(error))
    assert not any("\n" in message for message in messages)


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        (
            "Qwen/Qwen3-30B-A3B",
            {"mlp_only_layers": [99]},
            "mlp_only_layers is .* expected a list of layers from 0 to 47",
        ),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {"n_groups": 3}, "expected a multiple of the 3 groups"),
        ("deepseek-ai/DeepSeek-V4-Flash", {"mlp_bias": True}, "mlp_bias is True, expected false"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"layer_types": ["chunked_attention"] * 48}, "linear_attention or full"),
        ("MiniMaxAI/MiniMax-M3", {"moe_layer_freq": [2] * 60}, "expected 60 entries of 0 or 1"),
        ("google/gemma-4-31B-it", {"text_config": {"num_kv_shared_layers": 2}}, "reuse the keys of others"),
    ],
)
def test_what_is_wrong_is_said(model: str, change: dict[str, Any], message: str) -> None:
    entry = catalog.find(model)
    assert entry is not None
    assert entry.config is not None
    config = copy.deepcopy(entry.config)
    for key, value in change.items():
        config[key] = {**config[key], **value} if isinstance(value, dict) else value
    with pytest.raises(ModelingError, match=message):
        read_spec(config, name=model, where="config.json")


def test_a_key_that_could_cost_something_is_said() -> None:
    entry = catalog.find("Qwen/Qwen3.5-27B")
    assert entry is not None
    assert entry.config is not None
    config = copy.deepcopy(entry.config)
    config["a_new_tower"] = {"depth": 4}
    config["text_config"]["extra_heads"] = 2
    config["text_config"]["left_out"] = None
    config["vision_config"]["registers"] = 8
    spec = read_spec(config, name="model", where="config.json")
    assert spec.ignored_keys == ("a_new_tower", "text_config.extra_heads", "vision_config.registers")
