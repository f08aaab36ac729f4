"""Kernels that an engine brings along, in place of the best ones that a device's profile tells of."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from tensor_cast.devices.profile import DeviceProfile, KernelCost

if TYPE_CHECKING:
    from tensor_cast.performance_model.engine import Engine


def with_own_kernels(device: DeviceProfile, engine: Engine | None) -> DeviceProfile:
    """``device`` with what the kernels of ``engine`` cost on its family.

    A row that does not stand in its family's file as ``device`` has it (one's own device file, a calibration) was
    measured or chosen for this device, and stays.
    """
    own = engine.kernels.get(device.family, {}) if engine else {}
    kernels, sources = dict(device.kernels), dict(device.sources)
    for key, figures in own.items():
        row = priced_by(key, device)
        if device.kernels[row] != _familys_rows(device.family).get(row):
            continue
        kernels[key] = replace(device.kernels[row], **figures)  # type: ignore[arg-type]
        assert engine is not None
        source = engine.sources[f"kernels.{device.family}.{key}"]
        sources |= {_path(key, figure): f"{engine.name}: {source}" for figure in figures}
    return replace(device, kernels=kernels, sources=sources) if own else device


def own_rows(device: DeviceProfile, engine: Engine) -> list[str]:
    """Rows of ``device``, as ``with_own_kernels`` returned it, that are of kernels of ``engine``."""
    own = engine.kernels.get(device.family, {}).items()
    return [
        key
        for key, figures in own
        if any(device.sources.get(_path(key, figure), "").startswith(f"{engine.name}: ") for figure in figures)
    ]


def priced_by(key: str, device: DeviceProfile) -> str:
    """The row of ``device`` that prices kernels of ``key``: its own, or of the class or dtype that it belongs to."""
    return max((row for row in device.kernels if key == row or key.startswith(f"{row}_")), key=len)


def _path(key: str, figure: str) -> str:
    return f"kernels.{key}.{figure}"


@cache
def _familys_rows(family: str) -> dict[str, KernelCost]:
    """Costs that the packaged file of a family gives its first device."""
    from tensor_cast.devices.loader import PROFILES, load_file

    path = PROFILES / f"{family}.yaml"
    return load_file(path)[0][0].kernels if path.is_file() else {}
