"""The one error a user of the project meets."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches


class ModelingError(Exception):
    """A request that cannot be answered; the message says what is wrong and what to do.

    The command line prints the message alone, without a traceback, and exits with ``exit_status``:
    2 for a wrong request (the default), 1 for a failure of something outside it (a full disk, a network).
    """

    def __init__(self, message: str, *, exit_status: int = 2) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def closest(name: str, candidates: Iterable[str], *, limit: int = 3) -> list[str]:
    """The candidates most like ``name``, best first, compared without regard to case and to a flag's dashes.

    Alike are those of mostly the same letters (``difflib``'s own cutoff: with a lower one a name's nearest neighbours
    are unrelated), and then those that have all of its words, the shortest first.
    """
    by_folded = {_folded(candidate): candidate for candidate in candidates}
    similar = get_close_matches(_folded(name), by_folded, n=limit)
    words = _words(name)
    containing = sorted((folded for folded in by_folded if words and words <= _words(folded)), key=len)
    return [by_folded[match] for match in dict.fromkeys((*similar, *containing))][:limit]


def _folded(name: str) -> str:
    return name.casefold().lstrip("-")


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9.]+", name.casefold()))


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """`` Did you mean A, B?`` for a misspelt name, or an empty string when nothing is close."""
    matches = closest(name, candidates)
    return f" Did you mean {', '.join(matches)}?" if matches else ""
