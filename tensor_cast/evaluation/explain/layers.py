"""The three layers of an explanation, each adding up to the one above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensor_cast.errors import ModelingError
from tensor_cast.evaluation.explain.kernel_families import TRAINING
from tensor_cast.evaluation.explain.matching import KernelMatch, match_kernels
from tensor_cast.evaluation.explain.profile_rows import profile_paths, read_profile
from tensor_cast.evaluation.explain.steps import Gap, MeasuredStep, choose_step
from tensor_cast.evaluation.kernel_rows import row_from_dict
from tensor_cast.evaluation.results import Results
from tensor_cast.evaluation.summary import idle_s
from tensor_cast.ops import CATEGORIES

SCHEMA_VERSION = 1
GAPS, OVERLAP = "between kernels", "overlapped"
_SHOWN_GAPS = 10


@dataclass(frozen=True)
class Part:
    """A part of the step on both sides, in seconds; overlaps are negative."""

    name: str
    measured_s: float
    predicted_s: float

    @property
    def difference_s(self) -> float:
        """What was measured more than predicted."""
        return self.measured_s - self.predicted_s


@dataclass(frozen=True)
class Explanation:
    """Measured against predicted. ``parts`` add up to the step on either side, ``kernels`` to the parts."""

    results: Results
    profile: str
    step: MeasuredStep
    parts: tuple[Part, ...]
    kernels: tuple[KernelMatch, ...]
    malformed: int

    @property
    def measured_s(self) -> float:
        """The whole step as it was measured."""
        return self.step.total_s

    @property
    def predicted_s(self) -> float:
        """The whole step as the evaluation has it; of a generation, one run of each kind, as its trace."""
        return sum(part.predicted_s for part in self.parts)

    @property
    def difference_s(self) -> float:
        """What was measured more than predicted."""
        return self.measured_s - self.predicted_s

    @property
    def largest(self) -> Part:
        """The part where most of the difference sits."""
        sign = 1.0 if self.difference_s >= 0.0 else -1.0
        return max(self.parts, key=lambda part: sign * part.difference_s)

    @property
    def training_s(self) -> float:
        """Time of kernels that only training has."""
        return sum(match.measured_s for match in self.kernels if match.family.endswith(TRAINING))

    @property
    def longest_gaps(self) -> list[Gap]:
        """The longest times between kernels."""
        return self.step.gaps[:_SHOWN_GAPS]

    def kernels_of(self, category: str) -> list[KernelMatch]:
        """Kernels of one category, the greatest difference first."""
        return [match for match in self.kernels if match.category == category]


def explain(
    profile: Path, results: Results, *, step: str | None = None, rank: str | None = None, repeats: int = 1
) -> Explanation:
    """Hold a profile, a file or a directory, against a recorded evaluation.

    Raises:
        ModelingError: the profile cannot be read, or has no such step or rank; the results have no kernels.
    """
    rows = results.summary.get("kernels")
    if not rows:
        raise ModelingError(f"{results.directory} has no kernels by shape to explain; evaluate again.")
    read = read_profile(profile_paths(profile))
    measured = choose_step(read.kernels, step=step, rank=rank, repeats=repeats)
    kernels = match_kernels(measured, [row_from_dict(row) for row in rows])
    parts = _parts(measured, kernels, results)
    return Explanation(results, str(profile), measured, tuple(parts), tuple(kernels), read.malformed)


def _parts(step: MeasuredStep, kernels: Sequence[KernelMatch], results: Results) -> list[Part]:
    parts = [
        Part(
            name,
            sum(match.measured_s for match in kernels if match.category == name),
            sum(match.predicted_s for match in kernels if match.category == name),
        )
        for name in CATEGORIES
    ]
    estimate = results.summary["estimate"]
    overlapped_s = float(estimate.get("overlapped_s", 0.0))
    # A generation's kernels are of one run of each kind, so the gaps are of as many launches.
    launches = sum(op["count"] for op in estimate["ops"])
    shown = sum(row["count"] for row in results.summary["kernels"])
    predicted_gaps_s = idle_s(estimate) * shown / launches if launches else 0.0
    parts.append(Part(GAPS, _settled(step.gaps_s), _settled(predicted_gaps_s)))
    parts.append(Part(OVERLAP, _settled(-step.overlap_s), _settled(-overlapped_s)))
    return parts


def _settled(seconds: float) -> float:
    """Without the rounding that a difference of equal sums leaves."""
    return seconds if abs(seconds) >= 1e-9 else 0.0


def explanation_to_dict(found: Explanation) -> dict[str, Any]:
    """The explanation as JSON takes it."""
    return {
        "schema_version": SCHEMA_VERSION,
        "profile": found.profile,
        "results": str(found.results.directory),
        "rank": found.step.rank,
        "step": found.step.step or None,
        "repeats": found.step.repeats,
        "steps_s": found.step.steps_s,
        "kernels_outside_steps": found.step.outside,
        "malformed_lines": found.malformed,
        "step_time": {
            "measured_s": found.measured_s,
            "predicted_s": found.predicted_s,
            "difference_s": found.difference_s,
        },
        "categories": [
            {
                "name": part.name,
                "measured_s": part.measured_s,
                "predicted_s": part.predicted_s,
                "difference_s": part.difference_s,
            }
            for part in found.parts
        ],
        "kernels": [
            {
                "family": match.family,
                "category": match.category,
                "shapes": match.shapes,
                "measured": {
                    "names": list(match.measured_names),
                    "calls": match.measured_calls,
                    "total_s": match.measured_s,
                },
                "predicted": {
                    "names": list(match.predicted_names),
                    "calls": match.predicted_calls,
                    "total_s": match.predicted_s,
                },
                "difference_s": match.difference_s,
                "calls_difference_s": match.calls_difference_s,
                "time_difference_s": match.time_difference_s,
                "verdict": match.verdict,
            }
            for match in found.kernels
        ],
        "gaps": {
            "count": len(found.step.gaps),
            "total_s": found.step.gaps_s,
            "longest": [
                {"seconds": gap.seconds, "after": gap.after, "before": gap.before} for gap in found.longest_gaps
            ],
        },
    }
