"""From op_summary files to one measurement a kernel type and row."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from tensor_cast.performance_model.profiling_database.schema import (
    CORE_COLUMN,
    COUNTERS,
    KEY_COLUMNS,
    STATE_COLUMN,
    kernel_type_name,
)
from tensor_cast.performance_model.profiling_database.statistics import duration_us
from tools.perf_data_collection.op_replay.journal import RowRecord
from tools.perf_data_collection.op_replay.op_summary import OUTPUT_DIRECTORY
from tools.perf_data_collection.op_replay.rows import EP_SIZE
from tools.perf_data_collection.op_replay.signature import (
    COARSE,
    DISPATCH_FFN_COMBINE,
    MATMUL_FAMILY,
    Signature,
    has_no_shapes,
    signature,
)
from tools.perf_data_collection.parsers.kernel_file import DURATION, TYPE, open_kernel_file, read_chunks


@dataclass(frozen=True)
class Launch:
    """One line of an op_summary: base columns by name, counters that the profiler knew."""

    kernel_type: str
    cells: Mapping[str, str]
    duration_us: float
    counters: Mapping[str, float]


@dataclass(frozen=True)
class Measurement:
    """What all launches of a row gave: the shortest duration and the mean of each counter.

    ``identity`` names the row where the order of the run tells which it was, else rows are found by ``signature``.
    """

    kernel_type: str
    signature: Signature
    cells: Mapping[str, str]
    duration_us: float
    counters: Mapping[str, float]
    identity: str | None = None


@dataclass
class Measurements:
    """Measurements of a run and what could not be told apart."""

    rows: list[Measurement] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def summary_files(output: Path) -> list[Path]:
    """The op_summary files of every process, sorted."""
    return sorted(output.glob(f"PROF_*/{OUTPUT_DIRECTORY}/op_summary_*.csv"))


def read_launches(output: Path) -> list[list[Launch]]:
    """The launches of each file that has any, in the file's order, which is that of their start.

    Lines without kernel type or valid duration are left out.

    Raises:
        ModelingError: a file cannot be read or is no op_summary with shapes.
    """
    per_file = []
    for path in summary_files(output):
        launches: list[Launch] = []
        for chunk in read_chunks(open_kernel_file(path)):
            for line in chunk.frame.iter_rows(named=True):
                kernel_type = (line[TYPE] or "").strip()
                duration = duration_us((line[DURATION] or "").strip())
                if kernel_type in ("", "N/A") or duration is None:
                    continue
                cells = {name: line[name] or "" for name in (STATE_COLUMN, CORE_COLUMN, *KEY_COLUMNS)}
                counters = {name: float(line[name]) for name in COUNTERS if line[name] is not None}
                launches.append(Launch(kernel_type_name(kernel_type), cells, duration, counters))
        if launches:
            per_file.append(launches)
    return per_file


def measure(
    per_file: Sequence[Sequence[Launch]], records: Iterable[RowRecord], ep_size: int | None = None
) -> Measurements:
    """Group launches by kernel type and signature.

    Where that cannot tell rows apart, the order of the run does: a process launched the rows one after another, each
    as often as its record says. So it is for attention of equal shapes and other lengths, for kernels whose operands
    the profiler does not know, and for rows that spell operands as no profile does (other slots, blanks left out,
    another dtype of a result). If the numbers do not agree, nothing is guessed: what can be told by its signature is,
    the rest is left out and a warning says so.
    """
    done = [record for record in records if record.state == "done"]
    ambiguous = _ambiguous(done)
    respelt = _respelt(done, {key for launches in per_file for key in _keys(launches, ep_size)})
    groups: dict[tuple[str, Signature, str | None], list[Launch]] = defaultdict(list)
    found = Measurements()
    for launches in per_file:
        ordered: dict[tuple[str, Signature | None], list[Launch]] = defaultdict(list)
        taken: set[int] = set()
        for record, part in _of_respelt_rows(launches, done, respelt):
            groups[record.operator, record.signature, record.identity].extend(part)
            taken.update(map(id, part))
        for launch, (kernel_type, key) in zip(launches, _keys(launches, ep_size), strict=True):
            if id(launch) in taken:
                continue
            if has_no_shapes(launch.cells):
                ordered[kernel_type, None].append(launch)
            elif (kernel_type, key) in ambiguous:
                ordered[kernel_type, key].append(launch)
            else:
                groups[kernel_type, key, None].append(launch)
        for (kernel_type, shared), anonymous in ordered.items():
            candidates = [
                record for record in done if record.operator == kernel_type and shared in (None, record.signature)
            ]
            assigned = _in_order(anonymous, candidates)
            if assigned is None and candidates:
                found.warnings.append(
                    f"{kernel_type}: {len(anonymous)} launches do not fit {len(candidates)} rows "
                    f"{'without operands in the profile' if shared is None else 'of equal operands'}; "
                    "they are left out."
                )
            for record, part in assigned or ():
                groups[kernel_type, record.signature, record.identity].extend(part)
    for (kernel_type, key, identity), members in groups.items():
        found.rows.append(_measurement(kernel_type, key, identity, members, ep_size))
    return found


def _keys(launches: Iterable[Launch], ep_size: int | None) -> list[tuple[str, Signature]]:
    return [(launch.kernel_type, signature(launch.kernel_type, _with_ep_size(launch, ep_size))) for launch in launches]


def _respelt(done: Iterable[RowRecord], launched: Set[tuple[str, Signature]]) -> dict[str, set[str]]:
    """Identities of rows that were run and of which no launch has the signature, by operator.

    Products are left out, as another kernel of their family may have run, and the fused experts, which run on
    several processes and are told by the size of their group too.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for record in done:
        is_told_otherwise = record.operator in (*MATMUL_FAMILY, DISPATCH_FFN_COMBINE)
        if not is_told_otherwise and (record.operator, record.signature) not in launched:
            found[record.operator].add(record.identity)
    return found


