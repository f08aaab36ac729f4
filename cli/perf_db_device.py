"""Which device a directory of measurements is of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tensor_cast.errors import ModelingError

if TYPE_CHECKING:
    from tensor_cast.devices.profile import DeviceProfile


def measured_device(directory: Path, name: str | None) -> DeviceProfile:
    """The device ``name``, or the one whose name is a part of the path, as in the packaged data.

    Raises:
        ModelingError: there is no such directory or device, or the path names none.
    """
    from tensor_cast.devices import DeviceRegistry, get_device
    from tensor_cast.performance_model.profiling_database.store import csv_files

    csv_files(directory)  # that it is not there at all is said first

    if name is not None:
        return get_device(name)
    registry = DeviceRegistry()
    known = next((part for part in reversed(directory.resolve().parts) if part in registry), None)
    if known is None:
        raise ModelingError(
            f"{directory} does not tell which device was measured: give --device (`msmodeling devices` lists them)."
        )
    return get_device(known)
