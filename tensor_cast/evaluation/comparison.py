"""Several evaluations side by side, and what makes them differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tensor_cast.errors import ModelingError
from tensor_cast.evaluation.advice import throughput
from tensor_cast.evaluation.results import COMPARE_DIRECTORY, Results
from tensor_cast.evaluation.summary import idle_s
from tensor_cast.ops import CATEGORIES

BETWEEN = "between kernels"


@dataclass(frozen=True)
class Compared:
    """One evaluation with a letter to call it by."""

    letter: str
    results: Results

    @property
    def time_s(self) -> float:
        """Execution time in seconds."""
        return float(self.results.summary["metrics"]["execution_time_s"])

    @property
    def throughput(self) -> float:
        """Tokens, or samples, a second and device."""
        return throughput(self.results.summary["estimate"])

    @property
    def categories(self) -> dict[str, float]:
        """Seconds by category."""
        return {name: float(self.results.summary["operators"]["categories"][name]["total_s"]) for name in CATEGORIES}

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by category, and of the time between kernels."""
        return {**self.categories, BETWEEN: idle_s(self.results.summary["estimate"])}

    @property
    def kernels(self) -> dict[tuple[str, str, str], float]:
        """Seconds by category, kernel and part of the model."""
        found: dict[tuple[str, str, str], float] = {}
        for op in self.results.summary["estimate"]["ops"]:
            key = (op["category"], op["name"], op["part"])
            found[key] = found.get(key, 0.0) + float(op["total_s"])
        return found


@dataclass(frozen=True)
class KernelDifference:
    """A kernel's seconds in the first and in another evaluation; None where it does not run."""

    category: str
    name: str
    part: str
    first_s: float | None
    other_s: float | None

    @property
    def difference_s(self) -> float:
        """What the other takes more."""
        return (self.other_s or 0.0) - (self.first_s or 0.0)


def compared(evaluations: Sequence[Results]) -> list[Compared]:
    """The evaluations as A, B, C and so on; the first is what the others are held against.

    Raises:
        ModelingError: there are fewer than two or more than 26, they are of different kinds, or one is given twice.
    """
    if not 2 <= len(evaluations) <= 26:
        raise ModelingError(f"Compare 2 to 26 results directories, not {len(evaluations)}.")
    kinds = {results.config["kind"] for results in evaluations}
    if len(kinds) > 1:
        raise ModelingError(f"Results of different kinds cannot be compared: {', '.join(sorted(kinds))}.")
    paths = [results.directory.resolve() for results in evaluations]
    for index, path in enumerate(paths):
        if path in paths[:index]:
            raise ModelingError(f"{evaluations[index].directory} is given twice.")
    return [Compared(chr(ord("A") + index), results) for index, results in enumerate(evaluations)]


def kernel_differences(first: Compared, other: Compared) -> list[KernelDifference]:
    """Every kernel of either, the greatest difference first."""
    ours, theirs = first.kernels, other.kernels
    found = [KernelDifference(*key, ours.get(key), theirs.get(key)) for key in dict.fromkeys([*ours, *theirs])]
    return sorted(found, key=lambda one: -abs(one.difference_s))


def differing_parameters(evaluations: Sequence[Compared]) -> dict[str, list[Any]]:
    """Parameters whose value is not the same everywhere, with each evaluation's."""
    every = [_settings(one.results.config) for one in evaluations]
    names = dict.fromkeys(name for settings in every for name in settings)
    rows = {name: [settings.get(name) for settings in every] for name in names}
    found = {name: values for name, values in rows.items() if any(value != values[0] for value in values[1:])}
    # A size that one left out and another gave is no difference where both resolve to the same.
    same = {_flag_of(name) for name in rows if name not in found}
    found = {name: values for name, values in found.items() if name not in same}
    # Resolved sizes are told where no flag of the same size tells them.
    return {name: values for name, values in found.items() if _flag_of(name) not in found}


def same_workload(evaluations: Sequence[Compared]) -> bool:
    """Whether all price the same work of the same model, so that their times can be divided."""
    every = [
        (one.results.config["model"]["reference"], one.results.summary["estimate"]["workload"]) for one in evaluations
    ]
    return all(one == every[0] for one in every[1:])


def comparison_path(evaluations: Sequence[Compared], directory: Path | None, now: datetime) -> Path:
    """Where the comparison goes: ``compare/`` beside the first results; never an existing file."""
    root = directory or evaluations[0].results.directory.resolve().parent / COMPARE_DIRECTORY
    stem = f"comparison_{now:%Y%m%d_%H%M%S}"
    path, number = root / f"{stem}.md", 2
    while path.exists():
        path, number = root / f"{stem}_{number}.md", number + 1
    return path


def _flag_of(name: str) -> str | None:
    return f"{name.removeprefix('parallel ')}_size" if name.startswith("parallel ") else None


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    parallel = {f"parallel {name}": size for name, size in config["parallel"].items()}
    return {**config["parameters"], "device": config["device"]["name"], **parallel}
