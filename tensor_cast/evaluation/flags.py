"""Command-line flags as data, so that a variant of a request is the request with some flags changed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TypeAlias

FlagValue: TypeAlias = "bool | str | list[str]"
"""``True`` for a switch, text for a value, a list for several."""

Flags: TypeAlias = "Mapping[str, FlagValue]"

_REPEATED = frozenset({"--device-file"})
"""Flags that are written once a value; others take all of theirs behind one."""


def as_arguments(flags: Flags) -> list[str]:
    """The flags as a program receives them; a switch that is ``False`` is left out."""
    arguments: list[str] = []
    for flag, value in flags.items():
        if isinstance(value, bool):
            arguments += [flag] if value else []
        elif isinstance(value, str):
            arguments += [flag, value]
        elif flag in _REPEATED:
            arguments += [item for text in value for item in (flag, text)]
        else:
            arguments += [flag, *value]
    return arguments


def command_line(*words: str) -> str:
    """One line that a shell splits into ``words``."""
    return shlex.join(words)


def with_changes(flags: Flags, changes: Flags) -> dict[str, FlagValue]:
    """``flags`` with ``changes`` put over them; a flag keeps its place."""
    return {**flags, **changes}
