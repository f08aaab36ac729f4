"""How many kernels of a model a database answers for, before and after new rows are measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tensor_cast.performance_model.profiling_database.coverage import REPLAYED_KERNELS
from tools.perf_data_collection.grid_generator.candidates import Structure
from tools.perf_data_collection.grid_generator.model_structures import ModelNeeds, Need

if TYPE_CHECKING:
    from tools.perf_data_collection.grid_generator.grid import FilePlan


class Rows:
    """Structures that have rows; asked whether one is among them, whatever dtypes the asker leaves open."""

    def __init__(self, structures: Iterable[Structure]) -> None:
        self._dtypes: dict[tuple[object, tuple[float, ...]], list[dict[str, str]]] = {}
        for one in structures:
            self._dtypes.setdefault((one.kernel, one.widths), []).append(dict(one.dtypes))

    def has(self, structure: Structure) -> bool:
        """Whether rows of this kernel, these widths and these dtypes are there."""
        asked = dict(structure.dtypes)
        found = self._dtypes.get((structure.kernel, structure.widths), ())
        return any(all(dtypes.get(name, dtype) == dtype for name, dtype in asked.items()) for dtypes in found)

    def cover(self, need: Need) -> bool:
        """Whether one way of launching the op has rows for each of its kernels."""
        return any(all(self.has(structure) for structure in way) for way in need.ways)


def _missing(need: Need, present: Rows) -> set[str]:
    """Kernels without rows of the likeliest way that replay can run, else of the likeliest way."""
    if not need.ways:
        return set()
    replayed = (way for way in need.ways if all(one.kernel.name in REPLAYED_KERNELS for one in way))
    return {one.kernel.name for one in next(replayed, need.ways[0]) if not present.has(one)}


def coverage_lines(needs: Sequence[ModelNeeds], plans: Sequence[FilePlan]) -> list[str]:
    """A line a model, and the kernels that its ops need and no file has."""
    if not needs:
        return []
    timed = Rows(structure for plan in plans for structure in plan.timed)
    present = Rows(structure for plan in plans for structure in (*plan.present, *plan.planned))
    width = max(len(model.model) for model in needs)
    lines = [f"{'kernels of all deployments':<{width + 2}}{'ops':>6}{'timed now':>12}{'when measured':>16}"]
    missing: Counter[str] = Counter()
    for model in needs:
        total = len(model.needs)
        counts = [sum(rows.cover(need) for need in model.needs) for rows in (timed, present)]
        now, then = (f"{count} ({count / total:.0%})" for count in counts)
        lines.append(f"{model.model:<{width + 2}}{total:>6}{now:>12}{then:>16}")
        missing.update(name for need in model.needs if not present.cover(need) for name in _missing(need, present))
    replayed, others = (
        ", ".join(f"{name} {count}" for name, count in missing.most_common() if (name in REPLAYED_KERNELS) == wanted)
        for wanted in (True, False)
    )
    if replayed:
        lines.append(f"Still without rows, for more --rows or these --ops: {replayed}.")
    if others:
        lines.append(f"Without rows, and for profiles alone, as they cannot be replayed: {others}.")
    unknown = sorted({name for model in needs for name in model.unknown})
    if unknown:
        lines.append(f"Ops without a kernel of their own, timed by the analytic model: {', '.join(unknown)}.")
    return lines
