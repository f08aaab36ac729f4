"""The page of an explanation."""

from __future__ import annotations

from collections.abc import Sequence

from tensor_cast.evaluation.explain.layers import GAPS, OVERLAP, Explanation
from tensor_cast.evaluation.explain.matching import KernelMatch
from tensor_cast.evaluation.language import Language
from tensor_cast.evaluation.pages.blocks import Block, Card, Cards, Column, Figure, Heading, Page, Paragraph, Table
from tensor_cast.evaluation.pages.charts import Part, grouped_bars, stacked_bars
from tensor_cast.ops import CATEGORIES
from tensor_cast.units import column_unit, duration

_SHOWN = 10
_CHARTED = 8
_MEASURED, _PREDICTED = "s0", "s1"


def explanation_page(found: Explanation, t: Language) -> Page:
    """Whole step, category, kernel and shape, one leading to the next."""
    model, device = found.results.config["model"], found.results.config["device"]["name"]
    return Page(
        title=t("Measured against predicted: {model} {spec} on {device}", device=device, **_two_words(model)),
        subtitle=f"{found.profile} · {found.results.name}",
        blocks=(*_whole(found, t), *_categories(found, t), *_kernels(found, t), *_gaps(found, t)),
        language=t.html_name,
    )


def _two_words(model: dict[str, str]) -> dict[str, str]:
    return {"model": model["model"], "spec": model["spec"]}


def _whole(found: Explanation, t: Language) -> list[Block]:
    ratio = found.measured_s / found.predicted_s
    cards = (
        Card(t("Measured"), duration(found.measured_s), _which(found, t)),
        Card(t("Predicted"), duration(found.predicted_s)),
        Card(t("Difference"), _signed(found.difference_s), t("measured is {ratio:.2f} x predicted", ratio=ratio)),
    )
    blocks: list[Block] = [Heading(t("1. Whole step")), Cards(cards)]
    if len(found.step.steps_s) > 1:
        lengths = ", ".join(f"{name}: {duration(seconds)}" for name, seconds in found.step.steps_s.items())
        blocks.append(Paragraph(t("Steps of the profile: {lengths}.", lengths=lengths), "quiet"))
    if found.step.outside:
        text = t("{count} kernels outside of every step are left out.", count=found.step.outside)
        blocks.append(Paragraph(text, "quiet"))
    if found.malformed:
        text = t("{count} lines of the profile do not fit their header and are left out.", count=found.malformed)
        blocks.append(Paragraph(text, "warning"))
    if found.training_s:
        text = t(
            "The profile holds kernels of training, {time} of them: an evaluation has none.",
            time=duration(found.training_s),
        )
        blocks.append(Paragraph(text, "warning"))
    largest = found.largest
    sentence = t(
        "Most of the difference sits in {name}: {difference}.",
        name=t.known(largest.name),
        difference=_signed(largest.difference_s),
    )
    return [*blocks, Paragraph(sentence)]


def _which(found: Explanation, t: Language) -> str:
    if found.step.step:
        return t("step {step}", step=found.step.step)
    return t("one of {count} equal steps", count=found.step.repeats) if found.step.repeats > 1 else ""


def _categories(found: Explanation, t: Language) -> list[Block]:
    unit = column_unit([abs(part.measured_s) for part in found.parts])
    rows = tuple(
        (
            t.known(part.name),
            f"{part.measured_s / unit[0]:,.3f}",
            f"{part.predicted_s / unit[0]:,.3f}",
            f"{part.difference_s / unit[0]:+,.3f}",
            f"{part.difference_s / found.difference_s:+.0%}" if found.difference_s else "-",
        )
        for part in found.parts
    )
    colours = {GAPS: "gap"}
    bars = [
        (
            t(title),
            [
                Part(t.known(part.name), seconds, duration(seconds), colours.get(part.name, part.name))
                for part in found.parts
                if part.name != OVERLAP and (seconds := getattr(part, side)) > 0.0
            ],
        )
        for title, side in (("Measured", "measured_s"), ("Predicted", "predicted_s"))
    ]
    total = (
        t("step"),
        f"{found.measured_s / unit[0]:,.3f}",
        f"{found.predicted_s / unit[0]:,.3f}",
        f"{found.difference_s / unit[0]:+,.3f}",
        "",
    )
    largest = found.largest
    return [
        Heading(t("2. Category")),
        Figure(stacked_bars(t("Measured and predicted by category"), bars), t("Where the time of a step goes")),
        Table(
            (
                Column(t("Category")),
                Column(t("Measured {unit}", unit=unit[1]), right=True),
                Column(t("Predicted {unit}", unit=unit[1]), right=True),
                Column(t("Difference {unit}", unit=unit[1]), right=True),
                Column(t("Of the whole difference"), right=True),
            ),
            rows,
            total=total,
            note=t(
                "Between kernels the device waits for the host; overlapped time counts twice above and is taken off."
            ),
        ),
        Paragraph(
            t("The longest times between kernels are in chapter 4.")
            if largest.name == GAPS
            else t("Chapter 3 has the kernels of {name} first.", name=t.known(largest.name))
        ),
    ]


