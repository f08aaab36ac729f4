"""Measured collectives: the ``hcom_*.csv`` files of a directory as arrays, and the tier that a group crosses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tensor_cast.ops import CollectiveKind
from tensor_cast.performance_model.profiling_database.communication import COMMUNICATION_FILES, read_collectives
from tensor_cast.quantity import Quantity

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TierRows:
    """Measurements of one kind over one tier, ordered by group and size; no (group, size) occurs twice.

    ``message_bytes`` [R] is what the files mean by it: the tensor of an all-reduce, one rank's input of an all-gather,
    one rank's output of a reduce-scatter, one rank's buffer of an all-to-all.
    """

    kind: CollectiveKind
    message_bytes: FloatArray
    group_size: IntArray
    duration_s: FloatArray

    def __len__(self) -> int:
        return len(self.duration_s)

    def select(self, mask: npt.NDArray[np.bool_]) -> TierRows:
        """The rows where ``mask`` is true."""
        return TierRows(self.kind, self.message_bytes[mask], self.group_size[mask], self.duration_s[mask])

    def of_group(self, group_size: int) -> TierRows:
        """The rows of groups of ``group_size`` ranks."""
        return self.select(self.group_size == group_size)


def group_tier(grid_shape: Sequence[int], group_size: int, stride: int = 1) -> int:
    """Index of the outermost dimension of the grid (outermost first) in which ranks 0, stride, 2 stride … differ.

    48 x 8 x 2 and neighbouring ranks: 2 -> 2 (dies of a package), 4 to 16 -> 1 (a pod), 17 and more -> 0 (between
    pods). A group of one rank is in the innermost.
    """
    last = (group_size - 1) * stride
    block = 1
    for tier in range(len(grid_shape) - 1, 0, -1):
        block *= grid_shape[tier]
        if last < block:
            return tier
    return 0


def file_bytes(kind: CollectiveKind, message_bytes: Quantity, group_size: int) -> Quantity:
    """``Collective.message_bytes``, the whole tensor, as the files count it."""
    return message_bytes / group_size if kind in ("all_gather", "reduce_scatter") else message_bytes


def whole_bytes(kind: CollectiveKind, message_bytes: Quantity, group_size: Quantity) -> Quantity:
    """Bytes as the files count them as ``Collective.message_bytes``, the whole tensor."""
    return message_bytes * group_size if kind in ("all_gather", "reduce_scatter") else message_bytes


def sent_bytes(kind: CollectiveKind, message_bytes: Quantity, group_size: Quantity | IntArray) -> Quantity:
    """Bytes that each rank sends by the bandwidth-optimal algorithm, from the files' ``message_bytes``."""
    ranks = np.asarray(group_size, dtype=np.float64)
    passes = 2.0 if kind == "all_reduce" else 1.0
    return passes * (ranks - 1.0) / ranks * whole_bytes(kind, message_bytes, ranks)


def measured_collectives(directory: Path, kind: CollectiveKind, grid_shape: Sequence[int]) -> dict[int, TierRows]:
    """Rows of one kind by tier; empty when the directory has no file of it.

    Of rows that repeat a size, group and tier the last counts: tools that append put the newest there. A row without
    a tier gets that of neighbouring ranks on ``grid_shape``. Groups of one rank say nothing and are left out.

    Raises:
        ModelingError: the file cannot be read, or lacks a column that is needed.
    """
    path = directory / COMMUNICATION_FILES[kind]
    if not path.exists():
        return {}
    found = read_collectives(path)
    newest: dict[int, dict[tuple[int, float], float]] = {}
    columns = (found.message_bytes, found.num_devices, found.topology_tier, found.duration_us)
    for size, devices, tier, duration in zip(*(column.tolist() for column in columns), strict=True):
        group = int(devices)
        if group > 1 and size > 0.0:
            place = group_tier(grid_shape, group) if math.isnan(tier) else int(tier)
            newest.setdefault(place, {})[group, size] = duration * 1e-6
    return {tier: _tier_rows(kind, rows) for tier, rows in newest.items()}


def _tier_rows(kind: CollectiveKind, durations: Mapping[tuple[int, float], float]) -> TierRows:
    keys = sorted(durations)
    return TierRows(
        kind,
        np.array([size for _, size in keys], dtype=np.float64),
        np.array([group for group, _ in keys], dtype=np.int64),
        np.array([durations[key] for key in keys], dtype=np.float64),
    )
