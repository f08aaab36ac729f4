"""Bringing newly profiled rows into a database file without losing anything that is in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tensor_cast.performance_model.profiling_database.schema import (
    BASE_COLUMNS,
    FUSED_ATTENTION,
    KEY_COLUMNS,
    PROFILE_COLUMNS,
    RUNTIME_COLUMNS,
    RUNTIME_COMPLETENESS,
    RUNTIME_LENGTHS,
    kernel_columns,
    with_columns,
)
from tensor_cast.performance_model.profiling_database.shapes import RowKey, row_key
from tensor_cast.performance_model.profiling_database.table import Table


@dataclass(frozen=True)
class ProfiledRow:
    """One measured row of a kernel type: ``base`` in the order of ``BASE_COLUMNS``, ``profile`` of ``PROFILE_COLUMNS``.

    ``runtime`` holds what is known of a FusedInferAttentionScore beyond its shapes, by column name.
    """

    base: tuple[str, ...]
    profile: tuple[str, ...]
    runtime: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> RowKey:
        """The identity of the row."""
        return row_key(*self.base[len(BASE_COLUMNS) - len(KEY_COLUMNS) :])


@dataclass(frozen=True)
class MergeCounts:
    """What a merge did to the rows of one file."""

    new: int = 0
    updated: int = 0
    unchanged: int = 0


def merge_profile(table: Table | None, kernel_type: str, measured: Iterable[ProfiledRow]) -> tuple[Table, MergeCounts]:
    """``table`` with ``measured`` in it: known rows get new ``Profiling …`` cells, others are appended.

    Replayed durations, generated rows, unknown columns and the order of rows stay. Of rows that the file holds twice
    the first is updated. An attention row whose lengths are known is another row than the same shapes without.
    Doing it again changes nothing. ``table`` itself is left alone.
    """
    wanted = kernel_columns(kernel_type)
    old_columns = [] if table is None else table.columns
    columns = with_columns(old_columns, wanted) if table is not None else list(wanted)
    position = {name: index for index, name in enumerate(columns)}
    rows = [] if table is None else [_widened(row, old_columns, position) for row in table.rows]

    key_positions = [position[name] for name in KEY_COLUMNS]
    length_names = RUNTIME_LENGTHS if kernel_type == FUSED_ATTENTION else ()
    length_positions = [position[name] for name in length_names]
    index_of: dict[tuple[RowKey, tuple[str, ...]], int] = {}
    for index, row in enumerate(rows):
        key = row_key(*(row[place] for place in key_positions))
        index_of.setdefault((key, tuple(row[place] for place in length_positions)), index)

    base_positions = [position[name] for name in BASE_COLUMNS]
    profile_positions = [position[name] for name in PROFILE_COLUMNS]
    new = updated = unchanged = 0
    for measurement in measured:
        identity = (measurement.key, tuple(measurement.runtime.get(name, "") for name in length_names))
        known = index_of.get(identity)
        if known is None:
            row = [""] * len(columns)
            _put(row, base_positions, measurement.base)
            index_of[identity] = len(rows)
            rows.append(row)
            new += 1
        else:
            row = rows[known]
            same = [row[place] for place in profile_positions] == list(measurement.profile)
            unchanged += same
            updated += not same
        _put(row, profile_positions, measurement.profile)
        if kernel_type == FUSED_ATTENTION and not row[position[RUNTIME_COMPLETENESS]]:
            _put(
                row,
                [position[name] for name in RUNTIME_COLUMNS],
                [row[position[name]] or measurement.runtime.get(name, "") for name in RUNTIME_COLUMNS],
            )
    return Table(columns, rows), MergeCounts(new, updated, unchanged)


def _widened(row: list[str], old_columns: list[str], position: dict[str, int]) -> list[str]:
    wide = [""] * len(position)
    for name, cell in zip(old_columns, row, strict=True):
        wide[position[name]] = cell
    return wide


def _put(row: list[str], positions: list[int], cells: Iterable[str]) -> None:
    for place, cell in zip(positions, cells, strict=True):
        row[place] = cell
