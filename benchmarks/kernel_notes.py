"""What other measured kernels say of one that is predicted badly, in a few words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.accuracy_report import seconds
from benchmarks.accuracy_rows import Row

MUCH = 1.25
"""So many times a comparable kernel's time is worth a word."""


@dataclass(frozen=True)
class Work:
    """What a measured kernel does: kernels of one ``kind`` are one implementation on one device in one format."""

    kind: Hashable
    flops: float
    bytes: float


def noted(rows: Sequence[Row], work: Sequence[Work]) -> list[Row]:
    """The rows with a note where their time is not that of their work.

    A prediction is short and a kernel of the kind with no fewer FLOPs and bytes was quick, or it is long and one with
    no more was slow.
    """
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
        for index, least, most in zip(members, shortest, longest, strict=True):
            row = rows[index]
            if row.error < 0 and row.measured_s > MUCH * least:
                found[index] = replace(row, note=f"one with no less to do took {seconds(float(least))}")
            elif row.error > 0 and row.measured_s * MUCH < most:
                found[index] = replace(row, note=f"one with no more to do took {seconds(float(most))}")
    return found
