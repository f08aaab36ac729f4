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

Prior = Callable[[FloatArray, int], FloatArray]
"""Seconds of messages [S], as the files count bytes, in a group of this size, by a model that knows no measurement."""

# What the same kernel's time varies by from run to run. In the published A3 times a collective in a model and the same
# one alone differ by 2 to 5 % from 1 MB up (data/ATLAS_800_A3_752T_128G_DIE/hccl/v8.5).
REPEATABILITY = 0.05

# How far the prior is believed: the analytic model's error of 90 % of the published A3 times, in round figures.
PRIOR_ERROR = 0.35
_OTHER_LINKS = 2.0
"""A prior that is off by this factor is not believed; measurements alone are, if they tell a bandwidth."""
_PRIOR_BYTES = 2.0 ** np.arange(10, 30, 3)

# Sizes must span this factor before their times tell a bandwidth: with two sizes a factor s apart, an error e of the
# times becomes an error of about e (s + 1) / (s - 1) of the bandwidth, 8 % at s = 4.
_BANDWIDTH_SPAN = 4.0

_MAX_PROTOCOLS = 3
_MAX_CUTS = 24
_CHOICES = [list(used) for count in (1, 2, 3) for used in combinations(range(3), count)]
"""Which of latency, peer latency and time a byte a protocol has."""


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


def fit_collective(rows: TierRows, prior: Prior | None = None) -> CollectiveFit | None:
    """The protocols that explain measured times best, judged by relative error.

    Every split of the sizes into up to three ranges is tried; a range's three figures are found by least squares and
    are never negative. A figure or a step must pay for itself (Bayesian information criterion with the noise
    ``REPEATABILITY``). Where a group was not measured, further than a factor of four from any of its sizes, ``prior``
    counts as a measurement with the error ``PRIOR_ERROR``, unless it is plainly of other links. ``None`` when the sizes
    do not tell a bandwidth.
    """
    if not len(rows):
        return None
    if prior is not None and not _knows_the_links(rows, prior):
        alone = fit_collective(rows)
        if alone is not None:
            return alone
    evidence = _evidence(rows, prior)
    sizes, firsts = np.unique(evidence.message_bytes, return_index=True)
    starts = [*firsts.tolist(), len(evidence.message_bytes)]
    penalty = math.log(max(len(rows), 2))

    @cache
    def range_fit(start: int, end: int) -> tuple[float, Protocol] | None:
        from_bytes = 0.0 if start == 0 else math.sqrt(sizes[start - 1] * sizes[start])
        return _fit_protocol(evidence.between(starts[start], starts[end]), from_bytes, penalty)

    best: tuple[float, tuple[Protocol, ...]] | None = None
    for steps in range(_MAX_PROTOCOLS):
        for chosen in combinations(_candidate_cuts(sizes), steps):
            fits = [range_fit(start, end) for start, end in pairwise((0, *chosen, len(sizes)))]
            found = [fit for fit in fits if fit is not None]
            if len(found) < len(fits):
                continue
            score = sum(cost for cost, _ in found) + penalty * steps
            if best is None or score < best[0]:
                best = score, tuple(protocol for _, protocol in found)
    return None if best is None else CollectiveFit(rows.kind, best[1])


@dataclass(frozen=True)
class _Evidence:
    """Times of R messages, ordered by size, as equations: ``design`` [R, 3] times three figures is ``target`` [R].

    An equation is divided by the message's time and by how far that is believed, so that residuals are relative errors
    in units of the expected one.
    """

    message_bytes: FloatArray
    group_size: FloatArray
    design: FloatArray
    target: FloatArray

    def between(self, start: int, end: int) -> _Evidence:
        """The rows from ``start`` up to ``end``."""
        part = slice(start, end)
        return _Evidence(self.message_bytes[part], self.group_size[part], self.design[part], self.target[part])


def _evidence(rows: TierRows, prior: Prior | None) -> _Evidence:
    """The measurements, and the prior where there are none near."""
    sizes, groups = [rows.message_bytes], [rows.group_size.astype(np.float64)]
    seconds, errors = [rows.duration_s], [np.full(len(rows), REPEATABILITY)]
    if prior is not None:
        for group in np.unique(rows.group_size).tolist():
            measured = rows.of_group(group).message_bytes
            distance = np.abs(np.log(_PRIOR_BYTES[:, None] / measured)).min(axis=1)
            far = _PRIOR_BYTES[distance > math.log(_BANDWIDTH_SPAN)]
            sizes.append(far)
            groups.append(np.full(len(far), float(group)))
            seconds.append(prior(far, group))
            errors.append(np.full(len(far), PRIOR_ERROR))
    order = np.argsort(np.concatenate(sizes), kind="stable")
    size, group_size, duration, error = (np.concatenate(part)[order] for part in (sizes, groups, seconds, errors))
    sent = np.asarray(sent_bytes(rows.kind, size, group_size), dtype=np.float64)
    design = np.stack([np.ones(len(size)), group_size - 1.0, sent], axis=1) / (duration * error)[:, None]
    return _Evidence(size, group_size, design, 1.0 / error)


def _knows_the_links(rows: TierRows, prior: Prior) -> bool:
    """Whether the prior's typical error leaves it believable: otherwise it is of other links than were measured."""
    groups = [rows.of_group(group) for group in np.unique(rows.group_size).tolist()]
    ratios = [group.duration_s / prior(group.message_bytes, int(group.group_size[0])) for group in groups]
    return 1.0 / _OTHER_LINKS < float(np.median(np.concatenate(ratios))) < _OTHER_LINKS


def _candidate_cuts(sizes: FloatArray) -> list[int]:
    """Positions where a new range may begin: two sizes at least on each side, and not too many of them."""
    positions = np.arange(2, len(sizes) - 1)
    if len(positions) > _MAX_CUTS:
        positions = positions[np.linspace(0, len(positions) - 1, _MAX_CUTS).astype(int)]
    return [int(position) for position in positions]


def _fit_protocol(evidence: _Evidence, from_bytes: float, penalty: float) -> tuple[float, Protocol] | None:
    """Cost and figures of the best protocol for some rows, or ``None`` when they do not determine one.

    Least squares without negative figures: of three, each choice of which are used is solved by normal equations.
    """
    if evidence.message_bytes[-1] / evidence.message_bytes[0] < _BANDWIDTH_SPAN:
        return None
    scale = np.linalg.norm(evidence.design, axis=0)
    design = evidence.design / scale
    products, moments = design.T @ design, design.T @ evidence.target
    total = float(evidence.target @ evidence.target)
    several_groups = evidence.group_size.min() < evidence.group_size.max()
    best: tuple[float, FloatArray] | None = None
    for used in _CHOICES:
        if (1 in used and not several_groups) or len(used) > len(design):
            continue
        try:
            solution = np.linalg.solve(products[np.ix_(used, used)], moments[used])
        except np.linalg.LinAlgError:
            continue
        if (solution < 0.0).any():
            continue
        cost = max(total - float(moments[used] @ solution), 0.0) + penalty * len(used)
        if best is None or cost < best[0]:
            figures = np.zeros(len(scale))
            figures[used] = solution / scale[used]
            best = cost, figures
    if best is None:
        return None
    cost, figures = best
    return cost, Protocol(from_bytes, *figures.tolist())
