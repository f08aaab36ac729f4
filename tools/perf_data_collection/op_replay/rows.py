"""The rows of a database as replay sees them: operands by slot, and an identity that survives a rewritten file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.schema import (
    KEY_COLUMNS,
    PROFILE_DURATION,
    REPLAY_DURATION,
    RUNTIME_COLUMNS,
)
from tensor_cast.performance_model.profiling_database.shapes import Tensor, key_of, parse_shapes, parse_tensors
from tensor_cast.performance_model.profiling_database.statistics import duration_us
from tensor_cast.performance_model.profiling_database.table import read_table
from tools.perf_data_collection.op_replay.errors import RowError

EP_SIZE = "EP Size"
RAW_SHAPES = "Runtime operator_input_shapes_raw"
TEMPORARY_PREFIX = "msprof_run_"
"""Directories below a database in which a run collects its profiles; nothing in them is a database file."""

_IDENTITY_COLUMNS = (
    *(name for name in RUNTIME_COLUMNS if name not in ("Runtime source_profile", "Runtime metadata_completeness")),
    RAW_SHAPES,
    EP_SIZE,
)


@dataclass(frozen=True)
class ReplayRow:
    """One row of ``{kernel_type}.csv``; ``line`` counts from 2, the header being line 1."""

    kernel_type: str
    path: Path
    line: int
    cells: Mapping[str, str]

    @cached_property
    def inputs(self) -> tuple[Tensor | None, ...]:
        """Input operands by slot, ``None`` for an absent optional one.

        Raises:
            ModelingError: the shapes cannot be read.
        """
        return parse_tensors(*(self.cells.get(name, "") for name in KEY_COLUMNS[:3]))

    @cached_property
    def outputs(self) -> tuple[Tensor | None, ...]:
        """Output operands by slot.

        Raises:
            ModelingError: the shapes cannot be read.
        """
        return parse_tensors(*(self.cells.get(name, "") for name in KEY_COLUMNS[3:]))

    @cached_property
    def identity(self) -> str:
        """Equal for two spellings of the same measurement; lengths of attention and the EP size belong to it."""
        parts = [self.kernel_type, *key_of(self.cells), *(self.cells.get(name, "") for name in _IDENTITY_COLUMNS)]
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:16]

    def optional_input(self, slot: int) -> Tensor | None:
        """The operand of an input slot, ``None`` when the row has no such slot or it is empty."""
        return self.inputs[slot] if slot < len(self.inputs) else None

    def input(self, slot: int, name: str, *ranks: int) -> Tensor:
        """The operand of a slot that must be there, of one of ``ranks`` when any is given.

        Raises:
            RowError: it is absent or of another rank.
        """
        tensor = self.optional_input(slot)
        if tensor is None:
            raise RowError(f"Input {slot} ({name}) is absent: give its shape, dtype and format.")
        return _of_rank(tensor, f"Input {slot} ({name})", ranks)

    def output(self, slot: int, name: str, *ranks: int) -> Tensor:
        """The same for an output."""
        tensor = self.outputs[slot] if slot < len(self.outputs) else None
        if tensor is None:
            raise RowError(f"Output {slot} ({name}) is absent: give its shape, dtype and format.")
        return _of_rank(tensor, f"Output {slot} ({name})", ranks)

    @property
    def has_valid_duration(self) -> bool:
        """Whether a replay or a profile measured the row already."""
        return any(duration_us(self.cells.get(name, "")) is not None for name in (REPLAY_DURATION, PROFILE_DURATION))

    @property
    def shape_text(self) -> str:
        """Input and output shapes for people."""
        inputs, outputs = (self.cells.get(name, "").strip().strip('"') for name in ("Input Shapes", "Output Shapes"))
        return f"{inputs} -> {outputs}"

    def whole_number(self, column: str) -> int | None:
        """A whole number in a column, ``None`` when the cell is empty.

        Raises:
            RowError: there is something else in it.
        """
        text = self.cells.get(column, "").strip()
        if not text:
            return None
        try:
            number = float(text)
        except ValueError:
            number = 0.5
        if number != int(number):
            raise RowError(f"{column} {text!r} is not a whole number.")
        return int(number)

    def numbers(self, column: str) -> tuple[int, ...]:
        """Whole numbers of a list in a column, however it is bracketed and separated.

        Raises:
            RowError: there is something else in it.
        """
        text = self.cells.get(column, "").strip().strip('"[]()')
        try:
            return tuple(int(float(part)) for part in text.replace(";", ",").replace(" ", ",").split(",") if part)
        except ValueError:
            raise RowError(f"{column} {text!r} is not a list of whole numbers.") from None


def read_rows(path: Path) -> list[ReplayRow]:
    """Every row of a database file.

    Raises:
        ModelingError: the file cannot be read.
    """
    table = read_table(path)
    missing = [name for name in KEY_COLUMNS if name not in table.columns]
    if missing:
        raise ModelingError(f"{path} has no column {', '.join(map(repr, missing))}: it is not a database file.")
    return [ReplayRow(path.stem, path, line, table.cells(row)) for line, row in enumerate(table.rows, start=2)]


def operator_files(directory: Path, operator: str) -> list[Path]:
    """The files of an operator: the one directly in the directory, else all of that name below it, sorted."""
    direct = directory / f"{operator}.csv"
    if direct.is_file():
        return [direct]
    return sorted(
        path
        for path in directory.rglob(f"{operator}.csv")
        if not any(part.startswith(TEMPORARY_PREFIX) for part in path.relative_to(directory).parts)
    )


def pending_rows(directory: Path, operator: str, update_mode: str, settled: Iterable[str] = ()) -> list[ReplayRow]:
    """Rows of an operator that a run has to measure, each identity once.

    Raises:
        FileNotFoundError: the operator has no file.
        ModelingError: a file cannot be read.
    """
    files = operator_files(directory, operator)
    if not files:
        raise FileNotFoundError(f"{operator}.csv is nowhere below {directory}.")
    pending: dict[str, ReplayRow] = {}
    done = set(settled)
    for path in files:
        for row in read_rows(path):
            wanted = update_mode == "all" or not row.has_valid_duration
            if wanted and row.identity not in done:
                pending.setdefault(row.identity, row)
    return list(pending.values())


def raw_shapes(row: ReplayRow) -> tuple[tuple[int, ...], ...] | None:
    """The operator's own shapes where the row keeps them beside the kernel's, else ``None``."""
    text = row.cells.get(RAW_SHAPES, "").strip()
    return parse_shapes(text) if text else None


def _of_rank(tensor: Tensor, what: str, ranks: tuple[int, ...]) -> Tensor:
    if ranks and len(tensor.shape) not in ranks:
        wanted = " or ".join(f"{rank}-D" for rank in ranks)
        raise RowError(f"{what} has shape {','.join(map(str, tensor.shape)) or '()'}: it must be {wanted}.")
    return tensor
