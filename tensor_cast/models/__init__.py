"""``config.json`` -> ``ModelSpec`` -> ``Graph``."""

from __future__ import annotations

from tensor_cast.errors import ModelingError
from tensor_cast.models.spec import ModelSpec

__all__ = ["ModelSpec", "load_spec"]


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
