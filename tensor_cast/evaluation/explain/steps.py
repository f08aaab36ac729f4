"""One step of a profile: which one, how long, and what of it no kernel fills."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from tensor_cast.errors import ModelingError, did_you_mean
from tensor_cast.evaluation.explain.profile_rows import MeasuredKernel

_MICROSECOND = 1e-6


@dataclass(frozen=True)
class Gap:
    """Time in which no kernel runs, between two of them."""

    seconds: float
    after: str
    before: str


@dataclass(frozen=True)
class MeasuredStep:
    """Kernels of one step on one rank. ``repeats``: the kernels are of that many equal steps together."""

    kernels: tuple[MeasuredKernel, ...]
    step: str
    rank: str
    repeats: int
    steps_s: dict[str, float]
    outside: int

    @property
    def total_s(self) -> float:
        """From the first kernel's start to the last one's end, of one step."""
        return _span_s(self.kernels) / self.repeats

    @property
    def kernels_s(self) -> float:
        """The sum of all kernels."""
        return sum(kernel.duration_us for kernel in self.kernels) * _MICROSECOND / self.repeats

    @property
    def gaps(self) -> list[Gap]:
        """Every time between kernels, the longest first; of all repeats."""
        found: list[Gap] = []
        end, last = self.kernels[0].start_us, self.kernels[0].name
        for kernel in self.kernels:
            if kernel.start_us > end:
                found.append(Gap((kernel.start_us - end) * _MICROSECOND, last, kernel.name))
            if kernel.end_us >= end:
                end, last = kernel.end_us, kernel.name
        return sorted(found, key=lambda gap: -gap.seconds)

    @property
    def gaps_s(self) -> float:
        """Time of one step in which the device waits for the host."""
        return sum(gap.seconds for gap in self.gaps) / self.repeats

    @property
    def overlap_s(self) -> float:
        """Time of one step that kernels run beside others, counted again for each further one."""
        return self.kernels_s - (self.total_s - self.gaps_s)


def choose_step(
    kernels: Sequence[MeasuredKernel], *, step: str | None = None, rank: str | None = None, repeats: int = 1
) -> MeasuredStep:
    """The step to explain: the one asked for, or the one of median length; on the rank that is busy longest.

    ``repeats`` is how many equal steps a profile without step numbers holds.

    Raises:
        ModelingError: there is no such step or rank, or ``repeats`` is given for a profile that numbers its steps.
    """
    ranks = _grouped(kernels, "rank")
    if rank is not None:
        matching = [name for name in ranks if rank in (name, name.rpartition(" ")[2])]
        if not matching:
            raise ModelingError(f"The profile has no rank {rank!r}: it has {', '.join(ranks)}.")
        ranks = {matching[0]: ranks[matching[0]]}
    chosen_rank = max(ranks, key=lambda name: sum(kernel.duration_us for kernel in ranks[name]))
    members = ranks[chosen_rank]
    steps = _grouped((kernel for kernel in members if kernel.step), "step")
    if not steps:
        if step is not None:
            raise ModelingError("The profile does not number its steps; leave out --step, or say --steps N.")
        return MeasuredStep(tuple(members), "", chosen_rank, repeats, {}, 0)
    if repeats != 1:
        raise ModelingError(f"The profile numbers its steps ({', '.join(steps)}); choose one with --step.")
    lengths = {name: _span_s(found) for name, found in steps.items()}
    if step is None:
        middle = median(lengths.values())
        step = min(lengths, key=lambda name: abs(lengths[name] - middle))
    if step not in steps:
        raise ModelingError(f"The profile has no step {step!r}: it has {', '.join(steps)}.{did_you_mean(step, steps)}")
    outside = sum(not kernel.step for kernel in members)
    return MeasuredStep(tuple(steps[step]), step, chosen_rank, 1, lengths, outside)


def _grouped(kernels: Iterable[MeasuredKernel], by: str) -> dict[str, list[MeasuredKernel]]:
    groups: dict[str, list[MeasuredKernel]] = {}
    for kernel in kernels:
        groups.setdefault(getattr(kernel, by), []).append(kernel)
    return groups


def _span_s(kernels: Sequence[MeasuredKernel]) -> float:
    return (max(kernel.end_us for kernel in kernels) - min(kernel.start_us for kernel in kernels)) * _MICROSECOND
