"""Differential evolution over a few bounded figures: deterministic, NumPy alone.

Storn and Price, "Differential Evolution", Journal of Global Optimization 11 (1997): the best/1/bin variant with a
mutation factor drawn anew each generation. The loss of a fit has steps (waves of tiles) and kinks (the longest part of
a kernel), where gradients and simplexes stop early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]

MEMBERS = 10
"""Of the population, for each figure."""
CROSSOVER = 0.7
CONVERGED = 1e-4
"""Spread of the population's losses, relative to their mean, at which nothing more is to be found."""


@dataclass(frozen=True)
class Bound:
    """Where a figure is looked for; evenly in its logarithm where ``low`` is positive, else denser towards 0."""

    low: float
    high: float
    power: float = 3.0

    def at(self, place: float) -> float:
        """The figure at a place between 0 and 1."""
        if self.low > 0.0:
            return float(self.low * (self.high / self.low) ** place)
        return float(self.high * place**self.power)

    def place(self, figure: float) -> float:
        """The place of a figure, of the nearest bound where it lies outside."""
        figure = min(max(figure, self.low), self.high)
        if self.low > 0.0:
            return float(np.log(figure / self.low) / np.log(self.high / self.low))
        return float((figure / self.high) ** (1.0 / self.power))


def minimise(
    loss: Callable[[Sequence[float]], float],
    bounds: Sequence[Bound],
    start: Sequence[float],
    *,
    generations: int = 100,
    seed: int = 1,
) -> tuple[list[float], float]:
    """The figures of least loss that were found, and that loss; never worse than ``start`` within the bounds."""
    random = np.random.default_rng(seed)
    count, size = len(bounds), MEMBERS * len(bounds)

    def loss_at(places: npt.NDArray[Any]) -> float:
        return loss([bound.at(float(place)) for bound, place in zip(bounds, places, strict=True)])

    # One member in each slice of every axis (a Latin hypercube), and the start.
    population = (random.permuted(np.tile(np.arange(size), (count, 1)), axis=1).T + random.random((size, count))) / size
    population[0] = [bound.place(figure) for bound, figure in zip(bounds, start, strict=True)]
    losses = np.array([loss_at(member) for member in population])
    for _ in range(generations):
        if np.std(losses) <= CONVERGED * np.mean(losses):
            break
        factor = random.uniform(0.5, 1.0)
        for index in range(size):
            first, second = population[random.choice(size, 2, replace=False)]
            mutant = population[np.argmin(losses)] + factor * (first - second)
            mutant = np.where((mutant < 0.0) | (mutant > 1.0), random.random(count), mutant)
            crossed = random.random(count) < CROSSOVER
            crossed[random.integers(count)] = True
            trial = np.where(crossed, mutant, population[index])
            if (trial_loss := loss_at(trial)) <= losses[index]:
                population[index], losses[index] = trial, trial_loss
    best = int(np.argmin(losses))
    return [bound.at(float(place)) for bound, place in zip(bounds, population[best], strict=True)], float(losses[best])
