"""What other measured kernels say of one that is predicted badly, in a few words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.accuracy_rows import Row
from benchmarks.contradictions import contradictions


@dataclass(frozen=True)
class Work:
    """What a measured kernel does: kernels of one ``kind`` are one implementation on one device in one format."""

    kind: Hashable
    flops: float
    bytes: float


def noted(rows: Sequence[Row], work: Sequence[Work]) -> list[Row]:
    """The rows with a note where their time contradicts that of a kernel with no fewer FLOPs and bytes, or no more."""
    found = list(rows)
    kinds: dict[Hashable, list[int]] = {}
    for index, done in enumerate(work):
        kinds.setdefault(done.kind, []).append(index)
    for members in kinds.values():
        flops, moved = (np.array([getattr(work[index], name) for index in members]) for name in ("flops", "bytes"))
        measured = np.array([rows[index].measured_s for index in members])
        # [i, j]: kernel j has no less to do than kernel i.
        no_less = (flops >= flops[:, None]) & (moved >= moved[:, None])
        shortest = np.where(no_less, measured, np.inf).min(axis=1)
        longest = np.where(no_less.T, measured, 0.0).max(axis=1)
        predicted = np.array([rows[index].predicted_s for index in members])
        for index, note in zip(members, contradictions(measured, predicted, shortest, longest), strict=True):
            found[index] = replace(rows[index], note=note)
    return found
