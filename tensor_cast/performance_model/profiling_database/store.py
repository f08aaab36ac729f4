"""A database directory: which kernel types it has, reading the files that are asked for, writing parsed profiles."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tensor_cast.errors import ModelingError, did_you_mean
from tensor_cast.performance_model.profiling_database.atomic import database_lock, replace_files, write_failure
from tensor_cast.performance_model.profiling_database.merge import MergeCounts, ProfiledRow, merge_profile
from tensor_cast.performance_model.profiling_database.schema import (
    KEY_COLUMNS,
    LATENCY_COLUMNS,
    REPLAY_DURATION,
    is_communication_file,
    modern_header,
)
from tensor_cast.performance_model.profiling_database.shapes import RowKey, row_key
from tensor_cast.performance_model.profiling_database.statistics import duration_us
from tensor_cast.performance_model.profiling_database.table import Table, read_bytes, read_table, table_bytes


@dataclass(frozen=True)
class KernelRows:
    """The rows of one kernel type that have a duration, in the file's order.

    ``duration_us`` is what a reader takes (a replay's before a profile's), ``replayed`` says which it was, and
    ``extra`` holds the further columns that were asked for. A key may occur more than once: attention rows of equal
    shapes differ in their ``Runtime`` columns.
    """

    kernel_type: str
    keys: tuple[RowKey, ...]
    duration_us: npt.NDArray[np.float64]
    replayed: npt.NDArray[np.bool_]
    extra: Mapping[str, tuple[str, ...]]

    @cached_property
    def index(self) -> dict[RowKey, int]:
        """Position of the first row of each key."""
        index: dict[RowKey, int] = {}
        for position, key in enumerate(self.keys):
            index.setdefault(key, position)
        return index

    def cell(self, column: str, position: int) -> str:
        """Text of a further column in one row."""
        return self.extra[column][position]


class Database:
    """A directory of ``{kernel type}.csv`` files; a file is read when it is first asked for.

    Raises:
        ModelingError: the directory does not exist or holds no kernel file.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.paths = kernel_files(directory)
        self._rows: dict[tuple[str, tuple[str, ...]], KernelRows] = {}

    @property
    def kernel_types(self) -> tuple[str, ...]:
        """Kernel types that have a file, sorted."""
        return tuple(self.paths)

    def table(self, kernel_type: str) -> Table:
        """Everything in a kernel type's file, as text.

        Raises:
            ModelingError: there is no such file, or it cannot be read.
        """
        return read_table(self._path(kernel_type))

    def rows(self, kernel_type: str, extra: Sequence[str] = ()) -> KernelRows:
        """The measured rows of a kernel type with the columns ``extra`` beside; a column that is not there is empty.

        Raises:
            ModelingError: there is no such file, or it cannot be read.
        """
        request = (kernel_type, tuple(extra))
        if request not in self._rows:
            self._rows[request] = _read_rows(self._path(kernel_type), kernel_type, extra)
        return self._rows[request]

    def _path(self, kernel_type: str) -> Path:
        try:
            return self.paths[kernel_type]
        except KeyError:
            raise ModelingError(
                f"{self.directory} has no {kernel_type}.csv.{did_you_mean(kernel_type, self.paths)}"
            ) from None


def kernel_files(directory: Path) -> dict[str, Path]:
    """Kernel type to file of a database directory, sorted; collectives are not kernels.

    Raises:
        ModelingError: the directory does not exist or holds no kernel file.
    """
    return _with_any(directory, {name: path for name, path in _by_stem(directory) if not is_communication_file(name)})


def database_files(directory: Path) -> dict[str, Path]:
    """The same with the collectives that lie there too, and without any kernel if there are some.

    Raises:
        ModelingError: the directory does not exist or holds no file of a database.
    """
    return _with_any(directory, dict(_by_stem(directory)))


def _by_stem(directory: Path) -> Iterator[tuple[str, Path]]:
    return ((path.stem, path) for path in csv_files(directory))


