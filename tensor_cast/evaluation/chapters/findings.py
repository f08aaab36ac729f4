"""The chapter of findings and advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensor_cast.evaluation.advice import is_gain
from tensor_cast.evaluation.findings import SENTENCES
from tensor_cast.evaluation.language import Language
from tensor_cast.evaluation.pages.blocks import Block, Column, Figure, Heading, Paragraph, Table, Tone
from tensor_cast.evaluation.pages.charts import Part, bars
from tensor_cast.evaluation.results import Results
from tensor_cast.units import duration

_TONES: dict[str, Tone] = {"bad": "bad", "note": "warning", "good": "good"}


def findings_chapter(results: Results, t: Language) -> list[Block]:
    """What stands out, what was tried for it, and what each trial predicts."""
    summary = results.summary
    blocks: list[Block] = [
        Paragraph(t(SENTENCES[found["rule"]], **found["values"]), _TONES[found["level"]])
        for found in summary["findings"]
    ]
    advice = summary["advice"]
    if not advice:
        return [*blocks, Paragraph(t("No variant was run."), "quiet")]
    good = sorted((one for one in advice if is_gain(one)), key=lambda one: -float(one["throughput_gain"]))
    blocks.append(Heading(t("Advice"), 3))
    blocks += [Paragraph(_sentence(one, t)) for one in good]
    if not good:
        blocks.append(Paragraph(t("None of the variants that the findings suggest is better.")))
    blocks += [
        Heading(t("Variants that were run"), 3),
        Paragraph(t("Each line is a simulation of this evaluation with only the named flags changed.")),
    ]
    return [*blocks, *_variants(results, t)]


def _sentence(outcome: Mapping[str, Any], t: Language) -> str:
    text = t(
        "`{change}`: throughput of a device {gain:+.1%}, time {time:+.1%}.",
        change=outcome["change"],
        gain=outcome["throughput_gain"],
        time=outcome["time_change"],
    )
    if outcome["makes_it_fit"]:
        text += t(" It then fits.")
    if outcome["changes_result"]:
        text += t(" It changes what the model computes: check the quality of its output.")
    return text


def _variants(results: Results, t: Language) -> list[Block]:
    base = results.summary["metrics"]
    ran = [one for one in results.summary["advice"] if one["outcome"] == "ran"]
    time_s = base["execution_time_s"]
    parts = [Part(t("as evaluated"), time_s, duration(time_s), "reserved")]
    parts += [
        Part(one["change"], one["execution_time_s"], duration(one["execution_time_s"]), "s0" if is_gain(one) else "gap")
        for one in ran
    ]
    rows = [(t("as evaluated"), duration(time_s), "", "", _fits(base["fits"], t))]
    rows += [
        (
            f"`{one['change']}`",
            duration(one["execution_time_s"]),
            f"{one['time_change']:+.1%}",
            f"{one['throughput_gain']:+.1%}",
            _fits(one["fits"], t),
        )
        for one in ran
    ]
    rows += [
        (f"`{one['change']}`", "-", "-", "-", t("refused: {reason}", reason=one["reason"]))
        for one in results.summary["advice"]
        if one["outcome"] == "refused"
    ]
    table = Table(
        (
            Column(t("Change")),
            Column(t("Time"), right=True),
            Column(t("Time, difference"), right=True),
            Column(t("Throughput of a device"), right=True),
            Column(t("Fits")),
        ),
        tuple(rows),
    )
    if not ran:
        return [table]
    chart = Figure(bars(t("Time of the variants"), parts), t("Execution time of each variant; better ones in colour"))
    return [chart, table]


def _fits(fits: bool, t: Language) -> str:
    return t("yes") if fits else t("no")
