"""The chapter of results: the metrics, what is to be said beside them, and each iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensor_cast.evaluation.language import Language
from tensor_cast.evaluation.pages.blocks import Block, Column, Heading, Paragraph, Table
from tensor_cast.evaluation.results import Results
from tensor_cast.units import byte_size, duration, percent

_TIMES = (
    ("ttft_s", "TTFT, without queueing"),
    ("tpot_s", "TPOT"),
    ("step_time_s", "Denoising step"),
    ("forward_time_s", "One forward"),
    ("idle_s", "Time between kernels"),
)
"""Metrics that only some kinds of evaluation have, in the order of the table."""

_Row = tuple[str, str]


def metrics_chapter(results: Results, t: Language) -> list[Block]:
    """The metrics table, warnings, and the table of iterations."""
    rows = (*_time_rows(results, t), *_rate_rows(results, t), *_memory_rows(results, t))
    return [
        Table((Column(t("Metric")), Column(t("Value"))), rows),
        *(Paragraph(t.warning(text), "warning") for text in results.summary["estimate"].get("warnings", ())),
        Heading(t("Iterations"), 3),
        *_iterations(results, t),
    ]


def likely_range(metrics: Mapping[str, Any]) -> str:
    """The times between which the true one lies in four cases of five; empty where that is not known."""
    if metrics.get("error_low") is None or metrics.get("error_high") is None:
        return ""
    ends = (duration(metrics["execution_time_s"] * (1.0 + metrics[name])) for name in ("error_low", "error_high"))
    return " - ".join(ends)


def _time_rows(results: Results, t: Language) -> list[_Row]:
    metrics = results.summary["metrics"]
    rows = [(t("Execution time"), duration(metrics["execution_time_s"]))]
    if likely := likely_range(metrics):
        rows.append((t("Likely range, in four cases of five"), likely))
    rows += [(t(name), duration(metrics[key])) for key, name in _TIMES if metrics.get(key) is not None]
    if metrics.get("tokens_per_s_per_device") is not None:
        rows.append((t("Tokens/s a device"), f"{metrics['tokens_per_s_per_device']:,.1f}"))
    for stage in results.summary["estimate"].get("stages", ()):
        text = f"{duration(stage['total_s'])} ({percent(stage['share'])})"
        rows.append((t("Stage {stage}", stage=t.known(stage["name"])), text))
    return rows


def _rate_rows(results: Results, t: Language) -> list[_Row]:
    metrics = results.summary["metrics"]
    flops, rate = metrics["achieved_flops_per_s"], metrics["achieved_bytes_per_s"]
    of_peak, of_bandwidth = _of_peak(flops, results, t), _of_bandwidth(rate, results, t)
    return [
        (t("Parameters of the model"), _parameters(results.summary["estimate"]["parameters"], t)),
        (t("Reached compute rate of a device"), f"{flops / 1e12:,.1f} TFLOP/s{of_peak}"),
        (t("Reached memory rate of a device"), f"{rate / 1e9:,.1f} GB/s{of_bandwidth}"),
    ]


def _parameters(parameters: Mapping[str, Any], t: Language) -> str:
    total, active = parameters.get("total"), parameters.get("active")
    if not isinstance(total, int):
        return ", ".join(f"{name} {value:,}" for name, value in parameters.items() if isinstance(value, int))
    if active in (None, total):
        return f"{total:,}"
    return t("{total:,}, active {active:,}", total=total, active=active)


def _of_peak(flops: float, results: Results, t: Language) -> str:
    peak = _device_figure(results, "matrix_flops.bfloat16")
    return "" if not peak else " " + t("({share} of the BF16 peak)", share=percent(flops / peak))


def _of_bandwidth(rate: float, results: Results, t: Language) -> str:
    peak = _device_figure(results, "memory_bandwidth")
    return "" if not peak else " " + t("({share} of the peak)", share=percent(rate / peak))


def _device_figure(results: Results, path: str) -> float | None:
    figures = results.config["device"]["figures"]
    return next((float(figure["value"]) for figure in figures if figure["path"] == path), None)


def _memory_rows(results: Results, t: Language) -> list[_Row]:
    metrics = results.summary["metrics"]
    return [
        (t("Memory used"), byte_size(metrics["memory_used_bytes"])),
        (t("Fits"), t("yes") if metrics["fits"] else t("no")),
    ]


def _iterations(results: Results, t: Language) -> list[Block]:
    iterations = results.summary["iterations"]
    table = Table(
        (
            Column(t("Iteration")),
            Column(t("Execution time"), right=True),
            Column(t("Time of the simulation"), right=True),
            Column(t("Log")),
        ),
        tuple(
            (
                str(one["iteration"]),
                duration(one["execution_time_s"]),
                duration(one["wall_time_s"]),
                f"`{one['log']}`",
            )
            for one in iterations
        ),
    )
    if results.summary["status"] != "ok" or len(iterations) < 2:
        return [table]
    agreement = t("All iterations, each in a fresh process, found the same figures to the last digit.")
    return [table, Paragraph(agreement, "good")]
