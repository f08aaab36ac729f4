"""Bringing replayed durations into database files without touching anything else in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tensor_cast.performance_model.profiling_database.schema import (
    BASE_COLUMNS,
    MICROBENCH_COUNTERS,
    PROFILE_COUNTERS,
    PROFILE_DURATION,
    PROFILE_MEDIAN,
    PROFILE_STD,
    REPLAY_DURATION,
    with_columns,
)
from tensor_cast.performance_model.profiling_database.shapes import quoted_shapes
from tensor_cast.performance_model.profiling_database.statistics import duration_us
from tensor_cast.performance_model.profiling_database.table import Table
from tools.perf_data_collection.op_replay.measurements import Measurement
from tools.perf_data_collection.op_replay.rows import EP_SIZE, ReplayRow
from tools.perf_data_collection.op_replay.signature import (
    COARSE,
    DISPATCH_FFN_COMBINE,
    MATMUL_FAMILY,
    Signature,
    signature,
)

_DROPPED_COLUMNS = ("MicroBench Task Duration(us)", "MicroBench Kernel Duration(us)")
_MICROBENCH = "MicroBench "
NEW_FILE_COLUMNS = (
    *BASE_COLUMNS,
    REPLAY_DURATION,
    PROFILE_DURATION,
    PROFILE_MEDIAN,
    PROFILE_STD,
    *(column for pair in zip(MICROBENCH_COUNTERS, PROFILE_COUNTERS, strict=True) for column in pair),
)
"""Columns of a file that a replay creates."""


@dataclass(frozen=True)
class Gap:
    """Replayed beside profiled duration of a row, in microseconds."""

    operator: str
    csv_name: str
    replay_us: float
    profile_us: float
    shape: str

    @property
    def ratio(self) -> float:
        """Replay over profile."""
        return self.replay_us / self.profile_us


@dataclass
class FileOutcome:
    """What a write-back did to one file; examples are shapes."""

    operator: str
    path: Path
    updated: int = 0
    added: int = 0
    unchanged: int = 0
    missing: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    written: frozenset[tuple[str, Signature]] = frozenset()
    table: Table | None = None
    """The new content, ``None`` when nothing changed."""


def merge_replay(
    operator: str,
    path: Path,
    table: Table | None,
    measurements: Sequence[Measurement],
    *,
    update_all: bool,
    prune_empty: bool = False,
) -> FileOutcome:
    """Merge an operator's measurements into its file's content, which is ``None`` for a new file.

    A measured row gets its duration and counters when ``update_all`` or when it has no valid duration yet; profiled
    columns and operands never change. Unknown rows are appended when ``update_all``. Of equal rows the first is
    taken. ``measurements`` of the MatMul family may be of all three kernels: they are only matched, never appended.
    """
    outcome = FileOutcome(operator, path)
    old_columns = [] if table is None else table.columns
    columns = _columns(old_columns, measurements, operator)
    position = {name: index for index, name in enumerate(columns)}
    rows = [] if table is None else [_moved(row, old_columns, position) for row in table.rows]
    if operator == DISPATCH_FFN_COMBINE and EP_SIZE not in old_columns:
        _fill_ep_size(rows, position, measurements)

    by_signature: dict[Signature, int] = {}
    by_identity: dict[str, int] = {}
    for index, row in enumerate(rows):
        cells = dict(zip(columns, row, strict=True))
        key = signature(operator, cells)
        identity = ReplayRow(operator, path, index + 2, cells).identity
        if identity in by_identity or (operator in COARSE and key in by_signature):
            outcome.duplicates.append(_shape(cells))
        by_identity.setdefault(identity, index)
        by_signature.setdefault(key, index)

    may_append = operator not in MATMUL_FAMILY
    written = set()
    for measurement in measurements:
        found = (
            by_signature.get(measurement.signature)
            if measurement.identity is None
            else by_identity.get(measurement.identity)
        )
        if found is None:
            if may_append and measurement.kernel_type == operator:
                outcome.missing.append(_shape(measurement.cells))
                if update_all:
                    by_signature[measurement.signature] = len(rows)
                    rows.append(_new_row(columns, measurement))
                    outcome.added += 1
            continue
        written.add((operator, measurement.signature))
        _update(rows[found], position, measurement, outcome, update_all=update_all)
    if prune_empty:
        rows = _pruned(rows, position, columns, outcome)
    outcome.written = frozenset(written)
    if (old_columns, [] if table is None else table.rows) != (columns, rows) and (rows or table is not None):
        outcome.table = Table(columns, rows)
    return outcome


def measurements_for(operator: str, measurements: Iterable[Measurement]) -> list[Measurement]:
    """What may be written into an operator's file: its own kernel, for the MatMul family those of all three."""
    types = MATMUL_FAMILY if operator in MATMUL_FAMILY else (operator,)
    return [measurement for measurement in measurements if measurement.kernel_type in types]


