"""Time of collectives from what was measured on the device: at a measured size, between sizes, or by the fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.errors import ModelingError
from tensor_cast.ops import Collective, CollectiveKind
from tensor_cast.performance_model.collective_fit import CollectiveFit, fit_collective
from tensor_cast.performance_model.collective_measurements import (
    FloatArray,
    TierRows,
    file_bytes,
    group_tier,
    measured_collectives,
    whole_bytes,
)
from tensor_cast.performance_model.collectives import collective_time, levels_of_group
from tensor_cast.performance_model.profiling_database.communication import COMMUNICATION_FILES
from tensor_cast.performance_model.profiling_database.paths import DATA_DIRECTORY, communication_directories, newest
from tensor_cast.performance_model.profiling_database.table import read_failure
from tensor_cast.performance_model.roofline import KernelTime
from tensor_cast.performance_model.timing import ANALYTIC, EXTRAPOLATED, INTERPOLATED, MEASURED, Codes, Timing
from tensor_cast.quantity import Quantity

MAPPING_FILE = "op_mapping.yaml"
REFERENCE_KEY = "communication_data_ref"


class CollectiveTimes:
    """Times of collectives on one device from a directory of ``hcom_*.csv``; a file is read when it is first needed."""

    def __init__(self, device: DeviceProfile, directory: Path) -> None:
        self.device = device
        self.directory = directory
        self._rows: dict[CollectiveKind, dict[int, TierRows]] = {}
        self._fits: dict[tuple[CollectiveKind, int], CollectiveFit | None] = {}

    def time(self, op: Collective) -> Timing:
        """Time of one collective, and where each point of it comes from.

        Measurements are of the same kind, group size and tier (the farthest links that the group crosses). At a
        measured size the time is the measured one. Between two sizes the fit gives the curve, scaled by what the
        measurements at both ends are over it, interpolated over log(bytes). Outside them the fit continues from the
        nearest measurement, and a group size that was not measured gets the fit alone: both are extrapolated. A kind or
        tier without any measurement is timed by ``collective_time``.

        Raises:
            ModelingError: the group does not fit in the device's interconnect, or a file cannot be read.
        """
        levels_of_group(self.device, op.group_size, op.stride)
        tier = group_tier(self.device.interconnect.shape, op.group_size, op.stride)
        fit = self.fit(op.kind, tier) if op.group_size > 1 else None
        if fit is None:
            return Timing(collective_time(op, self.device), np.full(np.shape(op.message_bytes), ANALYTIC))
        size = np.asarray(file_bytes(op.kind, op.message_bytes, op.group_size), dtype=np.float64)
        measured = self.rows(op.kind)[tier].of_group(op.group_size)
        seconds = fitted_seconds(fit, measured, size, op.group_size)
        fixed = np.minimum(fit.latency(size, op.group_size), seconds)
        if np.ndim(op.message_bytes) == 0:
            seconds, fixed = float(seconds), float(fixed)
        return Timing(KernelTime(0.0, 0.0, 0.0, seconds - fixed, fixed), _codes(measured, size))

    def rows(self, kind: CollectiveKind) -> dict[int, TierRows]:
        """What was measured of a kind, by tier.

        Raises:
            ModelingError: its file cannot be read.
        """
        if kind not in COMMUNICATION_FILES:
            return {}
        if kind not in self._rows:
            self._rows[kind] = measured_collectives(self.directory, kind, self.device.interconnect.shape)
        return self._rows[kind]

    def fit(self, kind: CollectiveKind, tier: int) -> CollectiveFit | None:
        """The fitted model of a kind over a tier, ``None`` where nothing was measured.

        Raises:
            ModelingError: the kind's file cannot be read.
        """
        key = (kind, tier)
        if key not in self._fits:
            rows = self.rows(kind).get(tier)
            self._fits[key] = None if rows is None else fit_with_links(rows, self.device)
        return self._fits[key]


def fit_with_links(rows: TierRows, device: DeviceProfile) -> CollectiveFit | None:
    """The fit of ``rows``; far from all of them the analytic model of the device's links has a say."""

    def prior(message_bytes: FloatArray, group_size: int) -> FloatArray:
        return np.asarray(analytic_seconds(rows.kind, message_bytes, group_size, device), dtype=np.float64)

    fits_device = int(rows.group_size.max()) <= device.interconnect.device_count
    return fit_collective(rows, prior if fits_device else None)


