"""A database file is old or new, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database import atomic
from tensor_cast.performance_model.profiling_database.atomic import database_lock, replace_files

REPOSITORY = Path(atomic.__file__).resolve().parents[3]


def test_files_are_replaced_and_keep_their_mode(tmp_path: Path) -> None:
    old, new = tmp_path / "Add.csv", tmp_path / "Mul.csv"
    old.write_bytes(b"old")
    old.chmod(0o640)
    replace_files({old: b"changed", new: b"created"})
    assert old.read_bytes() == b"changed"
    assert old.stat().st_mode & 0o777 == 0o640
    assert new.read_bytes() == b"created"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Add.csv", "Mul.csv"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.csv", tmp_path / "Add.csv"
    real.write_bytes(b"old")
    link.symlink_to(real)
    replace_files({link: b"new"})
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_file_size_limit_half_way_leaves_every_old_file(tmp_path: Path) -> None:
    small, large = tmp_path / "A.csv", tmp_path / "B.csv"
    for path in (small, large):
        path.write_bytes(b"old")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limit[1]))
    try:
        with pytest.raises(ModelingError, match=r"B\.csv: the file would exceed the size limit.*nothing was changed"):
            replace_files({small: b"new", large: b"x" * (2 << 20)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert small.read_bytes() == large.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["A.csv", "B.csv"]


def test_full_disk_leaves_every_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "A.csv", tmp_path / "B.csv"
    first.write_bytes(b"old")
    calls = []

    def fsync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(ModelingError, match=r"the disk is full; nothing was changed") as failure:
        replace_files({first: b"new", second: b"new"})
    assert failure.value.exit_status == 1
    assert first.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["A.csv"]


def test_no_permission_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may write everywhere, so the refusal is the system call's, not the directory's.
    def refuse(*_arguments: object, **_options: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelingError, match=r"there is no permission to write there"):
        replace_files({tmp_path / "A.csv": b"new"})


def test_database_directory_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "db").write_bytes(b"")
    with pytest.raises(ModelingError, match=r"db is a file"), database_lock(tmp_path / "db"):
        pass
    with pytest.raises(ModelingError, match=r"not a directory"), database_lock(tmp_path / "db" / "below"):
        pass


def test_second_run_waits_for_the_first(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from tensor_cast.performance_model.profiling_database.atomic import database_lock\n"
        f"with database_lock(pathlib.Path({str(tmp_path)!r})): print('in', flush=True)\n"
    )
    with ExitStack() as cleanup:
        cleanup.enter_context(database_lock(tmp_path))
        held = cleanup.pop_all()
        second = cleanup.enter_context(_python(program))
        cleanup.push(held)
        assert second.stderr is not None
        assert second.stdout is not None
        assert f"Another run is changing {tmp_path}; waiting" in second.stderr.readline()
        assert second.poll() is None
        held.close()
        assert second.stdout.readline() == "in\n"
    assert second.returncode == 0


def _python(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_second_run_may_refuse_to_wait(tmp_path: Path) -> None:
    with database_lock(tmp_path), pytest.raises(ModelingError, match=r"Another run is changing") as failure:  # noqa: SIM117
        with database_lock(tmp_path, wait=False):
            pass
    assert failure.value.exit_status == 1


def test_kill_while_writing_leaves_the_old_file_and_the_next_run_clears_up(tmp_path: Path) -> None:
    target = tmp_path / "Add.csv"
    target.write_bytes(b"old")
    program = (
        "import os, pathlib, time; from tensor_cast.performance_model.profiling_database import atomic\n"
        "os.fsync = lambda _: (print('written', flush=True), time.sleep(60))\n"
        f"with atomic.database_lock(pathlib.Path({str(tmp_path)!r})):\n"
        f"    atomic.replace_files({{pathlib.Path({str(target)!r}): b'new'}})\n"
    )
    with _python(program) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        writer.send_signal(signal.SIGKILL)
    assert target.read_bytes() == b"old"
    assert len(list(tmp_path.glob(".Add.csv.*"))) == 1
    start = time.monotonic()
    with database_lock(tmp_path):
        assert list(tmp_path.glob(".Add.csv.*")) == []
    assert time.monotonic() - start < 10.0
    assert list(tmp_path.glob("*.csv")) == [target]
