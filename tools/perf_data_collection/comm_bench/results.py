"""Rows in ``hcom_*.csv``: each in one step of the file system, a repeated measurement in the place of the old one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.atomic import database_lock, replace_files
from tensor_cast.performance_model.profiling_database.communication import COMMUNICATION_FILES
from tensor_cast.performance_model.profiling_database.schema import COMMUNICATION_COLUMNS, COMMUNICATION_KEY
from tensor_cast.performance_model.profiling_database.statistics import duration_us
from tensor_cast.performance_model.profiling_database.table import Table, read_table, table_bytes
from tools.perf_data_collection.comm_bench.plan import Case

DURATION_COLUMN, BANDWIDTH_COLUMN = COMMUNICATION_COLUMNS[4:]
PROVENANCE_NAME = "comm_bench.json"
"""Beside the rows: what measured each file, so that figures of another library never mix with them unnoticed."""

Key = tuple[str, ...]


@dataclass(frozen=True)
class Results:
    """Where rows of each op go: a database directory, one file, or nowhere."""

    directory: Path | None
    output_csv: Path | None
    dtype: str

    def path(self, op: str) -> Path | None:
        """The file of an op, ``None`` when nothing is to be written."""
        if self.output_csv is not None:
            return self.output_csv
        return None if self.directory is None else self.directory / COMMUNICATION_FILES[op]

    def measured(self, cases: Iterable[Case]) -> set[Case]:
        """The cases that have a row with a duration already.

        Raises:
            ModelingError: an existing file cannot be read.
        """
        known: dict[str, set[Key]] = {}
        found = set()
        for case in cases:
            if case.op not in known:
                known[case.op] = self._known(case.op)
            if self._key(case) in known[case.op]:
                found.add(case)
        return found

    def write(self, case: Case, duration: float, provenance: Mapping[str, Any]) -> None:
        """Put one row in its file; ``duration`` in microseconds, as measured, nothing added.

        Raises:
            ModelingError: the file cannot be read or written, or holds figures of another library.
        """
        path = self.path(case.op)
        if path is None:
            return
        with database_lock(path.parent):
            table = read_table(path) if path.exists() else Table(list(COMMUNICATION_COLUMNS), [])
            source = path.parent / PROVENANCE_NAME
            record = _provenance(source, path, provenance, has_rows=bool(table.rows))
            merged = _with_row(table, self._key(case), [f"{duration:.2f}", f"{bandwidth(case, duration):.2f}"])
            replace_files({path: table_bytes(merged), source: record})

    def _key(self, case: Case) -> Key:
        return (str(case.message_bytes), str(case.num_devices), self.dtype, str(case.topology_tier))

    def _known(self, op: str) -> set[Key]:
        path = self.path(op)
        if path is None or not path.exists():
            return set()
        table = read_table(path)
        cells = [table.cells(row) for row in table.rows]
        return {_row_key(row) for row in cells if duration_us(row.get(DURATION_COLUMN, "")) is not None}


def bandwidth(case: Case, duration: float) -> float:
    """Message bytes over the duration in GB/s (1e9 bytes), without a factor for the group size."""
    return case.message_bytes / duration * 1e-3


def _with_row(table: Table, key: Key, figures: list[str]) -> Table:
    """``table`` with one row of this key: the first that has it is updated, later twins go."""
    columns = [*table.columns, *(name for name in COMMUNICATION_COLUMNS if name not in table.columns)]
    rows: list[list[str]] = []
    new = dict(zip(COMMUNICATION_COLUMNS, [*key, *figures], strict=True))
    is_there = False
    for old in table.rows:
        row = [*old, *[""] * (len(columns) - len(old))]
        cells = dict(zip(columns, row, strict=True))
        if _row_key(cells) != key:
            rows.append(row)
        elif not is_there:
            rows.append([new.get(name, cells[name]) for name in columns])
            is_there = True
    if not is_there:
        rows.append([new.get(name, "") for name in columns])
    return Table(columns, rows)


def _row_key(cells: Mapping[str, str]) -> Key:
    return tuple(_plain(cells.get(name, "")) for name in COMMUNICATION_KEY)


def _plain(text: str) -> str:
    """``1024.0`` as ``1024``: a spreadsheet's way of writing the same number."""
    try:
        value = float(text)
        return str(int(value)) if value == int(value) else text.strip()
    except (ValueError, OverflowError):
        return text.strip()


def _provenance(source: Path, path: Path, provenance: Mapping[str, Any], *, has_rows: bool) -> bytes:
    """The record of what measured the files of a directory, with this file's entry renewed."""
    try:
        known = json.loads(source.read_text(encoding="utf-8")) if source.exists() else {}
    except (OSError, ValueError) as error:
        raise ModelingError(f"{source} cannot be read ({error}): restore it or take it away.", exit_status=1) from None
    earlier = known.get(path.name, {})
    for name in ("backend", "grid_shape"):
        if has_rows and name in earlier and earlier[name] != provenance[name]:
            raise ModelingError(
                f"{path} holds figures of {name.replace('_', ' ')} {earlier[name]}, and these are of "
                f"{provenance[name]}: give another --database-path or --output-csv."
            )
    known[path.name] = {**provenance, "durations": "raw", "measured": time.strftime("%Y-%m-%d")}
    return (json.dumps(known, indent=1) + "\n").encode()
