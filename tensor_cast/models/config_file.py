"""Read a config file, and say in one sentence what is wrong with it."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from tensor_cast.errors import ModelingError

MAX_CONFIG_BYTES = 64 * 2**20
"""The largest published config that is known, nvidia/MiniMax-M3-NVFP4, has 3 MB; weights are far larger than 64 MiB."""

_GIT_LFS_POINTER = b"version https://git-lfs.github.com/spec/"

# Published Nemotron-H configs write `"time_step_limit": [0.0, Infinity]`: no limit on the Mamba time step.
_UNBOUNDED_KEYS = frozenset({"time_step_limit"})


def read_config_file(path: Path) -> dict[str, Any]:
    """The JSON object that the UTF-8 file ``path`` holds.

    A key that occurs twice with the same value is read once. Raises ModelingError, naming the path, for a file that
    is missing, unreadable, empty, larger than MAX_CONFIG_BYTES, not UTF-8, not JSON or not an object, for a key that
    occurs twice with different values, and for NaN and Infinity, which JSON does not have.
    """
    text = _decoded(path, _read_bytes(path))
    try:
        config = json.loads(text, object_pairs_hook=_object_without_repeated_keys)
        unfinite = _first_unfinite(config, "$")
    except json.JSONDecodeError as error:
        raise ModelingError(
            f"The config file {path} is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from error
    except RecursionError as error:
        raise ModelingError(f"The config file {path} is nested too deeply to be a model's config.") from error
    except ValueError as error:
        raise ModelingError(f"The config file {path} cannot be read as JSON: {error}.") from error
    if not isinstance(config, dict):
        raise ModelingError(f"The config file {path} holds {_kind(config)}, where a JSON object {{...}} is expected.")
    if unfinite is not None:
        where, value = unfinite
        raise ModelingError(f"The config file {path} has {where} = {value}: give a finite number.")
    return config


def _read_bytes(path: Path) -> bytes:
    try:
        if not path.exists():
            raise ModelingError(f"The config file {path} does not exist.")
        if not path.is_file():
            raise ModelingError(f"The config file {path} is not a regular file.")
        size = path.stat().st_size
        if size > MAX_CONFIG_BYTES:
            raise ModelingError(
                f"The config file {path} has {size / 2**20:,.0f} MiB, more than the {MAX_CONFIG_BYTES // 2**20} MiB "
                "that a model's config may have: give the config.json, not the weights."
            )
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ModelingError(f"The config file {path} cannot be read: {reason}.") from error


def _decoded(path: Path, content: bytes) -> str:
    if not content.strip():
        raise ModelingError(f"The config file {path} is empty.")
    if content.startswith(_GIT_LFS_POINTER):
        raise ModelingError(f"The config file {path} is a Git LFS pointer: fetch the file itself with `git lfs pull`.")
    encoding = json.detect_encoding(content)
    if encoding.startswith(("utf-16", "utf-32")) and _is_json_text(content, encoding):
        raise ModelingError(f"The config file {path} is {encoding[:6].upper()} text: save it as UTF-8.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelingError(
            f"The config file {path} is not UTF-8 text (byte {error.start}): give the config.json, not a binary file."
        ) from error
    if "\0" in text:
        raise ModelingError(f"The config file {path} is a binary file, not JSON text.")
    return text


def _is_json_text(content: bytes, encoding: str) -> bool:
    try:
        return content.decode(encoding).lstrip("\ufeff \t\r\n")[:1] in ("{", "[", '"')
    except UnicodeDecodeError:
        return False


def _object_without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen and seen[key] != value:
                raise ValueError(f"the key {key!r} occurs twice with different values")
            seen[key] = value
    return members


def _first_unfinite(value: Any, path: str) -> tuple[str, float] | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else (path, value)
    if isinstance(value, dict):
        items = [(f"{path}.{key}", item) for key, item in value.items() if key not in _UNBOUNDED_KEYS]
    elif isinstance(value, list):
        items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    else:
        return None
    return next((found for where, item in items if (found := _first_unfinite(item, where)) is not None), None)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    return {str: "a string", list: "a list", int: "a number", float: "a number"}[type(value)]


def directory_contents(directory: Path, *, limit: int = 5) -> str:
    """The first names in a directory, for an error's sentence."""
    try:
        names = sorted(entry.name + (os.sep if entry.is_dir() else "") for entry in directory.iterdir())
    except OSError as error:
        raise ModelingError(f"The directory {directory} cannot be read: {error.strerror}.") from error
    if not names:
        return "nothing"
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
