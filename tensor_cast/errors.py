"""The one error a user of the project meets."""

from __future__ import annotations

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
    """The candidates most like ``name``, best first, compared without regard to case."""
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    folded = get_close_matches(name.casefold(), by_folded, n=limit, cutoff=0.4)
    return [by_folded[match] for match in folded]


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """`` Did you mean A, B?`` for a misspelt name, or an empty string when nothing is close."""
    matches = closest(name, candidates)
    return f" Did you mean {', '.join(matches)}?" if matches else ""
