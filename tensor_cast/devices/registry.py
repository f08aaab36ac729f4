"""Devices by name: the packaged families, then the files that ``MSMODELING_DEVICE_PATH`` names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from tensor_cast.devices.loader import PROFILES, load_file
from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.errors import ModelingError, closest

PATH_VARIABLE = "MSMODELING_DEVICE_PATH"
"""Directories of ``*.yaml`` files and single files, separated as in ``PATH``."""

# In a packaged file a device's name is a key at two spaces and its aliases a list on one line (tests hold it so):
# a name is found without parsing every family.
_DEVICE_LINE = re.compile(r"^  (\S+):$|^    aliases: \[(.*)\]$", re.MULTILINE)


class DeviceRegistry(Mapping[str, DeviceProfile]):
    """Every profile by its exact name; a family's file is read when one of its devices is first asked for.

    A file of the user may not redefine a packaged name: reports name a device by its name alone, so one name must
    mean the same figures on every machine.
    """

    def __init__(self, device_files: Iterable[Path] = ()) -> None:
        self._device_files = [Path(path) for path in device_files]
        self._profiles: dict[str, DeviceProfile] = {}

    def __getitem__(self, name: str) -> DeviceProfile:
        if name not in self._paths:
            raise KeyError(name)
        if name not in self._profiles:
            profiles, _ = load_file(self._paths[name], only=name)
            self._profiles[name] = profiles[0]
        return self._profiles[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def resolve(self, name: str) -> str:
        """The exact name of a device, whatever its case or alias.

        Raises:
            ModelingError: no device has this name; the closest are listed.
        """
        found = self._folded.get(name.casefold())
        if found is None:
            within = [known for known in self._folded if name.casefold() in known] if name else []
            near = list(
                dict.fromkeys(self._folded[known.casefold()] for known in [*within, *closest(name, self._folded)])
            )
            hint = f" The closest are {', '.join(near[:5])}." if near else ""
            raise ModelingError(
                f"There is no device {name!r}.{hint} `msmodeling devices` lists all; --device-file adds your own."
            )
        return found

    @cached_property
    def aliases(self) -> dict[str, str]:
        """The device that each alias stands for."""
        return self._index[1]

    @property
    def _paths(self) -> dict[str, Path]:
        return self._index[0]

    @cached_property
    def _folded(self) -> dict[str, str]:
        return {known.casefold(): name for known, name in [*((name, name) for name in self), *self.aliases.items()]}

    @cached_property
    def _index(self) -> tuple[dict[str, Path], dict[str, str]]:
        """The file of each device, and the device of each alias."""
        paths: dict[str, Path] = {}
        aliases: dict[str, str] = {}
        for path in sorted(PROFILES.glob("*.yaml")):
            name = ""
            for device, listed in _DEVICE_LINE.findall(path.read_text(encoding="utf-8").partition("\ndevices:")[2]):
                if device:
                    name = device
                    paths[name] = path
                else:
                    aliases.update((alias.strip(), name) for alias in listed.split(","))
        taken = {known.casefold(): "packaged" for known in (*paths, *aliases)}
        for path in dict.fromkeys([*_search_path(os.environ.get(PATH_VARIABLE, "")), *self._device_files]):
            profiles, own_aliases = load_file(path)
            for known in (*(profile.name for profile in profiles), *own_aliases):
                if known.casefold() in taken:
                    raise ModelingError(
                        f"{path}: the name {known} is already taken ({taken[known.casefold()]}); "
                        "give your device another, so that a name means the same figures everywhere."
                    )
                taken[known.casefold()] = str(path)
            self._profiles.update((profile.name, profile) for profile in profiles)
            paths.update((profile.name, path) for profile in profiles)
            aliases.update(own_aliases)
        return paths, aliases


_DEVICES = DeviceRegistry()
DeviceProfile.all_device_profiles = _DEVICES


def get_device(name: str, device_files: Iterable[Path] = ()) -> DeviceProfile:
    """The profile of a device by name or alias, without regard to case; ``device_files`` are searched too.

    Raises:
        ModelingError: no device has this name, or a file is not a device file.
    """
    files = list(device_files)
    registry = DeviceRegistry(files) if files else _DEVICES
    return registry[registry.resolve(name)]


def load_device_file(path: Path | str) -> list[DeviceProfile]:
    """Profiles of one file, in its order: one device with ``name:``, or several in ``devices:``.

    Raises:
        ModelingError: names the file, the line, the field, and what was expected.
    """
    return load_file(Path(path))[0]


def _search_path(variable: str) -> list[Path]:
    files: list[Path] = []
    for entry in filter(None, variable.split(os.pathsep)):
        path = Path(entry)
        if path.is_dir():
            files += sorted(child for child in path.iterdir() if child.suffix in (".yaml", ".yml"))
        elif path.is_file():
            files.append(path)
        else:
            raise ModelingError(f"{PATH_VARIABLE} names {entry}, which does not exist; correct or unset it.")
    return files
