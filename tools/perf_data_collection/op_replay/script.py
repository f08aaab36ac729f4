"""The command line of a ``<Kernel>_run.py``, and running one operator."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tensor_cast.command_line import CommandParser, whole_number
from tensor_cast.errors import ModelingError
from tools.perf_data_collection.command import exit_status
from tools.perf_data_collection.op_replay import npu
from tools.perf_data_collection.op_replay.arguments import (
    SCRIPT_EP_SIZE_FLAG,
    add_internal_arguments,
    add_rank_arguments,
    add_replay_arguments,
    check_ranks,
    rank_flags,
    replay_directory,
    shared_flags,
)
from tools.perf_data_collection.op_replay.backends import BACKENDS
from tools.perf_data_collection.op_replay.catalog import DIRECTORY, script_name
from tools.perf_data_collection.op_replay.journal import Journal, OperatorRecord, RowRecord
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.op_summary import OpSummaryWriter
from tools.perf_data_collection.op_replay.progress import Progress
from tools.perf_data_collection.op_replay.replay import (
    MemoryExhaustedError,
    ReplayOptions,
    replay_rows,
)
from tools.perf_data_collection.op_replay.rows import EP_SIZE, ReplayRow, pending_rows
from tools.perf_data_collection.op_replay.signature import signature
from tools.perf_data_collection.op_replay.team import is_member, joined, run_team

_DEFAULT_REPEAT = 30
_DEFAULT_TEAM_REPEAT = 20


def build_parser(kernel_name: str, *, is_collective: bool = False) -> CommandParser:
    """The flags of an operator's script."""
    parser = CommandParser(
        prog=script_name(kernel_name),
        description=f"Run the rows of {kernel_name}.csv again. Nothing is written back: start_microbench.py does that.",
    )
    add_replay_arguments(parser, repeat_count=_DEFAULT_TEAM_REPEAT if is_collective else _DEFAULT_REPEAT)
    add_internal_arguments(parser)
    if is_collective:
        add_rank_arguments(parser, SCRIPT_EP_SIZE_FLAG)
        parser.add_argument(
            "--balanced",
            action=argparse.BooleanOptionalAction,
            default=True,
            help="send every expert equally many tokens, or as chance has it (default: balanced)",
        )
        parser.add_argument(
            "--max-output-size",
            type=whole_number(1),
            default=65536,
            metavar="N",
            help="tokens a rank may receive (default: 65536)",
        )
    return parser


def main(kernel: Kernel, argv: Sequence[str] | None = None) -> int:
    """Replay one operator as the arguments say; returns the exit status."""
    parser = build_parser(kernel.name, is_collective=kernel.collective)
    return exit_status(lambda: _run_with_journal(kernel, parser.parse_args(argv)))


def _run_with_journal(kernel: Kernel, arguments: argparse.Namespace) -> int:
    if arguments.journal is not None:
        return _run(kernel, arguments)
    with tempfile.TemporaryDirectory(prefix="replay_") as directory:
        scratch = Path(directory)
        arguments.journal = scratch / "journal.jsonl"
        arguments.profile_output = arguments.profile_output or scratch
        status = _run(kernel, arguments)
        _print_times(scratch, arguments.backend)
        return status


def _run(kernel: Kernel, arguments: argparse.Namespace) -> int:
    directory = replay_directory(arguments)
    journal = Journal(arguments.journal)
    progress = Progress.parse(arguments.progress) if arguments.progress else None
    if kernel.collective and is_member():
        return _run_member(kernel, directory, arguments, journal)
    if arguments.dry_run:
        rows = pending_rows(directory, kernel.name, arguments.update_mode)
        print(f"{kernel.name}: {len(rows)} rows to measure.")
        return 0
    record = run_operator(kernel, directory, arguments, journal, progress)
    if record.state != "success":
        print(f"{record.state}: {record.reason}", file=sys.stderr)
    return {"success": 0, "failed": 1, "skipped": 0}[record.state]


def run_operator(
    kernel: Kernel,
    directory: Path,
    arguments: argparse.Namespace,
    journal: Journal,
    progress: Progress | None = None,
) -> OperatorRecord:
    """Replay the pending rows of an operator and record how that ended.

    Raises:
        MemoryExhaustedError: nothing more can be run on this device.
    """
    try:
        reason = _replay_pending(kernel, directory, arguments, journal, progress)
        rows = [row for row in journal.read().rows.values() if row.operator == kernel.name]
        record = _judged(kernel.name, rows, reason)
    except FileNotFoundError as error:
        record = OperatorRecord(kernel.name, "skipped", str(error))
    except MemoryExhaustedError as error:
        journal.append(OperatorRecord(kernel.name, "failed", str(error)))
        raise
    except ModelingError as error:
        record = OperatorRecord(kernel.name, "failed", str(error))
    journal.append(record)
    return record