def _kernels(found: Explanation, t: Language) -> list[Block]:
    charted = found.kernels[:_CHARTED]
    groups = [
        (
            f"{match.family}{f' {match.shapes}' if len(match.shapes) < 44 else ''}",
            [
                _bar(t("measured"), match.measured_calls, match.measured_s, _MEASURED, t),
                _bar(t("predicted"), match.predicted_calls, match.predicted_s, _PREDICTED, t),
            ],
        )
        for match in charted
    ]
    order = sorted(CATEGORIES, key=lambda name: name != found.largest.name)
    blocks: list[Block] = [
        Heading(t("3. Kernel and shape")),
        Figure(
            grouped_bars(t("Kernels that differ most"), groups),
            t("The kernels that differ most, measured above predicted"),
        ),
    ]
    for category in order:
        matches = found.kernels_of(category)
        if matches:
            blocks += [Heading(t.known(category), 3), *_kernel_table(matches, t)]
    return blocks


def _bar(label: str, calls: float, seconds: float, colour: str, t: Language) -> Part:
    return Part(label, seconds, duration(seconds) if calls else t("absent"), colour)


def _kernel_table(matches: Sequence[KernelMatch], t: Language) -> list[Block]:
    shown, rest = matches[:_SHOWN], matches[_SHOWN:]
    unit = column_unit([max(match.measured_s, match.predicted_s) for match in shown])
    note = ""
    if rest:
        seconds = sum(match.difference_s for match in rest)
        note = t("{count} more kernels differ by {difference} together.", count=len(rest), difference=_signed(seconds))
    rows = tuple(
        (
            match.family,
            match.shapes or "-",
            t.known(match.verdict),
            _calls(match.measured_calls),
            _calls(match.predicted_calls),
            _average(match.measured_s, match.measured_calls),
            _average(match.predicted_s, match.predicted_calls),
            f"{match.difference_s / unit[0]:+,.3f}",
        )
        for match in shown
    )
    columns = (
        Column(t("Kernel")),
        Column(t("Shapes")),
        Column(t("Verdict")),
        Column(t("Calls measured"), right=True),
        Column(t("predicted"), right=True),
        Column(t("us a call measured"), right=True),
        Column(t("predicted"), right=True),
        Column(t("Difference {unit}", unit=unit[1]), right=True),
    )
    return [Table(columns, rows, note=note)]


def _gaps(found: Explanation, t: Language) -> list[Block]:
    gaps = found.longest_gaps
    share = found.step.gaps_s / found.measured_s if found.measured_s else 0.0
    sentence = t(
        "Between kernels the device waits {time} a step, {share:.0%} of it, in {count} gaps: the host does not launch "
        "fast enough there, or waits for a result.",
        time=duration(found.step.gaps_s),
        share=share,
        count=len(found.step.gaps),
    )
    blocks: list[Block] = [Heading(t("4. Between kernels")), Paragraph(sentence)]
    if gaps:
        columns = (Column(t("Gap us"), right=True), Column(t("After")), Column(t("Before")))
        rows = tuple((f"{gap.seconds * 1e6:,.1f}", gap.after, gap.before) for gap in gaps)
        blocks.append(Table(columns, rows))
    return blocks


def _calls(calls: float) -> str:
    return f"{calls:,.6g}" if calls else "-"


def _average(seconds: float, calls: float) -> str:
    return f"{seconds / calls * 1e6:,.1f}" if calls else "-"


def _signed(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else '-'}{duration(abs(seconds))}"
