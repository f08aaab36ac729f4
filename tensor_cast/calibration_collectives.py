"""What collectives reach of a device's links, fitted to the measured ones that lie with a performance database."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np

from tensor_cast.calibration_rows import Rows
from tensor_cast.calibration_search import Bound, minimise
from tensor_cast.devices.profile import CollectiveCost, DeviceProfile
from tensor_cast.ops import Collective, CollectiveKind
from tensor_cast.performance_model.collective_measurements import group_tier, measured_collectives, whole_bytes
from tensor_cast.performance_model.collective_times import communication_directory
from tensor_cast.performance_model.profiling_database.communication import COMMUNICATION_FILES
from tensor_cast.quantity import Quantity


def read_collective_rows(database: Path, device: DeviceProfile) -> list[Rows]:
    """Measured collectives of neighbouring ranks that the device's links join; none where no directory has any.

    Raises:
        ModelingError: a file of collectives cannot be read.
    """
    directory = communication_directory(database)
    if directory is None:
        return []
    shape = device.interconnect.shape
    found = []
    kinds: tuple[CollectiveKind, ...] = get_args(CollectiveKind)
    for kind in (kind for kind in kinds if kind in COMMUNICATION_FILES):
        for tier, table in measured_collectives(directory, kind, shape).items():
            for group in np.unique(table.group_size).tolist():
                if group > device.interconnect.device_count or group_tier(shape, group) != tier:
                    continue
                rows = table.of_group(group)
                fitted = [
                    zlib.crc32(f"{kind} {group} {size:.0f}".encode()) % 2 == 0 for size in rows.message_bytes.tolist()
                ]
                op = _collective(kind, whole_bytes(kind, rows.message_bytes, group), group)
                found.append(Rows(op, rows.duration_s, np.array(fitted)))
    return found


def solve_collective(device: DeviceProfile, rows: Sequence[Rows]) -> CollectiveCost:
    """The cost that predicts the fitted rows best; what the device has no use for stays as it is."""
    fitted = np.concatenate([part.fitted for part in rows])
    median = float(np.median(np.concatenate([part.seconds for part in rows])))
    cost = device.collective
    names = ["link_efficiency", "fixed_s", "peer_s"]
    if cost.direct_bytes or cost.direct_reduce_bytes:
        names.append("schedule_s")
    bounds = [Bound(0.01, 1.0) if name == "link_efficiency" else Bound(0.0, median) for name in names]

    def at(figures: Sequence[float]) -> CollectiveCost:
        return replace(cost, **dict(zip(names, figures, strict=True)))

    def loss(figures: Sequence[float]) -> float:
        errors = np.concatenate([part.log_errors(replace(device, collective=at(figures))) for part in rows])
        return float(np.mean(np.abs(errors[fitted])))

    figures, _ = minimise(loss, bounds, [getattr(cost, name) for name in names])
    return at([float(f"{figure:.4g}") for figure in figures])


def _collective(kind: CollectiveKind, message_bytes: Quantity, group: int) -> Collective:
    return Collective(
        name=kind, part="", inputs=(), outputs=(), kind=kind, message_bytes=message_bytes, group_size=group
    )
