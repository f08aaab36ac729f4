"""Writing a result file whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from tensor_cast.errors import ModelingError


def check_writable(path: Path, flag: str) -> None:
    """Refuse early what cannot be written later.

    Raises:
        ModelingError: ``path`` is a directory, or its own directory does not exist.
    """
    try:
        is_directory, has_directory = path.is_dir(), path.parent.is_dir()
    except OSError:
        # A name that is too long, for one: writing will say so.
        return
    if is_directory:
        raise ModelingError(f"{flag} {path} is a directory; give a file.")
    if not has_directory:
        raise ModelingError(f"{flag} {path}: there is no directory {path.parent}; create it first.")


def write_whole(path: Path, text: str) -> None:
    """Write beside ``path`` and rename, so that a reader never sees half of it; a pipe or device is written directly.

    Raises:
        ModelingError: it cannot be written.
    """
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        # As it is named: /dev/stdout resolves to a pipe's name, which is no path that could be opened.
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelingError(f"Cannot write {path}: {reason[0].lower()}{reason[1:]}.", exit_status=1) from error
