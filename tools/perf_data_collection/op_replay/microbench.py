"""The course of a replay: what to measure, running it, writing it back, reporting."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.atomic import database_lock, replace_files, write_failure
from tensor_cast.performance_model.profiling_database.schema import PROFILE_DURATION
from tensor_cast.performance_model.profiling_database.statistics import duration_us
from tensor_cast.performance_model.profiling_database.table import read_table, table_bytes
from tools.perf_data_collection.op_replay import catalog, npu
from tools.perf_data_collection.op_replay.arguments import (
    EP_SIZE_FLAG,
    check_ranks,
    journal_path,
    rank_flags,
    replay_directory,
    shared_flags,
)
from tools.perf_data_collection.op_replay.exclusive import alone
from tools.perf_data_collection.op_replay.journal import Journal, JournalContent
from tools.perf_data_collection.op_replay.measurements import Measurements, measure, read_launches, summary_files
from tools.perf_data_collection.op_replay.reports import Report, read_status, write_report
from tools.perf_data_collection.op_replay.rows import TEMPORARY_PREFIX, operator_files, pending_rows, read_rows
from tools.perf_data_collection.op_replay.signature import DISPATCH_FFN_COMBINE, MATMUL_FAMILY
from tools.perf_data_collection.op_replay.write_back import FileOutcome, measurements_for, merge_replay

RUN_ALL_OP = catalog.DIRECTORY / "run_all_op.py"
_NOT_IN_MSPROF_PATHS = "'\"\\%<>|&$;`"
"""Characters that msprof refuses in its output path (its command's documentation)."""
_GRACE_S = 60.0


@dataclass
class Run:
    """A replay under way, and everything that went wrong outside of rows.

    ``leftovers`` are profiles of a run that was killed before it could write them back.
    """

    arguments: argparse.Namespace
    directory: Path
    operators: tuple[str, ...]
    journal: Journal
    output: Path
    leftovers: Sequence[Path] = ()
    failures: list[tuple[str, str]] = field(default_factory=list)
    interrupted: bool = False
    failed: bool = False


def run(arguments: argparse.Namespace) -> int:
    """Measure, write back and report; returns the exit status.

    Raises:
        ModelingError: the request is wrong, something is missing on this machine, or nothing could be measured.
    """
    known = catalog.operators()
    named = catalog.selected_operators(arguments.ops, known) if arguments.ops else ()
    directory = replay_directory(arguments)
    operators = named or tuple(name for name in known if (directory / f"{name}.csv").is_file())
    files = {operator: operator_files(directory, operator) for operator in operators}
    if not any(files.values()):
        what = f"no {', '.join(f'{name}.csv' for name in named)}" if named else "no CSV file of an operator to replay"
        raise ModelingError(
            f"{directory} has {what}: fill the database with parse_kernel_details.py or generate_shape_grid.py first."
        )
    if arguments.update_mode == "missing-only" and _everything_is_measured(files):
        return 0
    if arguments.dry_run:
        return _dry_run(arguments, directory, operators)
    operators, excluded = _without_impossible_team(arguments, operators, is_full_run=not named)
    if DISPATCH_FFN_COMBINE in operators and files.get(DISPATCH_FFN_COMBINE):
        check_ranks(arguments)
    if operators and arguments.backend == "npu":
        npu.require_custom_opp(operators)
        npu.require_npu()
        npu.require_msprof()
    elif operators:
        _require_host(arguments.backend)
        _warn_of_other_device(files, arguments.backend)
    with alone(directory):
        return _measured(arguments, directory, operators, [*operators, *excluded])


def _measured(arguments: argparse.Namespace, directory: Path, operators: Sequence[str], reported: Sequence[str]) -> int:
    path = journal_path(directory)
    leftovers = sorted(directory.glob(f"{TEMPORARY_PREFIX}*")) if arguments.resume else []
    if not arguments.resume:
        path.unlink(missing_ok=True)
    journal = Journal(path)
    settled_before = journal.read().settled()
    arguments.status_path = _status_path(arguments.status_path, directory)
    output = _new_output(directory, for_msprof=arguments.backend == "npu")
    current = Run(arguments, directory, tuple(operators), journal, output, leftovers)
    if operators:
        _replay(current, settled_before)
    content = journal.read()
    launches = [launches for profiles in (*leftovers, output) for launches in read_launches(profiles)]
    if not launches and not _explained(current, content, settled_before):
        raise ModelingError(
            f"Nothing was measured{_first_reason(current)}. What the run left is in {output}.", exit_status=1
        )
    measured = measure(launches, content.rows.values(), arguments.ep_size)
    for sentence in measured.warnings:
        print(f"warning: {sentence}", file=sys.stderr)
    outcomes = _write_back(directory, reported, measured, arguments, current.failures)
    unmeasured = [*content.of_state("failed"), *content.of_state("skipped")]
    report = Report(
        outcomes,
        status=read_status(arguments.status_path),
        unmeasured=unmeasured,
        failures=current.failures,
        environment=_environment(arguments),
    )
    print(write_report(directory, report))
    return _finish(current, content, outcomes)


def _status_path(wanted: Path, directory: Path) -> Path:
    """Where the run tells what became of each operator: in the database when the tools lie where nobody may write."""
    for path in (wanted, directory / wanted.name):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            failure = write_failure(path, error)
            continue
        if os.access(path.parent, os.W_OK):
            return path
        failure = write_failure(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    raise failure


def _require_host(backend: str) -> None:
    """Refuse a GPU or CPU run for which torch, or the GPU, is missing.

    Raises:
        ModelingError: it is.
    """
    try:
        from tools.perf_data_collection.op_replay.backends import BACKENDS
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise catalog.no_torch() from None
    BACKENDS[backend]()


def _warn_of_other_device(files: dict[str, list[Path]], backend: str) -> None:
    """Say that a database that an NPU was profiled for will hold another device's times, which look-ups prefer."""
    profiled = 0
    for path in (path for paths in files.values() for path in paths):
        with contextlib.suppress(ModelingError):  # a damaged file is reported when it is run
            profiled += sum(duration_us(row.cells.get(PROFILE_DURATION, "")) is not None for row in read_rows(path))
    if profiled:
        print(
            f"warning: {profiled} rows have times of a profiled NPU, and look-ups will take those of this machine's "
            f"{backend.upper()} before them: to keep the two apart, replay a copy of the database.",
            file=sys.stderr,
        )


def _finish(current: Run, content: JournalContent, outcomes: Sequence[FileOutcome]) -> int:
    """Keep the journal and the profiles of a run that did not end well, remove those of one that did."""
    is_whole = not (current.interrupted or current.failed)
    if is_whole or current.interrupted:
        for profiles in (*current.leftovers, current.output):
            shutil.rmtree(profiles, ignore_errors=True)
    if is_whole:
        current.journal.path.unlink(missing_ok=True)
        return 0
    written = {key for outcome in outcomes for key in outcome.written}
    current.journal.rewrite(
        row
        for row in content.rows.values()
        if row.state in ("failed", "skipped") or (row.state == "done" and (row.operator, row.signature) in written)
    )
    if current.interrupted:
        print("Interrupted: what was measured is written back; --resume goes on from here.", file=sys.stderr)
        return 130
    print(f"The run failed; its profiles are in {current.output}.", file=sys.stderr)
    return 1


def _everything_is_measured(files: dict[str, list[Path]]) -> bool:
    """Whether no row lacks a valid duration; says so a line a file. A file without rows is not complete."""
    lines = []
    for operator, paths in files.items():
        if not paths:
            return False
        for path in paths:
            rows = read_rows(path)
            if not rows or not all(row.has_valid_duration for row in rows):
                return False
            lines.append(f"{operator}: all {len(rows)} rows of {path.name} have a valid duration, skipped.")
    print("\n".join([*lines, f"Nothing to measure: {len(lines)} files are complete."]))
    return True


def _dry_run(arguments: argparse.Namespace, directory: Path, operators: Sequence[str]) -> int:
    settled = Journal(journal_path(directory)).read().settled() if arguments.resume else set()
    total = 0
    for operator in operators:
        with contextlib.suppress(FileNotFoundError):
            count = len(pending_rows(directory, operator, arguments.update_mode, settled))
            total += count
            print(f"{operator}: {count} rows to measure.")
    print(f"{total} rows would be measured on {arguments.backend}; nothing was run.")
    return 0


def _without_impossible_team(
    arguments: argparse.Namespace, operators: tuple[str, ...], *, is_full_run: bool
) -> tuple[tuple[str, ...], list[str]]:
    """Leave DispatchFFNCombine out of a missing-only run when this machine shows too few NPUs for it.

    In an explicit list with others it stays: whoever names it wants to know why it fails.
    """
    is_alone = operators == (DISPATCH_FFN_COMBINE,)
    if (
        DISPATCH_FFN_COMBINE not in operators
        or arguments.update_mode != "missing-only"
        or arguments.ep_size <= 1
        or arguments.backend == "cpu"
        or not (is_alone or is_full_run)
    ):
        return operators, []
    wanted = arguments.nproc_per_node or arguments.ep_size
    visible = npu.visible_npus()
    if not 0 < visible < wanted:
        return operators, []
    print(
        f"{DISPATCH_FFN_COMBINE} needs {wanted} NPUs and {visible} are visible: it is left out and its rows are kept. "
        f"Give {EP_SIZE_FLAG} {visible} for rows of that size.",
        file=sys.stderr,
    )
    return tuple(name for name in operators if name != DISPATCH_FFN_COMBINE), [DISPATCH_FFN_COMBINE]


def _replay(current: Run, settled_before: set[str]) -> None:
    """Run run_all_op.py, under msprof for an NPU; after a run without any profile each operator by itself."""
    arguments = current.arguments
    status = _started(current, current.operators)
    if status == 0 or current.interrupted:
        return
    what = "msprof" if arguments.backend == "npu" else RUN_ALL_OP.name
    if summary_files(current.output):
        print(f"warning: {what} ended with status {status}; what it recorded is used.", file=sys.stderr)
        current.failed = arguments.fail_fast
        return
    if arguments.ops and len(current.operators) > 1 and not arguments.fail_fast:
        print(f"warning: {what} ended with status {status} and no profile: operators run one by one.", file=sys.stderr)
        _forget_unrecorded(current, settled_before)
        for operator in current.operators:
            status = _started(current, (operator,))
            if current.interrupted:
                return
            if status != 0:
                current.failures.append((operator, f"{what} ended with status {status}."))
        return
    current.failed = True
    current.failures.append((", ".join(current.operators), f"{what} ended with status {status}."))


def _forget_unrecorded(current: Run, settled_before: set[str]) -> None:
    """Take rows that ran without leaving a profile as not done."""
    rows = current.journal.read().rows.values()
    current.journal.rewrite(row for row in rows if row.state != "done" or row.identity in settled_before)


def _started(current: Run, operators: Sequence[str]) -> int:
    """Run the replay of some operators; returns its exit status. After Ctrl-C it is given time to end."""
    arguments, directory = current.arguments, current.directory
    command = [sys.executable, str(RUN_ALL_OP)]
    command += ["--execution-mode", "inprocess" if arguments.backend == "npu" else "subprocess"]
    command += [] if arguments.fail_fast else ["--continue-on-error"]
    command += [*shared_flags(arguments, directory), "--ops", *operators, *rank_flags(arguments, EP_SIZE_FLAG)]
    command += ["--journal", str(current.journal.path), "--status-path", str(arguments.status_path)]
    if arguments.backend == "npu":
        command = [npu.require_msprof(), f"--output={current.output}", *command]
    else:
        command += ["--profile-output", str(current.output)]
    with subprocess.Popen(command, start_new_session=True) as process, _passing_on_termination(process):
        try:
            return process.wait()
        except KeyboardInterrupt:
            current.interrupted = True
            print("Interrupted: ending the run and writing back what it measured.", file=sys.stderr)
            _end(process)
            return 130


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run with everything that it started: first politely, so that profiles are written out."""
    for sign, patience in ((signal.SIGINT, _GRACE_S), (signal.SIGTERM, 5.0), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(patience)
            return


@contextlib.contextmanager
def _passing_on_termination(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Treat a request to terminate, and a terminal that closes, as Ctrl-C, so that nothing measured is lost."""

    def interrupt(number: int, _frame: object) -> None:
        if number != signal.SIGTERM:
            _leave_terminal()
        raise KeyboardInterrupt

    # Under nohup a hang-up is ignored, and stays so. Windows has none.
    numbers = [signal.SIGTERM, *(number for number in (getattr(signal, "SIGHUP", None),) if number is not None)]
    previous = {}
    try:
        for number in numbers:
            if signal.getsignal(number) != signal.SIG_IGN:
                previous[number] = signal.signal(number, interrupt)
    except ValueError:  # not in the main thread: then nobody can send this process's handlers anything
        yield
        return
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _leave_terminal() -> None:
    """Write nothing more to a terminal that is gone: it would fail, and the report is in the database too."""
    for stream in (sys.stdout, sys.stderr):
        if stream.isatty():
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _write_back(
    directory: Path,
    operators: Sequence[str],
    measured: Measurements,
    arguments: argparse.Namespace,
    failures: list[tuple[str, str]],
) -> list[FileOutcome]:
    """Merge everything measured into the operators' files, all of them in one step.

    A file that cannot be read stays as it is and is added to ``failures``; it costs the others nothing.
    """
    outcomes = []
    with database_lock(directory):
        for operator in operators:
            own = measurements_for(operator, measured.rows)
            for path in operator_files(directory, operator):
                try:
                    table = read_table(path)
                except ModelingError as error:
                    failures.append((operator, f"{error} Nothing was written to it."))
                    continue
                outcomes.append(
                    merge_replay(
                        operator,
                        path,
                        table,
                        own,
                        update_all=arguments.update_mode == "all",
                        prune_empty=arguments.prune_empty_duration_rows,
                    )
                )
        replace_files({outcome.path: table_bytes(outcome.table) for outcome in outcomes if outcome.table is not None})
    _warn_of_other_matmuls(measured, outcomes)
    return outcomes


def _warn_of_other_matmuls(measured: Measurements, outcomes: Sequence[FileOutcome]) -> None:
    matched = {key for outcome in outcomes if outcome.operator in MATMUL_FAMILY for _, key in outcome.written}
    unmatched = [row for row in measured.rows if row.kernel_type in MATMUL_FAMILY and row.signature not in matched]
    if unmatched:
        print(
            f"warning: {len(unmatched)} measured matrix products are in no file of {', '.join(MATMUL_FAMILY)}; "
            "they are not added.",
            file=sys.stderr,
        )


def _explained(current: Run, content: JournalContent, settled_before: set[str]) -> bool:
    """Whether nothing measured is right: every row that was to be run failed or was skipped for a reason."""
    if any(row.identity not in settled_before for row in content.of_state("done")):
        return False
    directory, update_mode = current.directory, current.arguments.update_mode
    present = [operator for operator in current.operators if operator_files(directory, operator)]
    return not any(pending_rows(directory, operator, update_mode, content.settled()) for operator in present)


def _new_output(directory: Path, *, for_msprof: bool) -> Path:
    """A directory for profiles below the database.

    Raises:
        ModelingError: it cannot be made, or msprof could not write there.
    """
    if for_msprof and any(sign in str(directory) for sign in _NOT_IN_MSPROF_PATHS):
        raise ModelingError(
            f"msprof cannot write below {directory}: its path has one of {_NOT_IN_MSPROF_PATHS}; move the database."
        )
    try:
        return Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=directory))
    except OSError as error:
        raise write_failure(directory, error) from None


def _first_reason(current: Run) -> str:
    content = current.journal.read()
    reasons = [record.reason for record in content.operators.values() if record.state == "failed" and record.reason]
    reasons += [reason for _, reason in current.failures]
    return f": {reasons[0].rstrip('.')}" if reasons else ""


def _environment(arguments: argparse.Namespace) -> str:
    if arguments.backend == "npu":
        return ""
    from tools.perf_data_collection.op_replay.backends import BACKENDS

    return f"Measured on {BACKENDS[arguments.backend]().describe()}."
