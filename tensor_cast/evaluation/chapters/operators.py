"""The chapter of operators: time by category, what bounds it, and the longest kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensor_cast.evaluation.language import Language
from tensor_cast.evaluation.pages.blocks import Bar, Block, Column, Figure, Heading, Paragraph, Table
from tensor_cast.evaluation.pages.charts import Part, bars, stacked_bar
from tensor_cast.evaluation.results import Results
from tensor_cast.evaluation.summary import idle_s
from tensor_cast.units import column_unit, duration, percent

_SHOWN_KERNELS = 12
_CHART_KERNELS = 8


def operators_chapter(results: Results, t: Language) -> list[Block]:
    """Categories, bounds and top kernels."""
    operators, estimate = results.summary["operators"], results.summary["estimate"]
    idle = idle_s(estimate)
    total_s = sum(op["total_s"] for op in estimate["ops"]) + idle or 1.0
    between = [Part(t("between kernels"), idle, percent(idle / total_s), "gap")] if idle else []
    blocks: list[Block] = [
        _category_chart(operators["categories"], between, t),
        _category_table(operators["categories"], idle, t),
    ]
    if (hidden := estimate.get("overlapped_s", 0.0)) > 0.0:
        blocks.append(Paragraph(t("{time} of these run hidden behind others.", time=duration(hidden)), "quiet"))
    return [*blocks, *_bounds(operators["bounds"], total_s, between, t), *_kernels(estimate["ops"], total_s, t)]


def _category_chart(categories: Mapping[str, Any], between: Sequence[Part], t: Language) -> Figure:
    parts = [Part(name, one["total_s"], percent(one["share"]), name) for name, one in categories.items()]
    return Figure(
        stacked_bar(t("Time by category"), [*parts, *between]),
        t("Share of each category, and of the time between kernels"),
    )


def _category_table(categories: Mapping[str, Any], idle: float, t: Language) -> Table:
    size, unit = column_unit([one["total_s"] for one in categories.values()])
    return Table(
        (
            Column(t("Category")),
            Column(t("Time {unit}", unit=unit), right=True),
            Column(t("Share")),
            Column(t("Calls"), right=True),
            Column(t("Longest kernel")),
        ),
        tuple(
            (
                name,
                f"{one['total_s'] / size:,.3f}",
                Bar(percent(one["share"]), one["share"], name),
                f"{one['calls']:,.0f}",
                one["longest"] or "-",
            )
            for name, one in categories.items()
        ),
        note=t("Between kernels: {time}.", time=duration(idle)) if idle else "",
    )


def _bounds(bounds: Mapping[str, float], total_s: float, between: Sequence[Part], t: Language) -> list[Block]:
    parts = [Part(t.known(name), seconds, percent(seconds / total_s), name) for name, seconds in bounds.items()]
    return [
        Heading(t("What bounds the time"), 3),
        Figure(
            stacked_bar(t("Time by bound"), [*parts, *between]),
            t(
                "Each kernel counts for what bounds it: matrix units, vector units, memory, links (comm), its fixed "
                "cost, or waiting"
            ),
            ", ".join(f"{t.known(name)} {percent(seconds / total_s)}" for name, seconds in bounds.items()),
        ),
    ]


def _kernels(ops: Sequence[Mapping[str, Any]], total_s: float, t: Language) -> list[Block]:
    longest = sorted(ops, key=lambda op: -float(op["total_s"]))
    return [Heading(t("Top kernels"), 3), _kernel_chart(longest, t), _kernel_table(longest, total_s, t)]


def _kernel_chart(longest: Sequence[Mapping[str, Any]], t: Language) -> Figure:
    parts = [
        Part(f"{op['name']} · {op['part']}", op["total_s"], duration(op["total_s"]), op["category"])
        for op in longest[:_CHART_KERNELS]
    ]
    return Figure(
        bars(t("Longest kernels"), parts),
        t("The longest kernels, all their calls together, in the colour of their category"),
    )


def _kernel_table(longest: Sequence[Mapping[str, Any]], total_s: float, t: Language) -> Table:
    shown, rest = longest[:_SHOWN_KERNELS], longest[_SHOWN_KERNELS:]
    size, unit = column_unit([op["total_s"] for op in shown])
    note = ""
    if rest:
        seconds = sum(op["total_s"] for op in rest)
        note = t("{count} more kernels take {share} together.", count=len(rest), share=percent(seconds / total_s))
    return Table(
        (
            Column(t("Kernel")),
            Column(t("Part of the model")),
            Column(t("Calls"), right=True),
            Column(t("Time {unit}", unit=unit), right=True),
            Column(t("Average us"), right=True),
            Column(t("Share")),
            Column(t("Bound by")),
            Column(t("Source")),
        ),
        tuple(
            (
                op["name"],
                op["part"],
                f"{op['count']:,.0f}",
                f"{op['total_s'] / size:,.3f}",
                f"{op['average_s'] * 1e6:,.1f}",
                Bar(percent(op["total_s"] / total_s), op["total_s"] / total_s, op["category"]),
                t.known(op["bound"]),
                t.known(op["source"]),
            )
            for op in shown
        ),
        note=note,
    )
