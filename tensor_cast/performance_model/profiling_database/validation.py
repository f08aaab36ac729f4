"""Every place where a database directory breaks the format, by file, line and column."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.coverage import row_identity
from tensor_cast.performance_model.profiling_database.schema import (
    BASE_COLUMNS,
    COLUMN_ORDER,
    COMMUNICATION_COLUMNS,
    COMMUNICATION_KEY,
    KEY_COLUMNS,
    LATENCY_COLUMNS,
    PROFILE_COLUMNS,
    PROFILE_COUNT,
    REPLAY_DURATION,
    is_communication_file,
    kernel_columns,
    misspelling_hint,
    modern_header,
)
from tensor_cast.performance_model.profiling_database.shapes import (
    canonical_dtypes,
    canonical_formats,
    is_missing,
    parse_shapes,
)
from tensor_cast.performance_model.profiling_database.statistics import MAX_DURATION_US, duration_us
from tensor_cast.performance_model.profiling_database.store import csv_files
from tensor_cast.performance_model.profiling_database.table import read_bytes

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SIDES = (KEY_COLUMNS[:3], KEY_COLUMNS[3:])
_NEEDLESS_QUOTES = re.compile(r'(?:^|,)"[^",\r\n]*"(?=,|\r|$)', re.MULTILINE)
_WHOLE = (PROFILE_COUNT, "message_bytes", "num_devices", "topology_tier")
_BANDWIDTH_ERROR = 0.02
"""Durations and bandwidths have two decimals, so that a short or slow message's bandwidth is only roughly known."""


@dataclass(frozen=True)
class Violation:
    """A break of the format; ``line`` counts from 1 with the header, ``column`` is empty when the line is meant."""

    path: Path
    line: int
    column: str
    message: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}"
        return f"{place}: {self.column}: {self.message}" if self.column else f"{place}: {self.message}"


def validate(directory: Path) -> list[Violation]:
    """All violations in the CSV files directly in a directory, by file and line.

    Raises:
        ModelingError: the directory cannot be read or holds no CSV file.
    """
    paths = csv_files(directory)
    if not paths:
        raise ModelingError(f"{directory} holds no CSV files.")
    return [violation for path in paths for violation in validate_file(path)]


def validate_file(path: Path) -> Iterator[Violation]:
    """The violations of one file, in the order of its lines."""
    try:
        content = read_bytes(path)
        text = content.decode("utf-8")
    except ModelingError as error:
        yield Violation(path, 1, "", str(error).removeprefix(f"{path} "))
        return
    except UnicodeDecodeError as error:
        yield Violation(path, content[: error.start].count(b"\n") + 1, "", "is not UTF-8")
        return
    yield from _byte_violations(path, content)
    yield from _quote_violations(path, text)
    reader = csv.reader(io.StringIO(text, newline=""))
    header = next(reader)
    is_communication = is_communication_file(path.stem)
    yield from _header_violations(path, header, is_communication)
    columns = modern_header(header)
    first_line: dict[object, int] = {}
    for row in reader:
        line = reader.line_num
        if len(row) != len(columns):
            yield Violation(path, line, "", f"has {len(row)} cells where the header has {len(columns)}")
            continue
        cells = dict(zip(columns, row, strict=True))
        yield from _number_violations(path, line, cells)
        if is_communication:
            yield from _collective_violations(path, line, cells)
            identity: object = tuple(cells.get(name, "").strip() for name in COMMUNICATION_KEY)
        else:
            yield from _tensor_violations(path, line, cells)
            identity = row_identity(path.stem, cells)
        earlier = first_line.setdefault(identity, line)
        if earlier != line:
            yield Violation(path, line, "", f"repeats line {earlier}")


def _byte_violations(path: Path, content: bytes) -> Iterator[Violation]:
    with path.open("rb") as stream:
        if stream.read(3) == _BYTE_ORDER_MARK:
            yield Violation(path, 1, "", "starts with a byte-order mark")
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line and not line.endswith(b"\r"):
            yield Violation(path, number, "", "does not end with CRLF")
            return


def _quote_violations(path: Path, text: str) -> Iterator[Violation]:
    if needless := _NEEDLESS_QUOTES.search(text):
        yield Violation(path, text.count("\n", 0, needless.start()) + 1, "", "has quotes that are not needed")


