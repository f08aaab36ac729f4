"""Kernels that an engine brings along, in place of the best ones that a device's profile tells of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from typing import TYPE_CHECKING

from tensor_cast.devices.profile import DeviceProfile, KernelCost

if TYPE_CHECKING:
    from tensor_cast.performance_model.engine import Engine

_FIGURES = tuple(field.name for field in fields(KernelCost))


def with_own_kernels(device: DeviceProfile, engine: Engine | None) -> DeviceProfile:
    """``device`` with what the kernels of ``engine`` cost on its family.

    A figure that ``device`` does not have from its family's file (one's own device file gives it, a calibration told
    it) was measured or chosen for this device, and stays.
    """
    own = engine.kernels.get(device.family, {}) if engine else {}
    if engine is None or not own:
        return device
    kernels, sources = dict(device.kernels), dict(device.sources)
    for key, figures in own.items():
        row = priced_by(key, device)
        replaced = {name: value for name, value in figures.items() if _is_familys(device, row, name)}
        if not replaced:
            continue
        kernels[key] = replace(device.kernels[row], **replaced)  # type: ignore[arg-type]
        found = engine.sources[f"kernels.{device.family}.{key}"]
        for name in _FIGURES:
            source = device.sources.get(_path(row, name), "")
            sources[_path(key, name)] = _source(engine, found, instead_of=source) if name in replaced else source
    return replace(device, kernels=kernels, sources=sources)


def own_rows(device: DeviceProfile, engine: Engine | None) -> dict[str, Mapping[str, float]]:
    """The rows of costs that ``with_own_kernels`` changes of ``device``, with the engine's figures among them."""
    served = with_own_kernels(device, engine)
    changed: dict[str, Mapping[str, float]] = {}
    for key, cost in served.kernels.items():
        before = device.kernels.get(key) or device.kernels[priced_by(key, device)]
        if cost != before:
            values = {name: getattr(cost, name) for name in _FIGURES if getattr(cost, name) != getattr(before, name)}
            changed[key] = values
    return changed


def priced_by(key: str, device: DeviceProfile) -> str:
    """The row of ``device`` that prices kernels of ``key``: its own, or of the class or dtype that it belongs to."""
    return max((row for row in device.kernels if key == row or key.startswith(f"{row}_")), key=len)


def _is_familys(device: DeviceProfile, row: str, figure: str) -> bool:
    """Whether a figure is that of the family's file, handed down by whatever stands between: value and source agree."""
    family = _first_of(device.family)
    if family is None:
        return False
    path, theirs = _path(row, figure), _path(priced_by(row, family), figure)
    same = getattr(device.kernels[row], figure) == getattr(family.kernels[priced_by(row, family)], figure)
    return same and device.sources.get(path, "").endswith(family.sources.get(theirs, "").removeprefix("assumed: "))


@cache
def _first_of(family: str) -> DeviceProfile | None:
    """The first device of a packaged family; it has all rows of costs from what the family's devices share."""
    from tensor_cast.devices.loader import PROFILES, load_file

    path = PROFILES / f"{family}.yaml"
    return load_file(path)[0][0] if path.is_file() else None


def _source(engine: Engine, found: str, *, instead_of: str) -> str:
    """What is assumed of a device or of an engine stays assumed."""
    assumed = "assumed: " if "assumed: " in (instead_of[:9], found[:9]) else ""
    return f"{assumed}{engine.name}: {found.removeprefix('assumed: ')}"


def _path(key: str, figure: str) -> str:
    return f"kernels.{key}.{figure}"
