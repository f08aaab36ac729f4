"""The chapter of communication: each collective, how often, how much, over which link, how fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensor_cast.evaluation.language import Language
from tensor_cast.evaluation.pages.blocks import Block, Column, Figure, Paragraph, Table
from tensor_cast.evaluation.pages.charts import Part, bars
from tensor_cast.evaluation.results import Results
from tensor_cast.units import byte_size, column_unit, duration, percent


def communication_chapter(results: Results, t: Language) -> list[Block]:
    """The time of each kind of collective, and a table of all."""
    found = _merged(results.summary["collectives"])
    if not found:
        return [Paragraph(t("This strategy needs no collective."))]
    share = sum(one["total_s"] for one in found if not one["fused"]) / results.summary["metrics"]["execution_time_s"]
    blocks: list[Block] = [
        Paragraph(t("Communication takes {share} of the time.", share=percent(share))),
        _chart(found, t),
        _table(found, t),
    ]
    if any(one.get("fused") for one in found):
        blocks.append(Paragraph(t("Some of these run inside fused kernels and are hidden there."), "quiet"))
    return blocks


def _merged(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One entry a kind, part, size and group; layers that do the same are added up."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for one in found:
        key = tuple(one[name] for name in ("name", "part", "bytes", "group_size", "link", "fused"))
        total = merged.setdefault(key, {**one, "count": 0.0, "total_s": 0.0})
        total["count"] += one["count"]
        total["total_s"] += one["total_s"]
    return list(merged.values())


def _chart(found: Sequence[Mapping[str, Any]], t: Language) -> Figure:
    by_kind: dict[str, float] = {}
    for one in found:
        by_kind[one["name"]] = by_kind.get(one["name"], 0.0) + one["total_s"]
    parts = [Part(name, seconds, duration(seconds), "Comm") for name, seconds in by_kind.items()]
    return Figure(bars(t("Time by collective"), parts), t("Time of each kind of collective"))


def _table(found: Sequence[Mapping[str, Any]], t: Language) -> Table:
    size, unit = column_unit([one["total_s"] for one in found])
    return Table(
        (
            Column(t("Collective")),
            Column(t("Part of the model")),
            Column(t("Calls"), right=True),
            Column(t("Bytes a call"), right=True),
            Column(t("Group"), right=True),
            Column(t("Link")),
            Column(t("Time {unit}", unit=unit), right=True),
            Column(t("GB/s of message"), right=True),
        ),
        tuple(
            (
                one["name"],
                one["part"],
                f"{one['count']:,.0f}",
                byte_size(one["bytes"]),
                f"{one['group_size']}",
                one["link"],
                f"{one['total_s'] / size:,.3f}",
                f"{one['bytes'] * one['count'] / one['total_s'] / 1e9:,.1f}" if one["total_s"] else "-",
            )
            for one in found
        ),
    )
