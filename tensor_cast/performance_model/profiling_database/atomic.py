"""Writing database files so that a kill, a full disk or a second run never leaves half of one."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tensor_cast.errors import ModelingError

LOCK_NAME = ".perf_db.lock"
_STAGED_SUFFIX = ".staged"
"""Not ``.csv``: no reader takes a file that a killed run left behind for a table."""

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would exceed the size limit of this process",
    errno.EACCES: "there is no permission to write there",
    errno.EPERM: "there is no permission to write there",
    errno.EROFS: "the file system is read-only",
    errno.ENAMETOOLONG: "the file name is too long",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
}


def write_failure(path: Path, error: OSError, *, changed: bool = False) -> ModelingError:
    """The sentence for a file that cannot be written."""
    reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
    outcome = "; some files were already replaced, each of them whole" if changed else "; nothing was changed"
    return ModelingError(f"Cannot write {path}: {reason}{outcome}.", exit_status=1)


def make_directory(directory: Path) -> None:
    """Create a database directory with its parents.

    Raises:
        ModelingError: it cannot be created.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ModelingError(f"{directory} is a file; give a directory for the database.") from None
    except OSError as error:
        raise write_failure(directory, error) from None


@contextmanager
def database_lock(directory: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the right to change a database; only one run at a time does.

    A second run waits and says so on stderr, or with ``wait=False`` gives up.

    Raises:
        ModelingError: the lock is taken and ``wait`` is false, or the directory cannot be written.
    """
    from filelock import FileLock, Timeout

    make_directory(directory)
    lock = FileLock(directory / LOCK_NAME)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not wait:
                raise ModelingError(
                    f"Another run is changing {directory}; try again when it has ended, or leave out --no-wait.",
                    exit_status=1,
                ) from None
            print(f"Another run is changing {directory}; waiting for it to end.", file=sys.stderr, flush=True)
            lock.acquire()
    except OSError as error:
        raise write_failure(directory / LOCK_NAME, error) from None
    try:
        _remove_leftovers(directory)
        yield
    finally:
        lock.release()


def replace_files(contents: Mapping[Path, bytes]) -> None:
    """Replace all files, or none.

    Every file is written whole beside its target first; only when all are on disk are they renamed, each in one step
    of the file system. A failure while writing leaves every old file as it was.

    Raises:
        ModelingError: a file cannot be written.
    """
    staged: dict[Path, Path] = {}
    target = Path()
    replaced = 0
    try:
        for target, content in contents.items():
            real = target.resolve()
            temporary = real.with_name(f".{real.name}.{os.getpid()}{_STAGED_SUFFIX}")
            staged[real] = temporary
            with temporary.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            if real.exists():
                shutil.copymode(real, temporary)
        for target, temporary in staged.items():
            temporary.replace(target)
            replaced += 1
    except OSError as error:
        raise write_failure(target, error, changed=replaced > 0) from None
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)


def _remove_leftovers(directory: Path) -> None:
    for leftover in directory.glob(f".*{_STAGED_SUFFIX}"):
        leftover.unlink(missing_ok=True)
