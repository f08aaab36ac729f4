"""Advice with its gain: every variant that a finding names is really run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensor_cast.evaluation.findings import Finding, Variant
from tensor_cast.evaluation.flags import as_arguments, command_line
from tensor_cast.evaluation.request import EvaluationRequest
from tensor_cast.evaluation.simulator_process import SimulatorError, simulate_in_process

NOTABLE = 0.01
"""A gain of less than this counts as none."""


def advise(
    findings: Sequence[Finding],
    request: EvaluationRequest,
    document: Mapping[str, Any],
    on_variant: Callable[[str], None] = lambda _change: None,
) -> list[dict[str, Any]]:
    """What became of each variant, in the findings' order; a variant that several findings name is run once."""
    advice: list[dict[str, Any]] = []
    seen: set[str] = set()
    for finding in findings:
        for variant in finding.variants:
            change = command_line(*as_arguments(variant.changes))
            if change not in seen:
                seen.add(change)
                on_variant(change)
                advice.append({"rule": finding.rule, "change": change, **_outcome(variant, request, document)})
    return advice


def _outcome(variant: Variant, request: EvaluationRequest, document: Mapping[str, Any]) -> dict[str, Any]:
    common = {
        "command": request.simulator_command(variant.changes),
        "changes_result": variant.changes_result,
    }
    try:
        found = simulate_in_process(request.arguments(variant.changes)).document
    except SimulatorError as refusal:
        return {**common, "outcome": "refused", "reason": str(refusal).partition("\n")[0]}
    before, after = throughput(document), throughput(found)
    return {
        **common,
        "outcome": "ran",
        "execution_time_s": found["total_time_s"],
        "throughput_per_device": after,
        "fits": found["memory"]["fits"],
        "makes_it_fit": found["memory"]["fits"] and not document["memory"]["fits"],
        "throughput_gain": after / before - 1.0,
        "time_change": found["total_time_s"] / document["total_time_s"] - 1.0,
    }


def throughput(document: Mapping[str, Any]) -> float:
    """What one device yields a second: tokens of a language model, else samples."""
    tokens = document.get("tokens_per_s_per_device")
    if tokens is not None:
        return float(tokens)
    samples = float(document["workload"].get("batch_size") or 1)
    return samples / float(document["total_time_s"]) / int(document["deployment"]["parallel"]["world"])


def is_gain(outcome: Mapping[str, Any]) -> bool:
    """Whether a variant ran, fits, and is better: by fitting at all, by throughput, or by time."""
    if outcome["outcome"] != "ran" or not outcome["fits"]:
        return False
    return bool(outcome["makes_it_fit"] or outcome["throughput_gain"] > NOTABLE or outcome["time_change"] < -NOTABLE)
