"""The results directory: filled beside its place, put there whole or not at all, never over another run's."""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tensor_cast.errors import ModelingError
from tensor_cast.evaluation.naming import ResultsName

CONFIG = "config.json"
SUMMARY = "summary.json"
REPORT = "evaluation_report.md"
PAGE = "evaluation_report.html"
COMPARE_DIRECTORY = "compare"
_STAGING_PREFIX = ".incomplete-"
_EXISTS = (errno.EEXIST, errno.ENOTEMPTY)


def log_name(iteration: int) -> str:
    """File of an iteration's output, counted from 1."""
    return f"iteration_{iteration}.log"


@dataclass(frozen=True)
class Results:
    """A recorded evaluation as it was read back."""

    directory: Path
    config: dict[str, Any]
    summary: dict[str, Any]

    @property
    def name(self) -> str:
        """The directory's own name."""
        return self.directory.resolve().name


def read_results(directory: Path) -> Results:
    """The evaluation in ``directory``.

    Raises:
        ModelingError: it is no results directory, or a file of it cannot be read.
    """
    if not directory.is_dir():
        raise ModelingError(f"There is no results directory {directory}.")
    return Results(directory, read_json(directory / CONFIG), read_json(directory / SUMMARY))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        ModelingError: names the file and what is wrong with it.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelingError(f"{path} does not exist: give a directory that `msmodeling evaluate` wrote.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelingError(f"Cannot read {path}: {error}.", exit_status=1) from None
    except json.JSONDecodeError as error:
        raise ModelingError(f"{path}:{error.lineno}: this is not JSON ({error.msg}).") from None
    if not isinstance(value, dict):
        raise ModelingError(f"{path} must hold a JSON object.")
    return value


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` for people and programs: indented, keys in order, no NaN."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


@contextmanager
def staging_directory(root: Path) -> Iterator[Path]:
    """A hidden directory in ``root`` to fill; it is gone afterwards unless it was put in its place.

    What a killed evaluation of this machine left there is removed.

    Raises:
        ModelingError: ``root`` cannot be written.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(root)
        directory = Path(tempfile.mkdtemp(prefix=f"{_own_prefix()}{os.getpid()}-", dir=root))
        directory.chmod(0o755)
    except OSError as error:
        raise _unwritable(root, error) from None
    try:
        yield directory
    except OSError as error:
        raise _unwritable(root, error) from None
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def put_in_place(staged: Path, root: Path, name: ResultsName, *, overwrite: bool = False) -> Path:
    """Move ``staged`` to its name in ``root``: a later run of the same name gets ``_run2``, ``_run3`` and so on.

    With ``overwrite`` the first run's directory is replaced. The move is one step of the file system, so that of two
    evaluations at the same time neither overwrites the other.
    """
    if overwrite:
        target = root / str(name)
        if target.exists() or target.is_symlink():
            replaced = Path(tempfile.mkdtemp(prefix=f"{_own_prefix()}{os.getpid()}-", dir=root))
            target.rename(replaced / "old")
            try:
                staged.rename(target)
            except OSError:
                (replaced / "old").rename(target)
                raise
            finally:
                shutil.rmtree(replaced, ignore_errors=True)
            return target
    run = name.run
    while True:
        target = root / str(replace(name, run=run))
        # An empty directory would be replaced by the rename: it too is somebody's.
        if not (target.exists() or target.is_symlink()):
            try:
                staged.rename(target)
                return target
            except OSError as error:
                if error.errno not in _EXISTS:
                    raise
        run += 1


def _own_prefix() -> str:
    """The machine's name is part of it: a process number means nothing on another that shares the file system."""
    return f"{_STAGING_PREFIX}{platform.node()}-"


def _remove_leftovers(root: Path) -> None:
    for directory in root.glob(f"{_own_prefix()}*"):
        number = directory.name.removeprefix(_own_prefix()).partition("-")[0]
        if number.isdigit() and not _is_running(int(number)):
            shutil.rmtree(directory, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _unwritable(root: Path, error: OSError) -> ModelingError:
    reason = error.strerror or str(error)
    return ModelingError(f"Cannot write results in {root}: {reason[0].lower()}{reason[1:]}.", exit_status=1)