def analytic_seconds(kind: CollectiveKind, message_bytes: Quantity, group_size: int, device: DeviceProfile) -> Quantity:
    """The analytic model's seconds for neighbouring ranks, with bytes as the files count them.

    Raises:
        ModelingError: the group does not fit in the device's interconnect.
    """
    size = whole_bytes(kind, message_bytes, group_size)
    op = Collective(name=kind, part="", inputs=(), outputs=(), kind=kind, message_bytes=size, group_size=group_size)
    return collective_time(op, device).total_s


def fitted_seconds(fit: CollectiveFit, measured: TierRows, message_bytes: Quantity, group_size: int) -> Quantity:
    """Seconds by the fit, through the points that were ``measured`` of this group.

    What the measurements are over the fit is interpolated over log(bytes) between their sizes, and stays as at the
    nearest beyond them.
    """
    seconds = fit.time(message_bytes, group_size)
    if not len(measured):
        return seconds
    ratio = measured.duration_s / fit.time(measured.message_bytes, group_size)
    place = np.log(np.maximum(message_bytes, 1.0))
    return seconds * np.exp(np.interp(place, np.log(measured.message_bytes), np.log(ratio)))


def collective_source(device: DeviceProfile, database_dir: Path | None = None) -> CollectiveTimes | None:
    """Measured collectives for ``device``: those of a database directory, or by default the packaged ones.

    Raises:
        ModelingError: the database refers to a directory of collectives that is not there.
    """
    directory = packaged_directory(device) if database_dir is None else communication_directory(database_dir)
    return None if directory is None else CollectiveTimes(device, directory)


def packaged_directory(device: DeviceProfile) -> Path | None:
    """The packaged collectives of a device, the newest version of them; ``None`` without any."""
    return _newest(DATA_DIRECTORY / device.name / "hccl")


def communication_directory(database: Path) -> Path | None:
    """Where the collectives of a database lie; ``None`` without any.

    In order: the directory itself; the one that ``communication_data_ref`` of its ``op_mapping.yaml`` names, from
    there or from a directory above; the one of the same CANN version in the ``hccl`` folder beside; the newest of an
    ``hccl`` folder in it or beside it.

    Raises:
        ModelingError: the reference cannot be read, or leads nowhere.
    """
    if has_collectives(database):
        return database
    referred = _referred(database)
    if referred is not None:
        return referred
    beside = [path for path in communication_directories(database) if has_collectives(path)]
    if beside:
        return beside[0]
    folders = (database / "hccl", database.parent / "hccl", database.parent.parent / "hccl")
    return next((found for folder in folders if (found := _newest(folder)) is not None), None)


def has_collectives(directory: Path) -> bool:
    """Whether any ``hcom_*.csv`` that is understood lies directly in ``directory``.

    Raises:
        ModelingError: the directory may not be looked into.
    """
    try:
        return any((directory / name).is_file() for name in COMMUNICATION_FILES.values())
    except OSError as error:
        raise read_failure(directory, error) from None


def _newest(folder: Path) -> Path | None:
    if has_collectives(folder):
        return folder
    return newest(path for path in folder.glob("*") if has_collectives(path))


def _referred(database: Path) -> Path | None:
    mapping = database / MAPPING_FILE
    if not mapping.is_file():
        return None
    import yaml

    try:
        content = yaml.safe_load(mapping.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ModelingError(f"{mapping} cannot be read: {' '.join(str(error).split())}.") from None
    reference = content.get(REFERENCE_KEY) if isinstance(content, dict) else None
    if reference is None:
        return None
    for base in (database, *database.parents):
        if has_collectives(base / str(reference)):
            return base / str(reference)
    raise ModelingError(
        f"{mapping} names {str(reference)!r} as {REFERENCE_KEY}, but no directory of that name, from {database} or "
        "above, holds hcom_*.csv files: correct the reference or take it out."
    )


def _codes(measured: TierRows, message_bytes: FloatArray) -> Codes:
    """Where the time of each size comes from."""
    codes = np.full(message_bytes.shape, EXTRAPOLATED)
    if len(measured):
        sizes = measured.message_bytes
        codes[(message_bytes >= sizes[0]) & (message_bytes <= sizes[-1])] = INTERPOLATED
        codes[np.isin(message_bytes, sizes)] = MEASURED
    return codes
