"""Replay every operator of a database that has a ``<Kernel>_run.py`` beside this script."""

from __future__ import annotations

import argparse
import importlib.util
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from tensor_cast.command_line import CommandParser, given_path
from tensor_cast.errors import ModelingError
from tools.perf_data_collection.command import exit_status
from tools.perf_data_collection.op_replay import catalog
from tools.perf_data_collection.op_replay.arguments import (
    EP_SIZE_FLAG,
    EXIT_OUT_OF_MEMORY,
    SCRIPT_EP_SIZE_FLAG,
    add_internal_arguments,
    add_rank_arguments,
    add_replay_arguments,
    rank_flags,
    replay_directory,
    shared_flags,
)
from tools.perf_data_collection.op_replay.exclusive import at_work
from tools.perf_data_collection.op_replay.journal import Journal, JournalContent, OperatorRecord, RowRecord
from tools.perf_data_collection.op_replay.progress import Progress
from tools.perf_data_collection.op_replay.signature import DISPATCH_FFN_COMBINE

STATUS_PATH = Path(__file__).with_name("run_all_op_status.json")
_EXAMPLES = """examples:
  python tools/perf_data_collection/op_replay/run_all_op.py --backend cpu --database-path ./my_database \\
      --ops MatMulV2 RmsNorm --continue-on-error

What became of each operator is written to run_all_op_status.json beside this script. Times are written back into the
database by start_microbench.py, which runs this script.
"""


