"""One profiler CSV as a stream of frames, whatever generation its header is of."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.schema import (
    CORE_COLUMN,
    COUNTERS,
    KEY_COLUMNS,
    STATE_COLUMN,
    misspelling_hint,
)
from tensor_cast.performance_model.profiling_database.table import check_start, read_failure

if TYPE_CHECKING:
    import polars as pl

TYPE = "Type"
DURATION = "Duration(us)"
CHUNK_BYTES = 32 << 20

_OP_SUMMARY_NAMES = {"OP Type": TYPE, "Task Type": CORE_COLUMN, "Task Duration(us)": DURATION}
_REQUIRED = (TYPE, DURATION, *KEY_COLUMNS)
_OPTIONAL = (STATE_COLUMN, CORE_COLUMN, *COUNTERS)
PROFILE_AT_LEVEL1 = (
    "profile again with profiler_level Level1 (or Level2) and aic_metrics PipeUtilization, "
    "or msprof with its default --task-time=l1"
)


@dataclass(frozen=True)
class KernelFile:
    """A profiler CSV whose header was understood: where each wanted column is, and where the rows begin."""

    path: Path
    width: int
    places: Mapping[str, int]
    rows_offset: int
    size: int


@dataclass(frozen=True)
class Chunk:
    """Some consecutive rows: a frame of the wanted columns, text but for the counters; absent columns are null.

    ``malformed`` lines had another number of cells than the header, or NUL bytes, and are not in the frame;
    ``truncated`` is 1 when the file ends in the middle of a line.
    """

    frame: pl.DataFrame
    malformed: int
    truncated: int
    bytes_read: int


def open_kernel_file(path: Path) -> KernelFile:
    """Read and judge the header of a profiler CSV.

    Raises:
        ModelingError: the file cannot feed a database; the sentence says why and what to do.
    """
    try:
        with path.open("rb") as stream:
            start = stream.readline(1 << 20)
            check_start(path, start + stream.read(4096))
            size = path.stat().st_size
    except OSError as error:
        raise read_failure(path, error) from None
    _require_utf8(path, start)
    header = next(csv.reader([start.decode("utf-8-sig")]))
    names = [_OP_SUMMARY_NAMES.get(name.strip(), name.strip()) for name in header]
    places = {name: names.index(name) for name in (*_REQUIRED, *_OPTIONAL) if name in names}
    _require_columns(path, names)
    twice = [name for name in places if names.count(name) > 1]
    if twice:
        raise ModelingError(f"{path} has the column {', '.join(map(repr, twice))} more than once: keep the right one.")
    return KernelFile(path, len(names), places, len(start), size)


def _require_utf8(path: Path, text: bytes) -> None:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelingError(f'{path} is not UTF-8 text: save it again as "CSV UTF-8".') from None


def _require_columns(path: Path, names: list[str]) -> None:
    missing = [name for name in _REQUIRED if name not in names]
    if not missing:
        return
    if TYPE in names and DURATION in names and not any("shape" in name.lower() for name in names):
        raise ModelingError(f"{path} has no shapes (it was profiled at Level0): {PROFILE_AT_LEVEL1}.")
    unknown = [name for name in names if name not in (*_REQUIRED, *_OPTIONAL)]
    hints = [f"{name!r}{misspelling_hint(name, unknown)}" for name in missing]
    raise ModelingError(f"{path} is not a profile of kernels with shapes: it has no column {', '.join(hints)}.")


def read_chunks(file: KernelFile, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """The rows of a file in its order, ``chunk_bytes`` at a time, so that memory does not grow with the file.

    Raises:
        ModelingError: the file cannot be read or is not UTF-8.
    """
    try:
        with file.path.open("rb") as stream:
            stream.seek(file.rows_offset)
            yield from _chunks(file, stream, chunk_bytes)
    except OSError as error:
        raise read_failure(file.path, error) from None


def _chunks(file: KernelFile, stream: BinaryIO, chunk_bytes: int) -> Iterator[Chunk]:
    rest = b""
    while block := stream.read(chunk_bytes):
        block = rest + block
        end = block.rfind(b"\n") + 1
        rest = block[end:]
        if end:
            yield _chunk(file, block[:end], is_last=False)
    if rest:
        yield _chunk(file, rest, is_last=True)


def _chunk(file: KernelFile, lines: bytes, *, is_last: bool) -> Chunk:
    if not lines.isascii():
        _require_utf8(file.path, lines)
    # A file system fills what was not yet written when a machine went down with NUL bytes.
    frame = None if b"\x00" in lines else _frame(file, lines)
    if frame is not None:
        return Chunk(frame, 0, 0, len(lines))
    good, malformed = _well_formed(file, lines)
    cleaned = _frame(file, good, checked=True)
    assert cleaned is not None
    truncated = int(is_last and malformed > 0)
    return Chunk(cleaned, malformed - truncated, truncated, len(lines))


def _frame(file: KernelFile, lines: bytes, *, checked: bool = False) -> pl.DataFrame | None:
    """The lines as a frame, or None when some line does not have the header's number of cells.

    One more column than the header is read: a cell in it betrays a line that is too long, a missing last cell one that
    is too short. ``checked`` lines are known to be whole.
    """
    import polars as pl

    header = ",".join(map(str, range(file.width + 1))).encode() + b"\n"
    last, beyond = str(file.width - 1), str(file.width)
    counters = {
        str(place): pl.Float64 for name, place in file.places.items() if name in COUNTERS and str(place) != last
    }
    try:
        frame = pl.read_csv(
            io.BytesIO(header + lines),
            columns=[str(place) for place in sorted({*file.places.values(), file.width - 1, file.width})],
            schema_overrides=counters,
            infer_schema=False,
            ignore_errors=True,
            truncate_ragged_lines=True,
        )
    except pl.exceptions.ComputeError:
        if checked:
            raise
        return None
    if not checked:
        is_short_or_long = frame[beyond].null_count() < frame.height or frame[last].null_count() > 0
        if is_short_or_long or lines.count(b"\n") + (not lines.endswith(b"\n")) != frame.height:
            return None
    return frame.select(_column(file, name).alias(name) for name in (*_REQUIRED, *_OPTIONAL))


def _column(file: KernelFile, name: str) -> pl.Expr:
    import polars as pl

    dtype = pl.Float64 if name in COUNTERS else pl.String
    if name not in file.places:
        return pl.lit(None, dtype=dtype)
    cells = pl.col(str(file.places[name])).cast(dtype, strict=False)
    # A counter that is no quantity is absent: it must not enter a mean.
    return pl.when(cells.is_finite() & (cells >= 0.0)).then(cells) if name in COUNTERS else cells


def _well_formed(file: KernelFile, lines: bytes) -> tuple[bytes, int]:
    """Only the lines with exactly the header's number of cells and no NUL bytes, and how many others there were."""
    good: list[bytes] = []
    malformed = 0
    for line in lines.split(b"\n"):
        if not line.strip():
            continue
        if b"\x00" in line:
            malformed += 1
            continue
        try:
            cells = next(csv.reader([line.decode("utf-8")], strict=True))
        except csv.Error:
            malformed += 1
            continue
        if len(cells) == file.width or (len(cells) == file.width + 1 and not cells[-1].strip()):
            good.append(line + b"\n")
        else:
            malformed += 1
    return b"".join(good), malformed
