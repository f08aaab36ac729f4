"""The page of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tensor_cast.evaluation.comparison import (
    BETWEEN,
    Compared,
    KernelDifference,
    comparison_path,
    differing_parameters,
    kernel_differences,
    same_workload,
)
from tensor_cast.evaluation.language import Language
from tensor_cast.evaluation.pages.blocks import Block, Code, Column, Figure, Heading, Page, Paragraph, Table
from tensor_cast.evaluation.pages.charts import Part, bars, grouped_bars, series_colour, stacked_bars
from tensor_cast.evaluation.pages.html_page import html
from tensor_cast.evaluation.pages.markdown import markdown
from tensor_cast.units import byte_size, column_unit, duration

_SHOWN = 12


def write_comparison(
    evaluations: Sequence[Compared], *, language: str, directory: Path | None, now: datetime
) -> tuple[Path, Path]:
    """Write the comparison as Markdown and HTML; returns both paths."""
    from tensor_cast.reporting.output_file import write_whole

    page = comparison_page(evaluations, Language(language), now)
    path = comparison_path(evaluations, directory, now)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, markdown(page))
    write_whole(path.with_suffix(".html"), html(page))
    return path, path.with_suffix(".html")


def comparison_page(evaluations: Sequence[Compared], t: Language, now: datetime) -> Page:
    """Everything of a comparison, held against its first evaluation."""
    first, others = evaluations[0], evaluations[1:]
    blocks: list[Block] = []
    if not same_workload(evaluations):
        text = t("The workloads differ: compare the throughput of a device, not the times.")
        blocks.append(Paragraph(text, "warning"))
    blocks += [
        Heading(t("Overview")),
        _overview(evaluations, t),
        _throughput_chart(evaluations, t),
        Heading(t("What differs in the configuration")),
        _parameters(evaluations, t),
        Heading(t("By category")),
        _category_chart(evaluations, t),
        _category_table(evaluations, t),
    ]
    for other in others:
        blocks.append(Heading(t("What makes the difference of {other} to {first}", other=other.letter, first="A")))
        blocks += _kernels(first, other, t)
    blocks += [Heading(t("Commands")), *(Code(one.results.config["command"]) for one in evaluations)]
    models = dict.fromkeys(f"{c['model']} {c['spec']}" for c in (one.results.config["model"] for one in evaluations))
    return Page(
        title=t("Comparison of {count} evaluations of {models}", count=len(evaluations), models=", ".join(models)),
        subtitle=f"{now:%Y-%m-%d %H:%M:%S}",
        blocks=tuple(blocks),
        language=t.html_name,
    )


def _overview(evaluations: Sequence[Compared], t: Language) -> Table:
    """A column an evaluation, so that names of any length and many figures stay on the page."""
    first = evaluations[0]
    is_text = first.results.config["kind"] == "text"
    throughput = (
        (t("Tokens/s a device"), lambda one: f"{one.throughput:,.1f}")
        if is_text
        else (t("Samples/hour a device"), lambda one: f"{one.throughput * 3600:,.2f}")
    )
    rows: list[tuple[str, Callable[[Compared], str]]] = [
        (t("Evaluation"), lambda one: one.results.name),
        (t("Device"), lambda one: one.results.config["device"]["name"]),
        (t("Devices"), lambda one: str(one.results.config["parallel"]["world"])),
        (t("Execution time"), lambda one: duration(one.time_s)),
        (t("Time to A"), lambda one: f"{one.time_s / first.time_s:.2f}x"),
        throughput,
        (t("Throughput to A"), lambda one: f"{one.throughput / first.throughput:.2f}x"),
        (t("Memory used"), lambda one: byte_size(one.results.summary["metrics"]["memory_used_bytes"])),
        (t("Fits"), lambda one: t("yes") if one.results.summary["metrics"]["fits"] else t("no")),
    ]
    columns = (Column(t("Metric")), *(Column(one.letter) for one in evaluations))
    return Table(columns, tuple((name, *(cell(one) for one in evaluations)) for name, cell in rows))


def _throughput_chart(evaluations: Sequence[Compared], t: Language) -> Figure:
    is_text = evaluations[0].results.config["kind"] == "text"
    parts = [
        Part(
            f"{one.letter} · {one.results.name}",
            one.throughput,
            f"{one.throughput:,.1f} tokens/s" if is_text else t("{count:,.2f} an hour", count=one.throughput * 3600),
            series_colour(index),
        )
        for index, one in enumerate(evaluations)
    ]
    return Figure(bars(t("Throughput of a device"), parts), t("Throughput of a device: longer is better"))


def _parameters(evaluations: Sequence[Compared], t: Language) -> Block:
    found = differing_parameters(evaluations)
    if not found:
        return Paragraph(t("Nothing: all parameters are the same."))
    columns = (Column(t("Parameter")), *(Column(one.letter) for one in evaluations))
    rows = tuple((f"`{name}`", *(_value(value, t) for value in values)) for name, values in found.items())
    return Table(columns, rows)


def _value(value: Any, t: Language) -> str:
    if isinstance(value, bool):
        return t("yes") if value else t("no")
    return "-" if value in (None, [], "") else str(value)


def _category_chart(evaluations: Sequence[Compared], t: Language) -> Figure:
    rows = [
        (
            f"{one.letter} · {one.results.name}",
            [
                Part(t.known(name), seconds, duration(seconds), "gap" if name == BETWEEN else name)
                for name, seconds in one.parts.items()
            ],
        )
        for one in evaluations
    ]
    return Figure(stacked_bars(t("Time by category"), rows), t("Time by category, all on one scale"))


def _category_table(evaluations: Sequence[Compared], t: Language) -> Table:
    unit = column_unit([seconds for one in evaluations for seconds in one.parts.values()])
    first = evaluations[0].parts
    columns = [Column(t("Category"))]
    for one in evaluations:
        columns.append(Column(f"{one.letter} {unit[1]}", right=True))
        if one is not evaluations[0]:
            columns.append(Column(t("{letter} less A", letter=one.letter), right=True))
    rows = []
    for name in first:
        cells = [t.known(name)]
        for one in evaluations:
            cells.append(f"{one.parts[name] / unit[0]:,.3f}")
            if one is not evaluations[0]:
                cells.append(f"{(one.parts[name] - first[name]) / unit[0]:+,.3f}")
        rows.append(tuple(cells))
    return Table(tuple(columns), tuple(rows))


def _kernels(first: Compared, other: Compared, t: Language) -> list[Block]:
    found = [one for one in kernel_differences(first, other) if one.difference_s != 0.0]
    if not found:
        return [Paragraph(t("Nothing: every kernel takes the same time."))]
    total = other.time_s - first.time_s
    shown, rest = found[:_SHOWN], found[_SHOWN:]
    by_category = {name: seconds - first.parts[name] for name, seconds in other.parts.items()}
    category = (max if total > 0.0 else min)(by_category, key=lambda name: by_category[name])
    sentence = t(
        "{other} takes {difference} {direction} than A; most of it is in {category} ({part}).",
        other=other.letter,
        difference=duration(abs(total)),
        direction=t("more") if total > 0 else t("less"),
        category=t.known(category),
        part=_signed(by_category[category]),
    )
    unit = column_unit([abs(one.difference_s) for one in shown])
    note = ""
    if rest:
        seconds = sum(one.difference_s for one in rest)
        note = t("{count} more kernels differ by {difference} together.", count=len(rest), difference=_signed(seconds))
    table = Table(
        (
            Column(t("Kernel")),
            Column(t("Part of the model")),
            Column(t("Category")),
            Column(f"A {unit[1]}", right=True),
            Column(f"{other.letter} {unit[1]}", right=True),
            Column(t("Difference {unit}", unit=unit[1]), right=True),
            Column(t("Ratio"), right=True),
        ),
        tuple(_kernel_row(one, unit[0], t) for one in shown),
        note=note,
    )
    groups = [
        (
            f"{one.name} · {one.part}",
            [
                Part(letter, seconds or 0.0, duration(seconds) if seconds is not None else t("absent"), colour)
                for letter, seconds, colour in (
                    ("A", one.first_s, series_colour(0)),
                    (other.letter, one.other_s, series_colour(ord(other.letter) - ord("A"))),
                )
            ],
        )
        for one in shown[:6]
    ]
    chart = Figure(grouped_bars(t("Kernels that differ most"), groups), t("The kernels that differ most"))
    return [Paragraph(sentence), chart, table]


def _kernel_row(one: KernelDifference, unit: float, t: Language) -> tuple[str, ...]:
    def cell(seconds: float | None) -> str:
        return t("absent") if seconds is None else f"{seconds / unit:,.3f}"

    ratio = f"{one.other_s / one.first_s:.2f}x" if one.first_s and one.other_s else "-"
    difference = f"{one.difference_s / unit:+,.3f}"
    return (one.name, one.part, one.category, cell(one.first_s), cell(one.other_s), difference, ratio)


def _signed(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else '-'}{duration(abs(seconds))}"
