"""Device files to profiles."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.errors import ModelingError, did_you_mean

if TYPE_CHECKING:
    from tensor_cast.devices.schema import Defaults
    from tensor_cast.devices.yaml_document import YamlDocument

PROFILES = Path(__file__).parent / "profiles"
"""The packaged families; each file is named after its family."""

CUSTOM_FAMILY = "custom"
"""Family of a device that names none."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def load_file(path: Path, *, only: str | None = None) -> tuple[list[DeviceProfile], dict[str, str]]:
    """Profiles of a file in its order (or of its device ``only``), and the device that each alias stands for.

    Raises:
        ModelingError: names the file, the line, the field, and what was expected.
    """
    # Both libraries cost tens of milliseconds, which only a process that reads a profile should pay.
    from tensor_cast.devices.derive import build_profile
    from tensor_cast.devices.schema import Defaults, Device, File, read_as
    from tensor_cast.devices.yaml_document import read_yaml

    document = read_yaml(path)
    if not isinstance(document.value, dict):
        raise ModelingError(f"{path}:1: a device file is a mapping: one device with `name:`, or several in `devices:`.")
    shared, vendor, file_family = Defaults(), "unknown", ""
    if "devices" in document.value:
        file = read_as(document, "$", File)
        shared, vendor = file.defaults or shared, file.vendor or vendor
        file_family = file.family or file_family
        entries = {name: f"$.devices.{name}" for name in file.devices if only in (None, name)}
    else:
        device = read_as(document, "$", Device)
        if not device.name:
            raise ModelingError(f"{path}:1: name is missing; name the device, or list several in `devices:`.")
        entries = {device.name: "$"}

    profiles: list[DeviceProfile] = []
    aliases: dict[str, str] = {}
    for name, at in entries.items():
        if not _NAME.fullmatch(name):
            raise ModelingError(f"{document.place(at)}: {name!r} is no device name; use letters, digits, _ and -.")
        device = read_as(document, at, Device)
        family = device.family or file_family or CUSTOM_FAMILY
        defaults = shared if "defaults" in document.value else _family_defaults(document, at, family)
        profiles.append(build_profile(document, at, name, device, defaults, family, vendor))
        for alias in device.aliases:
            aliases[alias] = name
    return profiles, aliases


def _family_defaults(document: YamlDocument, at: str, family: str) -> Defaults:
    """What the packaged family shares, for a file that shares nothing itself."""
    from tensor_cast.devices.schema import Defaults, File, read_as
    from tensor_cast.devices.yaml_document import read_yaml

    if family == CUSTOM_FAMILY:
        return Defaults()
    packaged = {path.stem: path for path in sorted(PROFILES.glob("*.yaml"))}
    if family not in packaged:
        place = document.place(f"{at}.family")
        hint = did_you_mean(family, packaged) or f" One of {', '.join(packaged)}."
        raise ModelingError(
            f"{place}: family: {family} is not packaged, so its kernels' costs are unknown; "
            f"name another family, or leave it out.{hint}"
        )
    return read_as(read_yaml(packaged[family]), "$", File).defaults or Defaults()
