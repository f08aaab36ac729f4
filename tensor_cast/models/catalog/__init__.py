"""Configs of well-known models, so that they work without a network.

One JSON file a Hugging Face organisation, one model a line::

    {
    "Qwen/Qwen3-32B":{"source":"...","config":{...}},
    "Qwen/Qwen3-32B-Base":{"source":"...","same_as":"Qwen/Qwen3-32B"}
    }

An entry holds ``config`` (the keys of the model's ``config.json`` that decide structure, cost or memory) or
``pipeline`` (the same of each component of a diffusers pipeline, by its directory's name, and of ``model_index``),
or ``same_as`` (another entry, whose top-level keys its own ``config`` may override). ``source`` says where the
figures come from, ``aliases`` gives short names beyond the id without its organisation.

A long list of module names in a ``quantization_config`` is stored with its layer numbers folded,
``model.layers.{0-2,5}.mlp.gate``, and unfolded when the entry is read, so callers see the list that was published.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from tensor_cast.errors import ModelingError, closest

# Not importlib.resources, which takes 20 ms to import and 5 ms for its first file.
_DIRECTORY = Path(__file__).parent
_ORGANISATION = re.compile(r"[A-Za-z0-9][\w.-]*")
_FEW = 12
_FOLDED_NUMBERS = re.compile(r"\{([\d,-]+)\}")


@dataclass(frozen=True)
class CatalogEntry:
    """One model of the catalog: either a ``config`` or a diffusers ``pipeline``, never both."""

    id: str
    config: dict[str, Any] | None
    pipeline: dict[str, dict[str, Any]] | None
    source: str


def catalog_ids() -> list[str]:
    """Every id of the catalog, such as ``Qwen/Qwen3-32B``, in alphabetical order."""
    return sorted(_names().ids)


def find(name: str) -> CatalogEntry | None:
    """The entry of an id, or of a short name such as ``qwen3-32b``; None when the catalog has no such model.

    Case does not matter, and spaces and underscores count as hyphens. An exact id opens its organisation's file only.
    Raises ModelingError when a short name fits several models, listing them.
    """
    organisation, _, rest = name.partition("/")
    if rest and _ORGANISATION.fullmatch(organisation):
        records = _organisation_records(organisation)
        if name in records:
            return _entry(name, records[name])
    matches = _names().by_short_name.get(_normalised(name), [])
    if len(matches) > 1:
        raise ModelingError(f"The model name {name!r} fits several models: use one of {', '.join(sorted(matches))}.")
    return _entry(matches[0], _record(matches[0])) if matches else None


def ids_with_words(name: str) -> list[str]:
    """The ids that have every word of ``name``, in alphabetical order: of ``wan2.2``, all of Wan 2.2."""
    words = [word for word in _normalised(name).split("-") if word]
    return [model_id for model_id in catalog_ids() if words and all(word in model_id.casefold() for word in words)]


def closest_ids(name: str, *, limit: int = 3) -> list[str]:
    """The ids most like ``name``, best first; a name without an organisation is compared with the ids' own names.

    Where a few ids have every word of the name, it is these.
    """
    if 0 < len(fitting := ids_with_words(name)) <= _FEW:
        return fitting
    if "/" in name:
        return closest(name, _names().ids, limit=limit)
    by_own_name = {model_id.partition("/")[2]: model_id for model_id in _names().ids}
    return [by_own_name[match] for match in closest(name, by_own_name, limit=limit)]


@dataclass(frozen=True)
class _Names:
    ids: list[str]
    by_short_name: dict[str, list[str]]


@cache
def _names() -> _Names:
    ids: list[str] = []
    by_short_name: dict[str, list[str]] = {}
    for file in sorted(_DIRECTORY.glob("*.json")):
        for model_id, record in _organisation_records(file.stem).items():
            ids.append(model_id)
            short_names = [model_id, model_id.partition("/")[2], *record.get("aliases", [])]
            for short_name in {_normalised(short_name) for short_name in short_names}:
                by_short_name.setdefault(short_name, []).append(model_id)
    return _Names(ids, by_short_name)


def _normalised(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().casefold())


def _organisation_records(organisation: str) -> dict[str, dict[str, Any]]:
    """The records of one organisation's file by id, parsed anew so that callers may change what they get."""
    file = _DIRECTORY / f"{organisation}.json"
    if not file.is_file():
        return {}
    records: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return records


def _record(model_id: str) -> dict[str, Any]:
    return _organisation_records(model_id.partition("/")[0])[model_id]


def _entry(model_id: str, record: dict[str, Any]) -> CatalogEntry:
    config = record.get("config")
    pipeline = record.get("pipeline")
    if (base_id := record.get("same_as")) is not None:
        base = _record(base_id)
        pipeline = pipeline or base.get("pipeline")
        config = {**base["config"], **(config or {})} if pipeline is None else None
    return CatalogEntry(
        id=model_id,
        config=None if config is None else _with_published_module_names(config),
        pipeline=pipeline,
        source=record["source"],
    )


def _with_published_module_names(config: dict[str, Any]) -> dict[str, Any]:
    unfolded = {key: _unfold(value) if key == "quantization_config" else value for key, value in config.items()}
    if isinstance(text := unfolded.get("text_config"), dict):
        unfolded["text_config"] = _with_published_module_names(text)
    return unfolded


def _unfold(value: Any) -> Any:
    if isinstance(value, dict):
        members: dict[str, Any] = {}
        for key, item in value.items():
            members.update(dict.fromkeys(unfolded_names(key), _unfold(item)))
        return members
    if isinstance(value, list):
        return [name for item in value for name in (unfolded_names(item) if isinstance(item, str) else [_unfold(item)])]
    return value


def unfolded_names(folded: str) -> Iterator[str]:
    """``layers.{0-1,4}.mlp`` -> ``layers.0.mlp``, ``layers.1.mlp``, ``layers.4.mlp``; other text as it is."""
    pieces = _FOLDED_NUMBERS.split(folded)
    yield from map("".join, product(*([piece] if i % 2 == 0 else _numbers(piece) for i, piece in enumerate(pieces))))


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for item in ranges.split(","):
        first, _, last = item.partition("-")
        numbers.extend(map(str, range(int(first), int(last or first) + 1)))
    return numbers
