"""Where a model's config comes from: a path, the catalog, or a hub."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tensor_cast.errors import ModelingError
from tensor_cast.models import catalog
from tensor_cast.models.config_file import directory_contents, read_config_file
from tensor_cast.models.hub import REMOTE_SOURCES, HubError, cached, fetch, hub_address

__all__ = ["REMOTE_SOURCES", "LoadedConfig", "load_config"]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

# The parts of a diffusers pipeline that have no weights, and no config.json.
_WEIGHTLESS_PARTS = ("scheduler", "tokenizer", "processor", "feature_extractor", "image_processor")


@dataclass(frozen=True)
class LoadedConfig:
    """A model's config and where it was found.

    ``config`` is the ``config.json``, or the ``model_index.json`` of a diffusers pipeline ({} when that is unknown).
    ``pipeline`` then holds each component's config by its directory's name (``transformer``, ``vae`` ...).
    ``origin`` is ``path``, ``catalog``, ``huggingface`` or ``modelscope``; ``source`` is the file, the address, or
    where the catalog's figures come from.
    """

    name: str
    config: dict[str, Any]
    pipeline: dict[str, dict[str, Any]] | None
    origin: str
    source: str


def load_config(model: str, *, remote_source: str = "huggingface") -> LoadedConfig:
    """The config of a directory or ``.json`` file, else of a catalog id or alias, else of a hub's ``org/name``.

    Only config files are read or fetched, never code or weights. Raises ModelingError when nothing is found, saying
    where it was looked for, and when what is found cannot be used.
    """
    if not model.strip():
        raise ModelingError("The model's name is empty: give a path, or an id such as Qwen/Qwen3-32B.")
    path = Path(model).expanduser() if "\0" not in model else None
    if path is not None and os.path.lexists(path):
        return _from_path(path)
    if path is not None and _is_meant_as_path(model):
        raise ModelingError(f"The config path {path} does not exist.")
    if (entry := catalog.find(model)) is not None:
        return _from_catalog(entry)
    if not _HUB_ID.fullmatch(model):
        raise _not_found(model, "it is not of the form organisation/name that a hub has")
    try:
        return _from_hub(model, remote_source)
    except HubError as error:
        raise _not_found(model, str(error)) from error


def _not_found(model: str, reason: str) -> ModelingError:
    closest = catalog.closest_ids(model)
    hint = f" The closest in the catalog: {', '.join(closest)}." if closest else ""
    return ModelingError(f"The model {model!r} is neither a path nor in the catalog, and {reason}.{hint}")


def _is_meant_as_path(model: str) -> bool:
    return model.startswith((".", "~", os.sep)) or model.endswith(".json") or model.count("/") > 1 or "\\" in model


def _from_path(path: Path) -> LoadedConfig:
    if not path.is_dir():
        return _from_path(path.parent) if path.name == "model_index.json" else _from_file(path)
    name = path.resolve().name
    inside = partial(_existing, path)
    if (index_file := inside("model_index.json")) is not None:
        index, pipeline = _pipeline(index_file, inside)
        return LoadedConfig(name, index, pipeline, "path", str(index_file))
    if (file := inside("config.json")) is not None:
        config = _with_modelopt_quantisation(read_config_file(file), inside)
        return LoadedConfig(name, config, None, "path", str(file))
    raise ModelingError(
        f"The directory {path} has neither config.json nor model_index.json; it holds {directory_contents(path)}."
    )


def _from_file(path: Path) -> LoadedConfig:
    return LoadedConfig(path.stem, read_config_file(path), None, "path", str(path))


def _existing(directory: Path, filename: str) -> Path | None:
    path = directory / filename
    return path if os.path.lexists(path) else None


def _from_catalog(entry: catalog.CatalogEntry) -> LoadedConfig:
    if entry.pipeline is None:
        return LoadedConfig(entry.id, entry.config or {}, None, "catalog", entry.source)
    components = {name: config for name, config in entry.pipeline.items() if name != "model_index"}
    return LoadedConfig(entry.id, entry.pipeline.get("model_index", {}), components, "catalog", entry.source)


def _from_hub(model_id: str, remote_source: str) -> LoadedConfig:
    address = f"{hub_address(remote_source)}/{model_id}"
    in_cache, anywhere = partial(cached, remote_source, model_id), partial(fetch, remote_source, model_id)
    file = in_cache("config.json")
    if file is None:
        # Before config.json, so that a cached config.json means that its quantisation was asked for too.
        anywhere("hf_quant_config.json")
        file = anywhere("config.json")
    if file is not None:
        config = _with_modelopt_quantisation(read_config_file(file), in_cache)
        return LoadedConfig(model_id, config, None, remote_source, address)
    if (index_file := anywhere("model_index.json")) is None:
        raise HubError(f"{address} has neither config.json nor model_index.json")
    index, pipeline = _pipeline(index_file, anywhere)
    return LoadedConfig(model_id, index, pipeline, remote_source, address)


def _with_modelopt_quantisation(config: dict[str, Any], locate: Callable[[str], Path | None]) -> dict[str, Any]:
    """The config with the quantisation that NVIDIA's ModelOpt may write apart from it, into hf_quant_config.json.

    Without it a checkpoint such as nvidia/GLM-5-NVFP4 would look like BF16.
    """
    text_config = config.get("text_config")
    if "quantization_config" in config or (isinstance(text_config, dict) and "quantization_config" in text_config):
        return config
    if (file := locate("hf_quant_config.json")) is None:
        return config
    quantisation = read_config_file(file).get("quantization")
    if not isinstance(quantisation, dict):
        raise ModelingError(f"The config file {file} has no object $.quantization: give one written by ModelOpt.")
    return {**config, "quantization_config": {"quant_method": "modelopt", **quantisation}}


def _pipeline(
    index_file: Path, locate: Callable[[str], Path | None]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The ``model_index.json`` and the configs of the components that it names and that have one.

    The scheduler's is among them where a boundary between two denoisers is named, whose steps it shares out.
    """
    index = read_config_file(index_file)
    components = {}
    for name, component in index.items():
        if _has_weights(name, component) and (file := locate(f"{name}/config.json")) is not None:
            components[name] = read_config_file(file)
    if index.get("boundary_ratio") is not None and (file := locate("scheduler/scheduler_config.json")) is not None:
        components["scheduler"] = read_config_file(file)
    return index, components


def _has_weights(name: str, component: object) -> bool:
    """Whether a line of model_index.json, ``"vae": ["diffusers", "AutoencoderKLWan"]``, names a part with weights."""
    return isinstance(component, list) and any(component) and not name.startswith(_WEIGHTLESS_PARTS)