def build_parser() -> CommandParser:
    """The command's flags."""
    parser = CommandParser(
        prog="run_all_op.py",
        description=__doc__,
        epilog=_EXAMPLES,
    )
    add_replay_arguments(parser, repeat_count=30)
    parser.add_argument("--ops", nargs="+", metavar="OP", help="operators to replay (default: all of the database)")
    parser.add_argument(
        "--execution-mode",
        choices=("subprocess", "inprocess"),
        default="subprocess",
        help="a process of its own for every operator, or all in this one (default: %(default)s)",
    )
    parser.add_argument(
        "--continue-on-error", action="store_true", help="go on with the next operator when one fails (default: stop)"
    )
    parser.add_argument(
        "--status-path",
        type=given_path,
        metavar="FILE",
        help="status file (default: beside this script)",
    )
    add_rank_arguments(parser, EP_SIZE_FLAG)
    add_internal_arguments(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Replay operators as the arguments say; returns the exit status."""
    return exit_status(lambda: _run_with_journal(build_parser().parse_args(argv)))


def _run_with_journal(arguments: argparse.Namespace) -> int:
    if arguments.journal is not None:
        with at_work(arguments.journal.parent):
            return _run(arguments)
    with tempfile.TemporaryDirectory(prefix="replay_") as scratch:
        arguments.journal = Path(scratch) / "journal.jsonl"
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    from tools.perf_data_collection.op_replay.rows import operator_files

    directory = replay_directory(arguments)
    known = catalog.operators()
    chosen = catalog.selected_operators(arguments.ops, known) if arguments.ops else known
    journal = Journal(arguments.journal)
    present = [operator for operator in chosen if operator_files(directory, operator)]
    if present and not arguments.dry_run and importlib.util.find_spec("torch") is None:
        raise catalog.no_torch()
    for operator in chosen:
        if operator not in present:
            journal.append(OperatorRecord(operator, "skipped", f"{operator}.csv is nowhere below {directory}."))
    counts = _rows_to_run(directory, present, arguments.update_mode, journal)
    if arguments.dry_run:
        for operator, count in counts.items():
            print(f"{operator}: {count or 0} rows to measure.")
        return 0
    progress = Progress(
        operators=len(present), rows_total=sum(count or 0 for count in counts.values()), started=time.time()
    )
    try:
        for number, operator in enumerate(present, start=1):
            progress.operator_number = number
            before = progress.rows_done
            if counts[operator] == 0:
                journal.append(OperatorRecord(operator, "success"))
            else:
                _run_operator(operator, directory, arguments, journal, progress)
            progress.rows_done = before + (counts[operator] or 0)
            record = journal.read().operators.get(operator)
            if record is not None and record.state == "failed" and not arguments.continue_on_error:
                raise ModelingError(f"{operator} failed: {record.reason}", exit_status=1)
    except KeyboardInterrupt:
        write_status(arguments.status_path or STATUS_PATH, chosen, journal.read())
        raise
    content = journal.read()
    write_status(arguments.status_path or STATUS_PATH, chosen, content)
    _print_unmeasured(content)
    return 0


def _rows_to_run(
    directory: Path, operators: Sequence[str], update_mode: str, journal: Journal
) -> dict[str, int | None]:
    """Rows of each operator; ``None`` where the file cannot be read, which running the operator will report."""
    from tools.perf_data_collection.op_replay.rows import pending_rows

    settled = journal.read().settled()
    counts: dict[str, int | None] = {}
    for operator in operators:
        try:
            counts[operator] = len(pending_rows(directory, operator, update_mode, settled))
        except ModelingError:
            counts[operator] = None
    return counts


def _run_operator(
    operator: str, directory: Path, arguments: argparse.Namespace, journal: Journal, progress: Progress
) -> None:
    if arguments.execution_mode == "subprocess":
        _run_in_subprocess(operator, directory, arguments, journal, progress)
        return
    from tools.perf_data_collection.op_replay.script import run_operator

    run_operator(catalog.load(operator), directory, arguments, journal, progress)


def _run_in_subprocess(
    operator: str, directory: Path, arguments: argparse.Namespace, journal: Journal, progress: Progress
) -> None:
    """Run an operator's script; a row at which the process dies is recorded as failed and the rest is tried again.

    Raises:
        ModelingError: the device's memory is exhausted, or the script refused its arguments.
    """
    command = [sys.executable, str(catalog.DIRECTORY / catalog.script_name(operator))]
    command += [*shared_flags(arguments, directory), "--journal", str(journal.path), "--progress", progress.text()]
    if arguments.profile_output is not None:
        command += ["--profile-output", str(arguments.profile_output)]
    if operator == DISPATCH_FFN_COMBINE:
        command += rank_flags(arguments, SCRIPT_EP_SIZE_FLAG)
    while True:
        status = subprocess.run(command, check=False).returncode
        content = journal.read()
        if status == 130:
            raise KeyboardInterrupt
        if status == EXIT_OUT_OF_MEMORY:
            raise ModelingError(f"{operator}: {content.operators[operator].reason}", exit_status=1)
        if operator in content.operators:
            return
        cause = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        row = content.unfinished(operator)
        if row is None:
            journal.append(OperatorRecord(operator, "failed", f"{catalog.script_name(operator)} ended with {cause}."))
            return
        journal.append(
            RowRecord(
                operator=operator,
                identity=row.identity,
                line=row.line,
                shapes=row.shapes,
                state="failed",
                reason=f"The process ended with {cause} while it ran.",
                process=row.process,
                signature=row.signature,
            )
        )
        if arguments.fail_fast:
            journal.append(OperatorRecord(operator, "failed", f"Line {row.line} ended the process with {cause}."))
            return


def write_status(path: Path, chosen: Sequence[str], content: JournalContent) -> None:
    """Write the status file: scripts that succeeded, failed with their reason, and had no file."""
    records = [content.operators[operator] for operator in chosen if operator in content.operators]
    status = {
        "success": [catalog.script_name(record.operator) for record in records if record.state == "success"],
        "failed": [
            {"op": catalog.script_name(record.operator), "reason": record.reason}
            for record in records
            if record.state == "failed"
        ],
        "skipped": [catalog.script_name(record.operator) for record in records if record.state == "skipped"],
    }
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_text(json.dumps(status, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ModelingError(
            f"Cannot write {path}: {error.strerror}; give another place with --status-path.", exit_status=1
        ) from None


def _print_unmeasured(content: JournalContent) -> None:
    unmeasured = [*content.of_state("failed"), *content.of_state("skipped")]
    if unmeasured:
        print("Rows that were not measured (their data are kept):")
    for row in unmeasured:
        print(f"  {row.state:<7}  {row.operator} line {row.line}  {row.shapes}: {row.reason}")


if __name__ == "__main__":
    sys.exit(main())
