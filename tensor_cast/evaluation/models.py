"""From ``--model wan2.2 --spec t2v-14b`` to the model that the simulator knows."""

from __future__ import annotations

import re
from pathlib import Path

from tensor_cast.errors import ModelingError, did_you_mean
from tensor_cast.evaluation.request import EvaluatedModel
from tensor_cast.models import catalog

_DIFFUSERS = re.compile(r"-diffusers$", re.IGNORECASE)


def evaluated_model(model: str, spec: str | None) -> EvaluatedModel | None:
    """The model, or None when a spec must be given first.

    ``model`` is an id or a short name that stands for one model alone; or a family's name, which ``spec`` completes
    (``wan2.2`` and ``t2v-14b``); or a path, where ``spec`` is what the user calls its size.

    Raises:
        ModelingError: there is no such model, or the spec is another model's.
    """
    if Path(model).exists():
        path = Path(model).resolve()
        name = path.parent.name if path.is_file() else path.name
        return None if spec is None else EvaluatedModel(model, name, spec)
    entry = catalog.find(model)
    if entry is None and "/" not in model:
        return None if spec is None else _completed(model, spec)
    own_name = (entry.id if entry else model).rpartition("/")[2]
    family, rest = _split(own_name)
    if spec is not None:
        _check_spec(own_name, spec)
    return EvaluatedModel(entry.id if entry else model, family, spec or rest)


def specs_of(model: str) -> list[str]:
    """What can follow ``--model`` as ``--spec``: ``wan2.2`` -> ``t2v-a14b``, ``i2v-a14b`` …"""
    prefix = f"{_normalised(model)}-"
    names = (_normalised(_DIFFUSERS.sub("", model_id.rpartition("/")[2])) for model_id in catalog.catalog_ids())
    return list(dict.fromkeys(name.removeprefix(prefix) for name in names if name.startswith(prefix)))


def model_families(*, pipelines: bool | None = None) -> list[str]:
    """Names that ``--model`` takes together with ``--spec``: of diffusion pipelines, of language models, or of both."""
    ids = catalog.catalog_ids()
    if pipelines is not None:
        ids = [one for one in ids if (entry := catalog.find(one)) and (entry.pipeline is not None) == pipelines]
    return sorted({_split(model_id.rpartition("/")[2])[0] for model_id in ids})


def _completed(model: str, spec: str) -> EvaluatedModel:
    for name in (f"{model}-{spec}", f"{model}-{spec}-diffusers"):
        entry = catalog.find(name)
        if entry is not None:
            return EvaluatedModel(entry.id, model, spec)
    known = specs_of(model)
    if known:
        hint = did_you_mean(spec, known) or f" It has {', '.join(known)}."
        raise ModelingError(f"The model {model} has no spec {spec!r} in the catalog.{hint}")
    families = model_families()
    raise ModelingError(
        f"There is no model {model!r}.{did_you_mean(model, families)} `msmodeling models` lists all; "
        "a path or a hub's id is taken too."
    )


def _check_spec(own_name: str, spec: str) -> None:
    """The parts of a spec must stand in the name of the model that was named in full."""
    missing = [part for part in re.split(r"[-_\s]+", spec.casefold()) if part not in own_name.casefold()]
    if missing:
        raise ModelingError(f"--spec {spec} is not of the model {own_name}; leave it out, or name the model's own.")


def _split(own_name: str) -> tuple[str, str]:
    """``Qwen3-32B`` -> ``qwen3`` and ``32b``; ``Wan2.2-T2V-A14B-Diffusers`` -> ``wan2.2`` and ``t2v-a14b``."""
    family, _, rest = _normalised(_DIFFUSERS.sub("", own_name)).partition("-")
    return family, rest or "base"


def _normalised(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip().casefold())
