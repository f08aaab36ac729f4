"""Kernels by name, part and shapes: what a simulation's trace holds, added up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tensor_cast.ops import CATEGORIES, Category

Shape = tuple[int, ...]


@dataclass(frozen=True)
class KernelRow:
    """All launches of one kernel with one set of shapes; ``total_s`` of them together."""

    name: str
    part: str
    category: Category
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    count: float
    total_s: float
    bound: str
    group_size: int | None = None

    @property
    def average_s(self) -> float:
        """Seconds of one launch."""
        return self.total_s / self.count


@dataclass
class _Sum:
    count: float = 0.0
    total_s: float = 0.0
    bounds: dict[str, float] = field(default_factory=dict)


_MICROSECOND = 1e-6
_MERGED_SCOPE = re.compile(r" x ([0-9.e+]+)$")


def rows_of_trace(trace: Mapping[str, Any]) -> tuple[KernelRow, ...]:
    """Rows of a Chrome trace that the simulator wrote, in order of first launch."""
    sums: dict[tuple[Any, ...], _Sum] = {}
    for event in trace["traceEvents"]:
        if event["ph"] != "X" or event["cat"] not in CATEGORIES:
            continue  # names of tracks, and time without a kernel
        args = event["args"]
        key = (
            event["name"],
            args["part"],
            event["cat"],
            _shapes(args["inputs"]),
            _shapes(args["outputs"]),
            tuple(tensor["dtype"] for tensor in args["inputs"]),
            args.get("group_size"),
        )
        total = sums.setdefault(key, _Sum())
        seconds = event["dur"] * _MICROSECOND
        total.count += _launches(args["scope"])
        total.total_s += seconds
        total.bounds[args["bound"]] = total.bounds.get(args["bound"], 0.0) + seconds
    return tuple(
        KernelRow(
            name=name,
            part=part,
            category=category,
            inputs=inputs,
            outputs=outputs,
            dtypes=dtypes,
            count=total.count,
            total_s=total.total_s,
            bound=max(total.bounds, key=lambda bound: total.bounds[bound]),
            group_size=group_size,
        )
        for (name, part, category, inputs, outputs, dtypes, group_size), total in sums.items()
    )


def row_to_dict(row: KernelRow) -> dict[str, Any]:
    """A row as JSON takes it."""
    return {
        "name": row.name,
        "part": row.part,
        "category": row.category,
        "inputs": [list(shape) for shape in row.inputs],
        "outputs": [list(shape) for shape in row.outputs],
        "dtypes": list(row.dtypes),
        "count": row.count,
        "total_s": row.total_s,
        "bound": row.bound,
        "group_size": row.group_size,
    }


def row_from_dict(row: Mapping[str, Any]) -> KernelRow:
    """The row that ``row_to_dict`` wrote."""
    assert row["category"] in CATEGORIES
    return KernelRow(
        **{
            **row,
            "inputs": tuple(tuple(shape) for shape in row["inputs"]),
            "outputs": tuple(tuple(shape) for shape in row["outputs"]),
            "dtypes": tuple(row["dtypes"]),
        }
    )


def _shapes(tensors: list[dict[str, Any]]) -> tuple[Shape, ...]:
    return tuple(tuple(round(size) for size in tensor["shape"]) for tensor in tensors)


def _launches(scope: str) -> float:
    """A trace of a very long run draws a block once and names its scope ``layers x 40``."""
    merged = _MERGED_SCOPE.search(scope)
    return float(merged[1]) if merged else 1.0


def kernels_alone(document: dict[str, Any]) -> dict[str, Any]:
    """A simulation's JSON with rows and categories of kernels alone, as a profiler times them.

    There an analytic row holds the gaps between its launches too (``parts_s.wait``); here they are in ``idle_s`` only.
    """
    ops = [_kernel_alone(op, document["total_time_s"]) for op in document["ops"]]
    categories = {name: sum(op["total_s"] for op in ops if op["category"] == name) for name in document["categories"]}
    return {**document, "ops": ops, "categories": categories}


def _kernel_alone(op: dict[str, Any], step_s: float) -> dict[str, Any]:
    gaps_s = op["parts_s"]["wait"]
    # A pipeline's wait for its micro-batches is a row of its own, all of it waiting.
    if op["bound"] == "wait" or not gaps_s:
        return op
    total_s = op["total_s"] - gaps_s
    average_s = total_s / op["count"] if op["count"] else 0.0
    parts_s = {**op["parts_s"], "wait": 0.0}
    return {**op, "total_s": total_s, "average_s": average_s, "share": total_s / step_s, "parts_s": parts_s}