def _replay_pending(
    kernel: Kernel, directory: Path, arguments: argparse.Namespace, journal: Journal, progress: Progress | None
) -> str:
    rows = pending_rows(directory, kernel.name, arguments.update_mode, journal.read().settled())
    if not rows:
        return ""
    progress = progress or Progress(rows_total=len(rows))
    if kernel.collective:
        rows = _rows_of_size(rows, arguments.ep_size, journal, progress)
        check_ranks(arguments)
        if rows:
            return _run_as_team(kernel, directory, arguments, journal)
    backend = BACKENDS[arguments.backend]()
    if backend.name == "npu":
        npu.prepare(kernel.needs)
    writer = OpSummaryWriter(arguments.profile_output) if arguments.profile_output else None
    try:
        replay_rows(kernel, rows, backend, _options(arguments), journal, writer, progress)
    finally:
        if writer is not None:
            writer.close()
    return ""


def _judged(operator: str, rows: Sequence[RowRecord], reason: str) -> OperatorRecord:
    """An operator fails when a row failed and none was measured."""
    failed = [row for row in rows if row.state == "failed"]
    if reason or (failed and not any(row.state == "done" for row in rows)):
        return OperatorRecord(operator, "failed", reason or f"No row could be measured: {failed[0].reason}")
    return OperatorRecord(operator, "success")


def _options(arguments: argparse.Namespace) -> ReplayOptions:
    return ReplayOptions(
        repeat=arguments.repeat_count,
        warmup=arguments.warmup,
        timeout_s=arguments.timeout_s,
        fail_fast=arguments.fail_fast,
        settings={
            "balanced": getattr(arguments, "balanced", True),
            "max_output_size": getattr(arguments, "max_output_size", 65536),
        },
    )


def _rows_of_size(rows: list[ReplayRow], ep_size: int, journal: Journal, progress: Progress) -> list[ReplayRow]:
    """Rows that belong to the EP size; the others are recorded as skipped."""
    fitting = []
    for row in rows:
        wanted = row.cells.get(EP_SIZE, "").strip()
        if wanted in ("", str(ep_size)):
            fitting.append(row)
            continue
        reason = f"It belongs to EP size {wanted}: run with --dispatch-ffn-combine-ep-size {wanted}."
        journal.append(
            RowRecord(
                operator=row.kernel_type,
                identity=row.identity,
                line=row.line,
                shapes=row.shape_text,
                state="skipped",
                reason=reason,
                signature=signature(row.kernel_type, row.cells),
            )
        )
        progress.end()
    return fitting


def _run_as_team(kernel: Kernel, directory: Path, arguments: argparse.Namespace, journal: Journal) -> str:
    """Run the team until no row is left; returns the reason when it ended without saying why."""
    script = [str(DIRECTORY / script_name(kernel.name)), *shared_flags(arguments, directory)]
    script += [*rank_flags(arguments, SCRIPT_EP_SIZE_FLAG), "--journal", str(journal.path)]
    script += ["--balanced" if getattr(arguments, "balanced", True) else "--no-balanced"]
    script += ["--max-output-size", str(getattr(arguments, "max_output_size", 65536))]
    if arguments.profile_output:
        script += ["--profile-output", str(arguments.profile_output)]
    while True:
        settled = len(journal.read().settled())
        status = run_team(arguments, script)
        content = journal.read()
        if status == 0:
            return ""
        if arguments.fail_fast or len(content.settled()) == settled:
            return f"The {arguments.ep_size} processes ended with status {status}."
        if not pending_rows(directory, kernel.name, arguments.update_mode, content.settled()):
            return ""


def _run_member(kernel: Kernel, directory: Path, arguments: argparse.Namespace, journal: Journal) -> int:
    with joined(arguments.backend) as team:
        backend = BACKENDS[arguments.backend]()
        if backend.name == "npu":
            npu.prepare(kernel.needs)
        rows = pending_rows(directory, kernel.name, arguments.update_mode, journal.read().settled())
        team.agrees(True)
        writer = OpSummaryWriter(arguments.profile_output, team.rank) if arguments.profile_output else None
        try:
            progress = Progress(rows_total=len(rows))
            replay_rows(kernel, rows, backend, _options(arguments), journal, writer, progress, team)
        finally:
            if writer is not None:
                writer.close()
    return 0


def _print_times(output: Path, backend: str) -> None:
    """The shortest time of each row, where this process measured it itself."""
    if backend == "npu":
        return
    from tools.perf_data_collection.op_replay.measurements import read_launches

    shortest: dict[tuple[str, ...], float] = {}
    for launches in read_launches(output):
        for launch in launches:
            key = (launch.cells["Input Shapes"], launch.cells["Input Data Types"], launch.cells["Output Shapes"])
            shortest[key] = min(launch.duration_us, shortest.get(key, launch.duration_us))
    for (inputs, dtypes, outputs), duration in shortest.items():
        print(f"{duration:14.3f} us  {inputs} {dtypes} -> {outputs}")