def _of_respelt_rows(
    launches: Iterable[Launch], done: Sequence[RowRecord], respelt: Mapping[str, Set[str]]
) -> Iterator[tuple[RowRecord, Sequence[Launch]]]:
    """Those rows with their launches, where all launches of one process fit its rows in number and in size."""
    by_type: dict[str, list[Launch]] = defaultdict(list)
    for launch in launches:
        if launch.kernel_type in respelt and not has_no_shapes(launch.cells):
            by_type[launch.kernel_type].append(launch)
    for kernel_type, own in by_type.items():
        parts = _in_order(own, [record for record in done if record.operator == kernel_type]) or []
        if all(
            _first_size(record.signature) == _first_size(signature(kernel_type, launch.cells))
            for record, part in parts
            for launch in part
        ):
            yield from ((record, part) for record, part in parts if record.identity in respelt[kernel_type])


def _first_size(key: Signature) -> int:
    """Elements of the first operand, which no spelling changes."""
    return math.prod(int(size) for size in key[0].split(";")[0].split(",") if size.isdecimal())


def _ambiguous(done: Iterable[RowRecord]) -> set[tuple[str, Signature]]:
    """Signatures that several rows of a run share although they are different work."""
    identities: dict[tuple[str, Signature], set[str]] = defaultdict(set)
    for record in done:
        if record.operator in COARSE:
            continue
        identities[record.operator, record.signature].add(record.identity)
    return {key for key, members in identities.items() if len(members) > 1}


def _in_order(
    launches: Sequence[Launch], candidates: Iterable[RowRecord]
) -> list[tuple[RowRecord, Sequence[Launch]]] | None:
    """Cut one process's launches into rows; ``None`` when no process of the run launched as many."""
    by_process: dict[str, list[RowRecord]] = defaultdict(list)
    for record in candidates:
        by_process[record.process].append(record)
    fitting = [rows for rows in by_process.values() if sum(row.launches for row in rows) == len(launches)]
    if len(fitting) != 1:
        return None
    parts = []
    start = 0
    for record in fitting[0]:
        parts.append((record, launches[start : start + record.launches]))
        start += record.launches
    return parts


def _with_ep_size(launch: Launch, ep_size: int | None) -> Mapping[str, str]:
    if launch.kernel_type != DISPATCH_FFN_COMBINE or ep_size is None:
        return launch.cells
    return {**launch.cells, EP_SIZE: str(ep_size)}


def _measurement(
    kernel_type: str, key: Signature, identity: str | None, launches: Sequence[Launch], ep_size: int | None
) -> Measurement:
    values: dict[str, list[float]] = defaultdict(list)
    for launch in launches:
        for name, value in launch.counters.items():
            values[name].append(value)
    return Measurement(
        kernel_type=kernel_type,
        signature=key,
        cells=_with_ep_size(launches[0], ep_size),
        duration_us=min(launch.duration_us for launch in launches),
        counters={name: sum(members) / len(members) for name, members in values.items()},
        identity=identity,
    )
