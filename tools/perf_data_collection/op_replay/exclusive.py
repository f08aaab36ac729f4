"""One replay of a database at a time: two would disturb each other's times and journal.

``start_microbench.py`` holds one lock, the ``run_all_op.py`` that it starts another. When the first is killed, the
second goes on measuring by itself, under msprof or not, and a new replay must not start beside it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.atomic import write_failure

_LOCK = ".replay.lock"
_RUN_LOCK = ".replay_run.lock"


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Hold the right to replay a database.

    Raises:
        ModelingError: another replay holds it, or a killed one left a run behind that still measures.
    """
    with _held(directory / _LOCK, f"Another replay of {directory} is running: wait until it has ended."):
        orphan = (
            f"The replay of {directory} was killed, but the run_all_op.py that it had started still measures: wait "
            "until that has ended (or end it), then go on with --resume."
        )
        with _held(directory / _RUN_LOCK, orphan):
            pass
        yield


@contextlib.contextmanager
def at_work(directory: Path) -> Iterator[None]:
    """Show that this process replays a database for a ``start_microbench.py``, until it ends.

    Raises:
        ModelingError: another process does.
    """
    with _held(directory / _RUN_LOCK, f"Another run_all_op.py measures {directory}: wait until it has ended."):
        yield


@contextlib.contextmanager
def _held(path: Path, refusal: str) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ModelingError(refusal, exit_status=1) from None
    except OSError as error:
        raise write_failure(path.parent, error) from None
    try:
        yield
    finally:
        lock.release()
