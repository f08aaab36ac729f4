"""Whether iterations of one configuration found the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

_SHOWN = 20


def differences(documents: Sequence[Any]) -> list[str]:
    """Where a later document differs from the first, as ``iteration 2: $.total_time_s is 1.5, but 1.0 in iteration 1``.

    A simulation is a pure function of its flags, so iterations must be equal to the last digit; at most 20
    differences are listed.
    """
    found: list[str] = []
    for number, document in enumerate(documents[1:], start=2):
        for path, first, other in _different(documents[0], document, "$"):
            found.append(f"iteration {number}: {path} is {other}, but {first} in iteration 1")
            if len(found) == _SHOWN:
                return found
    return found


def _different(first: Any, other: Any, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(first, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*first, *other]):
            if key not in first or key not in other:
                yield f"{path}.{key}", _presence(key in first), _presence(key in other)
            else:
                yield from _different(first[key], other[key], f"{path}.{key}")
    elif isinstance(first, list) and isinstance(other, list):
        if len(first) != len(other):
            yield path, f"{len(first)} long", f"{len(other)} long"
            return
        for index, (one, two) in enumerate(zip(first, other, strict=True)):
            yield from _different(one, two, f"{path}[{index}]")
    elif first != other or type(first) is not type(other):
        yield path, repr(first), repr(other)


def _presence(present: bool) -> str:
    return "there" if present else "absent"