def _update(
    row: list[str], position: Mapping[str, int], measurement: Measurement, outcome: FileOutcome, *, update_all: bool
) -> None:
    profile = duration_us(row[position[PROFILE_DURATION]]) if PROFILE_DURATION in position else None
    replay = duration_us(row[position[REPLAY_DURATION]])
    if update_all or (profile is None and replay is None):
        text = f"{measurement.duration_us:.6f}"
        changed = row[position[REPLAY_DURATION]] != text
        row[position[REPLAY_DURATION]] = text
        for counter, column in zip(_counter_names(), MICROBENCH_COUNTERS, strict=True):
            row[position[column]] = f"{measurement.counters[counter]:.6f}" if counter in measurement.counters else ""
        replay = measurement.duration_us
        outcome.updated += changed
        outcome.unchanged += not changed
    else:
        outcome.unchanged += 1
    if profile is not None and replay is not None:
        shape = _shape({name: row[place] for name, place in position.items()})
        outcome.gaps.append(Gap(outcome.operator, outcome.path.name, replay, profile, shape))


def _columns(old: Sequence[str], measurements: Sequence[Measurement], operator: str) -> list[str]:
    if not measurements and old:
        return list(old)
    if not old:
        extra = [EP_SIZE] if operator == DISPATCH_FFN_COMBINE else []
        return [*NEW_FILE_COLUMNS, *extra]
    kept = [name for name in old if name not in _DROPPED_COLUMNS]
    columns = with_columns(kept, (REPLAY_DURATION,))
    for microbench, profile in zip(MICROBENCH_COUNTERS, PROFILE_COUNTERS, strict=True):
        if profile not in columns:
            columns = with_columns(columns, (microbench,))
            continue
        if microbench in columns:
            columns.remove(microbench)
        columns.insert(columns.index(profile), microbench)
    if operator == DISPATCH_FFN_COMBINE and EP_SIZE not in columns:
        columns.append(EP_SIZE)
    return columns


def _counter_names() -> list[str]:
    return [column.removeprefix(_MICROBENCH) for column in MICROBENCH_COUNTERS]


def _moved(row: Sequence[str], old_columns: Sequence[str], position: Mapping[str, int]) -> list[str]:
    moved = [""] * len(position)
    for name, cell in zip(old_columns, row, strict=True):
        if name in position:
            moved[position[name]] = cell
    return moved


def _fill_ep_size(rows: list[list[str]], position: Mapping[str, int], measurements: Sequence[Measurement]) -> None:
    sizes = {measurement.cells.get(EP_SIZE, "") for measurement in measurements}
    if len(sizes) == 1:
        for row in rows:
            row[position[EP_SIZE]] = next(iter(sizes))


def _new_row(columns: Sequence[str], measurement: Measurement) -> list[str]:
    cells = {
        **measurement.cells,
        REPLAY_DURATION: f"{measurement.duration_us:.6f}",
        **{f"{_MICROBENCH}{name}": f"{value:.6f}" for name, value in measurement.counters.items()},
    }
    for name in ("Input Shapes", "Output Shapes"):
        cells[name] = quoted_shapes(cells.get(name, ""))
    return [cells.get(name, "") for name in columns]


def _pruned(
    rows: list[list[str]], position: Mapping[str, int], columns: Sequence[str], outcome: FileOutcome
) -> list[list[str]]:
    places = [position[name] for name in (REPLAY_DURATION, PROFILE_DURATION) if name in position]
    kept = []
    for row in rows:
        if any(duration_us(row[place]) is not None for place in places):
            kept.append(row)
        else:
            outcome.deleted.append(_shape(dict(zip(columns, row, strict=True))))
    return kept


def _shape(cells: Mapping[str, str]) -> str:
    inputs, outputs = (cells.get(name, "").strip().strip('"') for name in ("Input Shapes", "Output Shapes"))
    return f"{inputs} -> {outputs}"


def totals(outcomes: Iterable[FileOutcome]) -> dict[str, list[FileOutcome]]:
    """Outcomes by operator, in order."""
    grouped: dict[str, list[FileOutcome]] = defaultdict(list)
    for outcome in outcomes:
        grouped[outcome.operator].append(outcome)
    return dict(grouped)
