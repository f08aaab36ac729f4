"""The loop over an operator's rows."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tensor_cast.errors import ModelingError
from tools.perf_data_collection.op_replay.arguments import EXIT_OUT_OF_MEMORY
from tools.perf_data_collection.op_replay.backends import Backend
from tools.perf_data_collection.op_replay.errors import RowError, RowSkippedError
from tools.perf_data_collection.op_replay.journal import Journal, RowRecord, State
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.layouts import TORCH_DTYPES, logical_shape, size_bytes
from tools.perf_data_collection.op_replay.op_summary import OpSummaryWriter
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.progress import Progress
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.signature import signature
from tools.perf_data_collection.op_replay.team import Team

EXIT_TIMEOUT = 75
"""A process of a team that gave up a row; whoever started the team starts it again without the row."""
_HOST_CORE = {"cpu": "CPU", "cuda": "CUDA"}
_ROOM = 2
"""A host needs about as much again for intermediate results as for a row's operands. Assumed."""


class MemoryExhaustedError(ModelingError):
    """The device's memory is exhausted; what follows would fail as well."""


@dataclass(frozen=True)
class ReplayOptions:
    """How each row is run; ``warmup`` None takes the backend's default, ``settings`` are a script's own flags."""

    repeat: int
    warmup: int | None = None
    timeout_s: float = 300.0
    fail_fast: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


def replay_rows(
    kernel: Kernel,
    rows: Sequence[ReplayRow],
    backend: Backend,
    options: ReplayOptions,
    journal: Journal,
    writer: OpSummaryWriter | None,
    progress: Progress,
    team: Team | None = None,
) -> list[RowRecord]:
    """Run rows one after another and record each; returns what became of them.

    A row that fails or is skipped is recorded with its reason and the next one runs, unless ``fail_fast``.

    Raises:
        RowError: a row failed and ``fail_fast`` is set.
        MemoryExhaustedError: the device's memory is exhausted.
    """
    team = team or Team()
    maker = OperandMaker(backend, options.settings)
    records = []
    for row in rows:
        if team.is_first:
            progress.begin(row)
            journal.append(_record(row, "started"))
        watchdog = threading.Timer(options.timeout_s, _give_up, (row, options.timeout_s, journal, team, progress))
        watchdog.daemon = True
        watchdog.start()
        try:
            record = _replay(kernel, row, maker, options, writer, team)
        finally:
            watchdog.cancel()
        if team.is_first:
            journal.append(record)
            if record.state != "done":
                progress.note(f"{record.state}: {row.path.name} line {row.line}: {record.reason}")
        progress.end()
        records.append(record)
        if record.state == "failed" and options.fail_fast:
            raise RowError(f"{row.path.name} line {row.line} failed: {record.reason}", exit_status=1)
    return records


def _replay(
    kernel: Kernel,
    row: ReplayRow,
    maker: OperandMaker,
    options: ReplayOptions,
    writer: OpSummaryWriter | None,
    team: Team,
) -> RowRecord:
    backend = maker.backend
    is_npu = backend.name == "npu"
    warmup = backend.default_warmup if options.warmup is None else options.warmup
    results: list[Any] = [None]
    failure: Exception | None = None
    try:
        _check_room(row, backend)
        operands = kernel.operands(row, maker)
        run = kernel.launch if is_npu else kernel.host

        def call() -> None:
            results[0] = run(*operands)
    except Exception as error:  # whatever a row's data causes must not end the run
        failure = error
    if team.agrees(failure is None):
        try:
            with torch.inference_mode():
                times = backend.measure(call, warmup, options.repeat)
            if not is_npu:
                _check_output(row, results[0])
        except Exception as error:  # the same
            failure = error
        team.agrees(failure is None)
    elif failure is None:
        failure = RowError("Another process of the team failed.")
    if failure is not None:
        return _unmeasured(row, failure, is_npu=is_npu)
    if writer is not None and not is_npu:
        writer.add(row, _HOST_CORE[backend.name], times)
    launches = (warmup if is_npu else 0) + options.repeat
    return _record(row, "done", launches=launches)


def _unmeasured(row: ReplayRow, failure: Exception, *, is_npu: bool) -> RowRecord:
    """The record of a row that could not be measured.

    Raises:
        MemoryExhaustedError: nothing after this row could be measured either.
    """
    reason = _reason(failure)
    if isinstance(failure, RowSkippedError) or (not is_npu and "DefaultCPUAllocator" in reason):
        return _record(row, "skipped", reason)
    if isinstance(failure, MemoryError) or type(failure).__name__.endswith("OutOfMemoryError"):
        raise MemoryExhaustedError(
            f"Memory ran out at {row.path.name} line {row.line} ({row.shape_text}): {reason}",
            exit_status=EXIT_OUT_OF_MEMORY,
        ) from failure
    return _record(row, "failed", reason)


def _record(row: ReplayRow, state: State, reason: str = "", launches: int = 0) -> RowRecord:
    return RowRecord(
        operator=row.kernel_type,
        identity=row.identity,
        line=row.line,
        shapes=row.shape_text,
        state=state,
        reason=reason,
        launches=launches,
        process=str(os.getpid()),
        signature=signature(row.kernel_type, row.cells),
    )


def _reason(failure: Exception) -> str:
    text = str(failure).strip()
    if isinstance(failure, ModelingError):
        return text
    first = text.splitlines()[0] if text else "no message"
    return f"{type(failure).__name__}: {first}"


def _check_room(row: ReplayRow, backend: Backend) -> None:
    operands = [tensor for tensor in (*row.inputs, *row.outputs) if tensor is not None and tensor.dtype in TORCH_DTYPES]
    needed = sum(size_bytes(tensor) for tensor in operands) * (1 if backend.name == "npu" else _ROOM)
    free = backend.free_bytes()
    if needed > free:
        raise RowSkippedError(f"It needs about {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free.")


def _check_output(row: ReplayRow, result: Any) -> None:
    """Hold the first result against the row: a time of another operation must not enter a database.

    Raises:
        RowError: its shape is not the row's.
    """
    expected = row.outputs[0] if row.outputs else None
    first = result[0] if isinstance(result, tuple | list) else result
    if expected is None or not isinstance(first, torch.Tensor):
        return
    if tuple(first.shape) != logical_shape(expected):
        raise RowError(
            f"The operation gives {','.join(map(str, first.shape)) or '()'} where the row's output is "
            f"{','.join(map(str, expected.shape)) or '()'}: its shapes do not belong together."
        )


def _give_up(row: ReplayRow, limit_s: float, journal: Journal, team: Team, progress: Progress) -> None:
    """Record the row that hangs and start this process anew, which then goes on behind it.

    A kernel that does not return cannot be stopped from within; replacing the process image drops it. The process
    keeps its number, so whoever waits for it notices nothing.
    """
    journal.append(_record(row, "failed", f"It took longer than {limit_s:g} s."))
    print(f"\nfailed: {row.path.name} line {row.line}: it took longer than {limit_s:g} s.", file=sys.stderr, flush=True)
    sys.stdout.flush()
    if team.size > 1:
        os._exit(EXIT_TIMEOUT)
    command = [sys.executable, *sys.orig_argv[1:]]
    progress.end()
    if "--progress" in command:
        command[command.index("--progress") + 1] = progress.text()
    if "--journal" not in command:
        command += ["--journal", str(journal.path)]
    os.execv(sys.executable, command)
