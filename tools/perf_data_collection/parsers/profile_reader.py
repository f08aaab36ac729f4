"""Reading all files of a profile into measured rows."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.merge import ProfiledRow
from tensor_cast.performance_model.profiling_database.schema import FUSED_ATTENTION
from tensor_cast.performance_model.profiling_database.shapes import RowKey
from tools.perf_data_collection.parsers.aggregation import INVALID_DURATIONS, NEEDS_LEVEL1, Aggregation
from tools.perf_data_collection.parsers.attention_runtime import runtime_of
from tools.perf_data_collection.parsers.kernel_file import (
    CHUNK_BYTES,
    PROFILE_AT_LEVEL1,
    KernelFile,
    open_kernel_file,
    read_chunks,
)

_LONG_INPUT_BYTES = 64 << 20


@dataclass
class ParsedProfile:
    """What the files of a profile gave: rows by kernel type, and everything that did not become a row."""

    aggregation: Aggregation
    rows: dict[str, list[ProfiledRow]] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    malformed: int = 0
    truncated: int = 0


class Advance(Protocol):
    """Called with the number of bytes that were just read."""

    def __call__(self, count: int, /) -> None: ...


def read_profile(paths: Sequence[Path], *, chunk_bytes: int = CHUNK_BYTES) -> ParsedProfile:
    """Measured rows of all files together; a file that cannot feed a database is reported, the others still count.

    Raises:
        ModelingError: no file gives a single row; the message holds each file's reason.
    """
    parsed = ParsedProfile(Aggregation())
    runtime: dict[RowKey, dict[str, str]] = {}
    opened: list[KernelFile] = []
    for path in paths:
        try:
            opened.append(open_kernel_file(path))
        except ModelingError as error:
            parsed.unusable.append(str(error))
    with _progress(sum(file.size for file in opened)) as advance:
        for file in opened:
            for key, cells in _read_file(file, parsed, advance, chunk_bytes).items():
                runtime.setdefault(key, cells)
    if not parsed.aggregation.rows_used:
        raise ModelingError(_nothing_usable(parsed))
    parsed.rows = parsed.aggregation.measured_rows()
    if FUSED_ATTENTION in parsed.rows:
        parsed.rows[FUSED_ATTENTION] = [
            replace(row, runtime=runtime.get(row.key, {})) for row in parsed.rows[FUSED_ATTENTION]
        ]
    return parsed


def _read_file(
    file: KernelFile, parsed: ParsedProfile, advance: Advance, chunk_bytes: int
) -> dict[RowKey, dict[str, str]]:
    used_before = parsed.aggregation.rows_used
    skipped_before = parsed.aggregation.skipped.copy()
    malformed_before = parsed.malformed + parsed.truncated
    attention: list[tuple[str, ...]] = []
    try:
        for chunk in read_chunks(file, chunk_bytes):
            attention += parsed.aggregation.add(chunk.frame).iter_rows()
            parsed.malformed += chunk.malformed
            parsed.truncated += chunk.truncated
            advance(chunk.bytes_read)
    except ModelingError as error:
        raise ModelingError(
            f"{error} Nothing was changed; leave the file out or repair it.", exit_status=error.exit_status
        ) from None
    if parsed.aggregation.rows_used > used_before:
        parsed.files.append(file.path)
    else:
        malformed = parsed.malformed + parsed.truncated - malformed_before
        parsed.unusable.append(_without_rows(file, parsed.aggregation.skipped - skipped_before, malformed))
    runtime, warning = runtime_of(attention, file.path)
    if warning:
        parsed.warnings.append(warning)
    return runtime


def _without_rows(file: KernelFile, skipped: Counter[str], malformed: int) -> str:
    """Why a file that could be read gave no row, and what to do."""
    reasons = [f"{count} {reason}" for reason, count in skipped.most_common()]
    if malformed:
        reasons.append(f"{malformed} damaged lines")
    if not reasons:
        return f"{file.path} has a header and no rows."
    if malformed or any(skipped[reason] for reason in INVALID_DURATIONS):
        advice = "parse the file as the profiler wrote it"
    elif any(skipped[reason] for reason in NEEDS_LEVEL1):
        advice = f"to have kernels with shapes, {PROFILE_AT_LEVEL1}"
    else:
        advice = "profile steps of a model; comm_bench measures collectives"
    return f"{file.path} gives no row ({', '.join(reasons)}): {advice}."


def _nothing_usable(parsed: ParsedProfile) -> str:
    shown = parsed.unusable[:5]
    more = [f"And {len(parsed.unusable) - len(shown)} more files."] if len(parsed.unusable) > len(shown) else []
    return " ".join([*shown, *more])


@contextmanager
def _progress(total: int) -> Iterator[Advance]:
    """A bar on stderr for long input on a terminal, else nothing."""
    if total < _LONG_INPUT_BYTES or not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("Parsing"), BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=Console(stderr=True)
    )
    with bar:
        task = bar.add_task("parse", total=total)
        yield lambda count: bar.advance(task, count)
