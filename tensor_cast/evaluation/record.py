"""``config.json``: everything that an evaluation rests on."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tensor_cast.devices.figures import as_document, list_figures
from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.evaluation.naming import ResultsName
from tensor_cast.evaluation.request import EvaluationRequest

SCHEMA_VERSION = 1
_PACKAGES = ("msmodeling", "numpy", "msgspec", "PyYAML")
_ROOT = Path(__file__).resolve().parents[2]


def config_record(
    request: EvaluationRequest, device: DeviceProfile, name: ResultsName, *, iterations: int, started: datetime
) -> dict[str, Any]:
    """The record of one evaluation; ``name`` is that of a first run, whatever directory it goes to."""
    strategy = request.strategy
    accepted = _accepted_parameters(request)
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": request.kind,
        "name": str(name),
        "time": started.isoformat(timespec="seconds"),
        "model": {
            "model": request.model.model,
            "spec": request.model.spec,
            "reference": request.model.reference,
        },
        "device": {
            "name": device.name,
            "vendor": device.vendor,
            "description": device.description,
            "files": [str(path) for path in request.device_files],
            "figures": [
                {
                    "path": figure.path,
                    "value": figure.value,
                    "unit": figure.unit,
                    "source": figure.source,
                    "assumed": figure.assumed,
                }
                for figure in list_figures(device)
            ],
            "profile": as_document(device),
        },
        "parameters": {**request.defaults, **request.given, **accepted},
        "given": sorted(request.given),
        "accepted": sorted(accepted),
        "defaulted": sorted(set(request.defaults) - set(request.given) - set(accepted)),
        "parallel": {"world": name.world, **name.sizes},
        "strategy": {
            "chosen_by": strategy.chosen_by,
            "flags": dict(strategy.flags),
            "kind": strategy.kind,
            "recommended": dict(strategy.recommended),
            "accepted": strategy.accepted,
            "collectives": list(strategy.collectives),
        },
        "iterations": iterations,
        "command": request.command,
        "simulator_command": request.simulator_command(),
        "versions": versions(),
    }


def _accepted_parameters(request: EvaluationRequest) -> dict[str, Any]:
    """Parameters that a recommendation set, by name."""
    if request.strategy.chosen_by != "recommendation":
        return {}
    return {
        flag.removeprefix("--").replace("-", "_"): int(value) if isinstance(value, str) and value.isdigit() else value
        for flag, value in request.strategy.flags.items()
    }


def versions() -> Mapping[str, str]:
    """Versions of the project, of what it computes with, and of the interpreter and system."""
    found = {name: _version(name) for name in _PACKAGES}
    return {**found, "revision": _revision(), "python": platform.python_version(), "system": platform.platform()}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _revision() -> str:
    """The checkout's commit, ``+`` when files differ from it; ``unknown`` outside a checkout."""
    if not (_ROOT / ".git").exists():
        return "unknown"
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "-uno")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{commit}+" if changed else commit


def _git(*arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=True, timeout=10)
    return result.stdout.strip()
