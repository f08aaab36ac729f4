"""How two database directories differ, row by row."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tensor_cast.performance_model.profiling_database.coverage import row_identity
from tensor_cast.performance_model.profiling_database.schema import COMMUNICATION_KEY, is_communication_file
from tensor_cast.performance_model.profiling_database.statistics import latency_us
from tensor_cast.performance_model.profiling_database.store import database_files
from tensor_cast.performance_model.profiling_database.table import read_table

Identity: TypeAlias = tuple[str, ...]
"""What tells a row from all others of its file; first what it is called in print: its input shapes, its message."""


@dataclass(frozen=True)
class ChangedRow:
    """A row of both databases whose duration differs; None where it has none."""

    kernel_type: str
    shapes: str
    before_us: float | None
    after_us: float | None

    @property
    def ratio(self) -> float | None:
        """After over before, None when one is missing."""
        return self.after_us / self.before_us if self.before_us and self.after_us else None


@dataclass(frozen=True)
class KernelDifference:
    """Rows of one kernel type that only one database has, and those whose duration differs."""

    kernel_type: str
    only_before: int
    only_after: int
    equal: int
    changed: tuple[ChangedRow, ...]

    @property
    def is_equal(self) -> bool:
        """Whether both databases say the same of this kernel type."""
        return not (self.only_before or self.only_after or self.changed)

    @property
    def median_ratio(self) -> float | None:
        """Median of after over before among the changed rows that have both."""
        ratios = [row.ratio for row in self.changed if row.ratio is not None]
        return statistics.median(ratios) if ratios else None


def difference(before: Path, after: Path) -> list[KernelDifference]:
    """The differences of two database directories, a kernel type or collective each, equal ones included.

    Raises:
        ModelingError: a directory or file cannot be read.
    """
    before_files, after_files = database_files(before), database_files(after)
    return [
        _kernel_difference(name, _latencies(name, before_files.get(name)), _latencies(name, after_files.get(name)))
        for name in sorted({*before_files, *after_files})
    ]


def _latencies(kernel_type: str, path: Path | None) -> dict[Identity, float | None]:
    if path is None:
        return {}
    table = read_table(path)
    latencies: dict[Identity, float | None] = {}
    for row in table.rows:
        cells = table.cells(row)
        latencies.setdefault(_identity(kernel_type, cells), latency_us(cells))
    return latencies


def _identity(kernel_type: str, cells: Mapping[str, str]) -> Identity:
    if not is_communication_file(kernel_type):
        key, extra = row_identity(kernel_type, cells)
        return (*key, *extra)
    size, devices, dtype, tier = (cells.get(name, "").strip() for name in COMMUNICATION_KEY)
    return (f"{size} bytes, {devices} devices, {dtype}, tier {tier}",)


def _kernel_difference(
    kernel_type: str,
    before: Mapping[Identity, float | None],
    after: Mapping[Identity, float | None],
) -> KernelDifference:
    shared = [identity for identity in before if identity in after]
    changed = tuple(
        ChangedRow(kernel_type, identity[0], before[identity], after[identity])
        for identity in shared
        if before[identity] != after[identity]
    )
    return KernelDifference(
        kernel_type,
        only_before=len(before) - len(shared),
        only_after=len(after) - len(shared),
        equal=len(shared) - len(changed),
        changed=changed,
    )