def _header_violations(path: Path, header: list[str], is_communication: bool) -> Iterator[Violation]:
    modern = modern_header(header)
    for old, name in zip(header, modern, strict=True):
        if old != old.strip():
            yield Violation(path, 1, old, "has blanks around its name")
        if old.strip() != name:
            yield Violation(path, 1, old, f"is an old name, today's is {name!r}")
    for name in dict.fromkeys(name for name in modern if modern.count(name) > 1):
        yield Violation(path, 1, name, "occurs more than once")
    required = COMMUNICATION_COLUMNS if is_communication else BASE_COLUMNS
    for name in required:
        if name not in modern:
            hint = misspelling_hint(name, (other for other in modern if other not in required))
            yield Violation(path, 1, name, f"is missing{hint}")
    order = COMMUNICATION_COLUMNS if is_communication else (*COLUMN_ORDER, PROFILE_COUNT)
    known = [name for name in order if name in modern]
    present = list(dict.fromkeys(name for name in modern if name in known))
    if known != present:
        moved = next(name for name, expected in zip(present, known, strict=True) if name != expected)
        yield Violation(path, 1, moved, "is not in its place")
    if is_communication:
        return
    if not any(name in modern for name in LATENCY_COLUMNS):
        yield Violation(path, 1, "", f"has none of the duration columns {', '.join(LATENCY_COLUMNS)}")
    absent = [name for name in (REPLAY_DURATION, *kernel_columns(path.stem)) if name not in (*modern, *required)]
    for name in modern:
        if name not in order and (hint := misspelling_hint(name, absent)):
            yield Violation(path, 1, name, f"is not a column of the format{hint}")


def _number_violations(path: Path, line: int, cells: Mapping[str, str]) -> Iterator[Violation]:
    for column, text in cells.items():
        is_number = column in PROFILE_COLUMNS or column in LATENCY_COLUMNS or column.startswith("MicroBench ")
        if column in COMMUNICATION_COLUMNS and column != "dtype":
            is_number = True
        if not is_number or not text.strip():
            continue
        problem = _number_problem(text, whole=column in _WHOLE)
        if problem is None and "Duration(us)" in column and float(text) > MAX_DURATION_US:
            problem = f"{text} is longer than {MAX_DURATION_US / 60e6:.0f} minutes"
        if problem:
            yield Violation(path, line, column, problem)


def _number_problem(text: str, *, whole: bool) -> str | None:
    try:
        value = float(text)
    except ValueError:
        return f"{text!r} is not a number"
    if not math.isfinite(value):
        return f"{text} is not finite"
    if value < 0.0:
        return f"{text} is negative"
    return f"{text} is not a whole number" if whole and value != int(value) else None


def _collective_violations(path: Path, line: int, cells: Mapping[str, str]) -> Iterator[Violation]:
    for column in COMMUNICATION_KEY:
        if column in cells and not cells[column].strip():
            yield Violation(path, line, column, "is empty")
    duration, bandwidth = duration_us(cells.get("Duration(us)", "")), _number(cells.get("bandwidth_gbps", ""))
    size = _number(cells.get("message_bytes", ""))
    if duration is None or bandwidth is None or size is None:
        return
    expected = size / duration * 1e-3
    if abs(bandwidth - expected) > 0.01 + _BANDWIDTH_ERROR * expected:
        yield Violation(
            path, line, "bandwidth_gbps", f"{bandwidth:g} is not message_bytes / Duration(us): {expected:.2f}"
        )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _tensor_violations(path: Path, line: int, cells: Mapping[str, str]) -> Iterator[Violation]:
    for shapes, dtypes, formats in _SIDES:
        text = cells.get(shapes, "")
        if is_missing(text):
            yield Violation(path, line, shapes, "is N/A: a row without shapes matches nothing")
            continue
        try:
            sizes = parse_shapes(text)
        except ModelingError:
            yield Violation(path, line, shapes, f"{text} does not read as shapes")
            continue
        if not (len(text) >= 2 and text[0] == text[-1] == '"'):
            yield Violation(path, line, shapes, "lacks the literal quotes around the shapes")
        for column, what, canonical in ((dtypes, "dtype", canonical_dtypes), (formats, "format", canonical_formats)):
            cell = cells.get(column, "")
            count = len(cell.split(";"))
            if count != len(sizes) and cell.strip():
                yield Violation(path, line, column, f"has {count} entries for {len(sizes)} shapes")
            entries = canonical(cell).split(";")
            for position, size in enumerate(sizes):
                if size and (position >= len(entries) or not entries[position]):
                    yield Violation(path, line, column, f"gives no {what} for entry {position} of shape {size}")
        for position, size in enumerate(sizes):
            if any(dimension < 0 for dimension in size):
                yield Violation(path, line, shapes, f"entry {position} has a negative dimension")
