"""How many experts a step's tokens pick, and how unevenly their rows fall on expert-parallel ranks."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from tensor_cast.errors import ModelingError
from tensor_cast.layers.build import Build
from tensor_cast.quantity import Quantity


def expected_distinct(experts: int, experts_per_token: int, tokens: Quantity) -> Quantity:
    """Experts that at least one of ``tokens`` picks, each picking ``experts_per_token`` of ``experts`` at random.

    ``E (1 - (1 - k/E)^T)``: an expert is missed by one token with probability ``1 - k/E``.
    """
    return experts * (1.0 - np.power(1.0 - experts_per_token / experts, tokens))


def expected_skew(spread: float, experts: int, ranks: int) -> float:
    """Rows of the busiest of ``ranks`` over the mean, if an expert's rows vary by ``spread`` (deviation over mean).

    A rank adds up ``experts / ranks`` of them, so that its rows vary by ``spread sqrt(ranks / experts)``; the largest
    of as many normal variables lies where Blom (1958) expects it, at the quantile ``(n - 3/8) / (n + 1/4)``.
    """
    largest = NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))
    return 1.0 + spread * math.sqrt(ranks / experts) * largest


def expert_skew(build: Build, experts: int) -> float:
    """Rows of the busiest expert-parallel rank over the mean of all: 1 when routing is balanced, at most their number.

    Raises:
        ModelingError: more than one rank could ever get.
    """
    skew, ranks = build.deployment.expert_skew, build.parallel.ep
    if ranks == 1:
        return 1.0
    if skew is None:
        return min(expected_skew(build.expert_spread, experts, ranks), float(ranks))
    if skew > ranks:
        raise ModelingError(
            f"--expert-skew {skew:g} is more than the {ranks} expert-parallel ranks: the busiest cannot have more than "
            "everything."
        )
    return skew
