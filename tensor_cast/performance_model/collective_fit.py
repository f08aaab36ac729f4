"""A model of measured collectives: latency, bandwidth and protocol steps over group and message."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise

import numpy as np

from tensor_cast.ops import CollectiveKind
from tensor_cast.performance_model.collective_measurements import FloatArray, TierRows, sent_bytes
from tensor_cast.quantity import Quantity

SlopeOfGroup = Callable[[int], float]
"""Seconds that each sent byte takes in a group of this size, by a model of the links."""

# What the same kernel's time varies by from run to run. In the published A3 times a collective in a model and the same
# one alone differ by 2 to 5 % from 1 MB up (data/ATLAS_800_A3_752T_128G_DIE/hccl/v8.5).
REPEATABILITY = 0.05

# Sizes must span this factor before their times tell a bandwidth: with two sizes a factor s apart, an error e of the
# times becomes an error of about e (s + 1) / (s - 1) of the bandwidth, 8 % at s = 4.
_BANDWIDTH_SPAN = 4.0

_MAX_PROTOCOLS = 3
_MAX_CUTS = 24


@dataclass(frozen=True)
class Protocol:
    """How messages from ``from_bytes`` on are sent: ``latency + peer_latency (n - 1) + sent / bandwidth``.

    The Hockney model (R. Hockney, Parallel Computing 20, 1994) with a start-up cost that may grow with the peers.
    """

    from_bytes: float
    latency_s: float
    peer_latency_s: float
    seconds_per_byte: float

    def latency(self, group_size: int) -> float:
        """Seconds of a message without bytes."""
        return self.latency_s + self.peer_latency_s * (group_size - 1)


@dataclass(frozen=True)
class CollectiveFit:
    """Time of one kind of collective over one tier: protocols by message size, smallest first."""

    kind: CollectiveKind
    protocols: tuple[Protocol, ...]

    def time(self, message_bytes: Quantity, group_size: int) -> Quantity:
        """Seconds of messages of any size, as the files count bytes; a larger message never takes less."""
        seconds, _ = self._parts(np.asarray(message_bytes, dtype=np.float64), group_size)
        return seconds

    def latency(self, message_bytes: Quantity, group_size: int) -> Quantity:
        """The part of ``time`` that does not depend on the bytes."""
        _, latency = self._parts(np.asarray(message_bytes, dtype=np.float64), group_size)
        return latency

    def _parts(self, message_bytes: FloatArray, group_size: int) -> tuple[Quantity, Quantity]:
        seconds: Quantity = np.zeros_like(message_bytes)
        latency: Quantity = np.zeros_like(message_bytes)
        floor = 0.0
        for protocol, following in zip(self.protocols, (*self.protocols[1:], None), strict=True):
            alone = protocol.latency(group_size)
            slope = protocol.seconds_per_byte
            moved = np.maximum(alone + slope * sent_bytes(self.kind, message_bytes, group_size), floor)
            used = message_bytes >= protocol.from_bytes
            seconds = np.where(used, moved, seconds)
            latency = np.where(used, np.minimum(alone, moved), latency)
            if following is not None:
                at_step = alone + slope * float(sent_bytes(self.kind, following.from_bytes, group_size))
                floor = max(floor, at_step)
        return seconds, latency


def fit_collective(rows: TierRows, link_slope: SlopeOfGroup | None = None) -> CollectiveFit | None:
    """The protocols that explain measured times best, judged by relative error.

    Every split of the sizes into up to three ranges is tried; a range's three figures are found by least squares and
    are never negative. A figure or a step must pay for itself (Bayesian information criterion with the noise
    ``REPEATABILITY``). Where the sizes of a range span less than a factor of four they tell no bandwidth, and
    ``link_slope`` gives it; without that there is no model.
    """
    if not len(rows):
        return None
    sizes = np.unique(rows.message_bytes)
    cuts = _candidate_cuts(sizes)
    penalty = math.log(max(len(rows), 2))

    @cache
    def range_fit(start: int, end: int) -> tuple[float, Protocol] | None:
        inside = (rows.message_bytes >= sizes[start]) & (
            rows.message_bytes < (sizes[end] if end < len(sizes) else np.inf)
        )
        from_bytes = 0.0 if start == 0 else math.sqrt(sizes[start - 1] * sizes[start])
        return _fit_protocol(rows.select(inside), from_bytes, penalty, link_slope)

    best: tuple[float, tuple[Protocol, ...]] | None = None
    for steps in range(_MAX_PROTOCOLS):
        for chosen in combinations(cuts, steps):
            edges = (0, *chosen, len(sizes))
            fits = [range_fit(start, end) for start, end in pairwise(edges)]
            found = [fit for fit in fits if fit is not None]
            if len(found) < len(fits):
                continue
            score = sum(cost for cost, _ in found) + penalty * steps
            if best is None or score < best[0]:
                best = score, tuple(protocol for _, protocol in found)
    return None if best is None else CollectiveFit(rows.kind, best[1])


def _candidate_cuts(sizes: FloatArray) -> list[int]:
    """Positions where a new range may begin: two sizes at least on each side, and not too many of them."""
    positions = np.arange(2, len(sizes) - 1)
    if len(positions) > _MAX_CUTS:
        positions = positions[np.linspace(0, len(positions) - 1, _MAX_CUTS).astype(int)]
    return [int(position) for position in positions]


def _fit_protocol(
    rows: TierRows, from_bytes: float, penalty: float, link_slope: SlopeOfGroup | None
) -> tuple[float, Protocol] | None:
    """Cost and figures of the best protocol for these rows, or ``None`` when they do not determine one."""
    spans = rows.message_bytes.max() / rows.message_bytes.min() >= _BANDWIDTH_SPAN
    if len(np.unique(rows.message_bytes)) < 2 and from_bytes > 0.0:
        return None
    sent = np.asarray(sent_bytes(rows.kind, rows.message_bytes, rows.group_size), dtype=np.float64)
    slope = 0.0
    if not spans:
        if link_slope is None:
            return None
        slope = link_slope(int(rows.group_size.max()))
    columns = [np.ones(len(rows)), rows.group_size - 1.0]
    if spans:
        columns.append(sent)
    design = np.stack(columns, axis=1) / rows.duration_s[:, None]
    target = 1.0 - slope * sent / rows.duration_s
    several_groups = len(np.unique(rows.group_size)) > 1
    best: tuple[float, FloatArray] | None = None
    for used in _subsets(len(columns)):
        if (1 in used and not several_groups) or len(used) > len(rows):
            continue
        figures = _least_squares(design, target, used)
        if (figures < 0.0).any():
            continue
        error = design @ figures - target
        cost = float(error @ error) / REPEATABILITY**2 + penalty * len(used)
        if best is None or cost < best[0]:
            best = cost, figures
    if best is None:
        return None
    cost, figures = best
    return cost, Protocol(from_bytes, float(figures[0]), float(figures[1]), float(figures[2]) if spans else slope)


@cache
def _subsets(columns: int) -> tuple[tuple[int, ...], ...]:
    return tuple(used for count in range(columns + 1) for used in combinations(range(columns), count))


def _least_squares(design: FloatArray, target: FloatArray, used: tuple[int, ...]) -> FloatArray:
    """Figures of the columns ``used``, zero for the others."""
    figures = np.zeros(design.shape[1])
    if used:
        part = design[:, used]
        scale = np.linalg.norm(part, axis=0)
        solution, *_ = np.linalg.lstsq(part / scale, target, rcond=None)
        figures[list(used)] = solution / scale
    return figures
