"""``summary.json``: what the iterations found, and whether they agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensor_cast.evaluation.agreement import differences
from tensor_cast.evaluation.kernel_rows import row_to_dict
from tensor_cast.evaluation.results import log_name
from tensor_cast.evaluation.simulator_process import Simulation
from tensor_cast.ops import CATEGORIES

SCHEMA_VERSION = 1
OK, ERROR = "ok", "error"
TOP_KERNELS = 15


def summarise(simulations: Sequence[Simulation]) -> dict[str, Any]:
    """The summary of all iterations; the figures are the first one's, which the others must equal."""
    first = simulations[0]
    document = first.document
    errors = differences([simulation.document for simulation in simulations])
    errors += differences([[row_to_dict(row) for row in simulation.kernels] for simulation in simulations])
    return {
        "schema_version": SCHEMA_VERSION,
        "status": ERROR if errors else OK,
        "errors": errors,
        "iterations": [
            {
                "iteration": number,
                "log": log_name(number),
                "execution_time_s": simulation.document["total_time_s"],
                "wall_time_s": round(simulation.wall_time_s, 3),
            }
            for number, simulation in enumerate(simulations, start=1)
        ],
        "metrics": metrics(document),
        "operators": {
            "categories": categories(document),
            "bounds": bounds(document),
            "top_kernels": sorted(document["ops"], key=lambda op: -op["total_s"])[:TOP_KERNELS],
        },
        "collectives": document["collectives"],
        "memory": document["memory"],
        "kernels": [row_to_dict(row) for row in first.kernels],
        "estimate": document,
    }


def metrics(document: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that a result is quoted by, of those that the simulation has.

    ``achieved_flops_per_s`` and ``achieved_bytes_per_s`` are one device's, over the whole time.
    """
    time_s = document["total_time_s"]
    wanted = (
        *("error_low", "error_high", "idle_s", "ttft_s", "tpot_s", "tokens_per_s_per_device"),
        *("step_time_s", "forward_time_s"),
    )
    memory = document["memory"]
    return {
        "execution_time_s": time_s,
        **{name: document[name] for name in wanted if document.get(name) is not None},
        "achieved_flops_per_s": sum(op["flops"] for op in document["ops"]) / time_s,
        "achieved_bytes_per_s": sum(op["bytes"] for op in document["ops"]) / time_s,
        "memory_used_bytes": memory["device_bytes"] - memory["available_bytes"],
        "fits": memory["fits"],
    }


def categories(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Seconds, share of all kernels and of the time between them, calls, and the longest kernel of each category."""
    found: dict[str, dict[str, Any]] = {}
    total = sum(document["categories"].values()) + idle_s(document)
    for name in CATEGORIES:
        members = [op for op in document["ops"] if op["category"] == name]
        seconds = document["categories"][name]
        longest = max(members, key=lambda op: op["total_s"], default=None)
        found[name] = {
            "total_s": seconds,
            "share": seconds / total if total else 0.0,
            "calls": sum(op["count"] for op in members),
            "longest": None if longest is None else f"{longest['name']} ({longest['part']})",
        }
    return found


def bounds(document: Mapping[str, Any]) -> dict[str, float]:
    """Seconds of kernels by what bounds them, the longest first."""
    found: dict[str, float] = {}
    for op in document["ops"]:
        found[op["bound"]] = found.get(op["bound"], 0.0) + op["total_s"]
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def idle_s(document: Mapping[str, Any]) -> float:
    """Seconds in which no kernel runs."""
    return float(document.get("idle_s") or 0.0)


@dataclass(frozen=True)
class Shares:
    """Fractions of the time that rules ask for: of all kernels and of the time between them together."""

    idle: float
    by_bound: Mapping[str, float]
    by_category: Mapping[str, float]
    by_both: Mapping[tuple[str, str], float]


def shares(document: Mapping[str, Any]) -> Shares:
    """Fractions of the time: between kernels, by bound, by category, and by both."""
    total = sum(op["total_s"] for op in document["ops"]) + idle_s(document) or 1.0
    by_bound: dict[str, float] = {}
    by_category: dict[str, float] = dict.fromkeys(CATEGORIES, 0.0)
    by_both: dict[tuple[str, str], float] = {}
    for op in document["ops"]:
        share, bound, category = op["total_s"] / total, op["bound"], op["category"]
        by_bound[bound] = by_bound.get(bound, 0.0) + share
        by_category[category] += share
        by_both[category, bound] = by_both.get((category, bound), 0.0) + share
    return Shares(idle_s(document) / total, by_bound, by_category, by_both)
