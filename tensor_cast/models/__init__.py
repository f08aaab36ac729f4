"""``config.json`` -> ``ModelSpec`` -> ``Graph``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensor_cast.errors import ModelingError

if TYPE_CHECKING:
    from tensor_cast.models.spec import ModelSpec

__all__ = ["ModelSpec", "load_spec"]


def __getattr__(name: str) -> Any:
    """Import the structure of language models when it is asked for: diffusion pipelines do without."""
    if name != "ModelSpec":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tensor_cast.models.spec import ModelSpec

    return ModelSpec


def load_spec(model: str, *, family: str | None = None, remote_source: str = "huggingface") -> ModelSpec:
    """The structure of a model by catalog id, path or hub id.

    Raises:
        ModelingError: it is not found, or its config cannot be used.
    """
    from dataclasses import replace

    from tensor_cast.models.families import read_spec
    from tensor_cast.models.source import load_config

    loaded = load_config(model, remote_source=remote_source)
    if loaded.pipeline is not None:
        parts = ", ".join(loaded.pipeline)
        raise ModelingError(f"{loaded.name} is a diffusion pipeline ({parts}), not a language model.")
    where = loaded.source if loaded.origin == "path" else loaded.name
    spec = read_spec(loaded.config, name=loaded.name, where=where, family=family)
    return replace(spec, origin=f"{loaded.origin}: {loaded.source}")