def _with_any(directory: Path, paths: dict[str, Path]) -> dict[str, Path]:
    if not paths:
        kernels_below = (path for path in directory.rglob("*.csv") if not is_communication_file(path.stem))
        below = sorted({str(path.parent) for path in kernels_below})[:3]
        hint = f" Databases lie below it: {', '.join(below)}." if below else ""
        raise ModelingError(f"{directory} has no kernel CSV files directly in it.{hint}")
    return paths


def csv_files(directory: Path) -> list[Path]:
    """The CSV files directly in a directory, sorted.

    Raises:
        ModelingError: it is not a directory that can be read.
    """
    try:
        return sorted(
            path for path in directory.iterdir() if path.suffix == ".csv" and not path.name.endswith(".tmp.csv")
        )
    except FileNotFoundError:
        raise ModelingError(f"The database directory {directory} does not exist.") from None
    except NotADirectoryError:
        raise ModelingError(f"{directory} is a file; give the directory that holds the CSV files.") from None
    except OSError as error:
        raise ModelingError(f"{directory} cannot be read: {error.strerror}.", exit_status=1) from None


@dataclass(frozen=True)
class FileChange:
    """What writing did to one file."""

    path: Path
    created: bool
    written: bool
    rows: MergeCounts


def update_database(
    directory: Path, measured: Mapping[str, Iterable[ProfiledRow]], *, wait: bool = True
) -> list[FileChange]:
    """Merge profiled rows of several kernel types into a database directory; all files change or none.

    A second run waits for the first, or gives up with ``wait=False``. A file that would not change is not written.

    Raises:
        ModelingError: an existing file cannot be read, or a file cannot be written.
    """
    changes: list[FileChange] = []
    contents: dict[Path, bytes] = {}
    with database_lock(directory, wait=wait):
        for kernel_type, rows in measured.items():
            path = directory / f"{kernel_type}.csv"
            existing = _table_if_there(path)
            table, counts = merge_profile(existing, kernel_type, rows)
            written = existing is None or (table.columns, table.rows) != (existing.columns, existing.rows)
            if written:
                contents[path] = table_bytes(table)
            changes.append(FileChange(path, existing is None, written, counts))
        replace_files(contents)
    return changes


def _table_if_there(path: Path) -> Table | None:
    try:
        is_there = path.exists()
    except OSError as error:  # a kernel's name that is longer than a file's may be
        raise write_failure(path, error) from None
    return read_table(path) if is_there else None


def _read_rows(path: Path, kernel_type: str, extra: Sequence[str]) -> KernelRows:
    reader = csv.reader(io.TextIOWrapper(io.BytesIO(read_bytes(path)), encoding="utf-8", errors="replace", newline=""))
    columns = modern_header(next(reader))
    missing = [name for name in KEY_COLUMNS if name not in columns]
    if missing:
        raise ModelingError(f"{path} has no column {', '.join(map(repr, missing))}.")
    keys: list[RowKey] = []
    durations: list[float] = []
    replayed: list[bool] = []
    extra_cells: list[list[str]] = [[] for _ in extra]
    key_cells = itemgetter(*(columns.index(name) for name in KEY_COLUMNS))
    latency_places = [(columns.index(name), name == REPLAY_DURATION) for name in LATENCY_COLUMNS if name in columns]
    extra_places = [columns.index(name) if name in columns else None for name in extra]
    width = len(columns)
    for row in reader:
        if len(row) != width:
            if not row:
                continue
            raise ModelingError(f"{path}, line {reader.line_num}: {len(row)} cells where the header has {width}.")
        for place, is_replay in latency_places:
            if (value := duration_us(row[place])) is not None:
                keys.append(row_key(*key_cells(row)))
                durations.append(value)
                replayed.append(is_replay)
                for cells, extra_place in zip(extra_cells, extra_places, strict=True):
                    cells.append("" if extra_place is None else row[extra_place])
                break
    return KernelRows(
        kernel_type=kernel_type,
        keys=tuple(keys),
        duration_us=np.array(durations, dtype=np.float64),
        replayed=np.array(replayed, dtype=np.bool_),
        extra={name: tuple(cells) for name, cells in zip(extra, extra_cells, strict=True)},
    )
