"""Groups of measured rows as Markdown, JSON and scatter plots."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.accuracy_rows import Group, Row, Summary, worst
from tensor_cast.units import duration

WORST_ROWS = 5
HEAD = """\
# Accuracy

Written by `python benchmarks/accuracy.py --measured DIRECTORY`, which prices published measurements with the product's
own functions. Constants are fitted on rows whose key has an even CRC-32 (`benchmarks/fit_costs.py`, `fit_engines.py`,
`fit_errors.py`); **every figure here is of the other rows**, which no constant has seen. An error is that of the
prediction, relative to the measurement; the bias is its median with its sign. *In band* is the share of rows whose
measured time lies in the predicted 80 % band; 70 to 90 % would be honest. The form of the model, and which rows say
nothing of the device (listed under each group as left out or not priced), were chosen with all rows in sight.

Beside a row that is far off stands what other measurements say of it, where they say something: a row that took longer
than one of the same kernel or server with no less to do (or less time than one with no more) is not explained by its
work alone.

Whole generations of diffusion models: [accuracy/diffusion.md](accuracy/diffusion.md), by
`benchmarks/video_accuracy.py`.

"""


def markdown(groups: Sequence[Group], *, plots: Path | None, target: Path) -> str:
    """The page: one table of all groups, then each group's worst rows and what could not be priced."""
    lines = [HEAD, "| group | rows | mean | median | p90 | worst | bias | in band | aim |\n", "| --- " * 9 + "|\n"]
    for group in groups:
        summary = Summary.of(group.held_out)
        cells = ["no row"] + [""] * 6 if summary is None else _cells(summary)
        aim = "" if group.aim is None else str(group.aim)
        if group.aim and summary and not group.aim.is_met(summary):
            aim = f"{aim}: **missed**"
        if aim and (every := _with_faulty(group)):
            aim = f"{aim} ({every.mean:.1%} with rows left out)"
        lines.append(f"| [{group.title}](#{anchor(group.title)}) | {' | '.join(cells)} | {aim} |\n")
    for group in groups:
        lines.append(_section(group, plots, target))
    return "".join(lines)


def anchor(title: str) -> str:
    """The fragment that a Markdown heading gets."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-")


def _cells(summary: Summary) -> list[str]:
    shares = (summary.mean, summary.median, summary.p90, summary.worst)
    covered = "" if math.isnan(summary.covered) else f"{summary.covered:.0%}"
    return [str(summary.count), *(f"{share:.1%}" for share in shares), f"{summary.bias:+.1%}", covered]


def _section(group: Group, plots: Path | None, target: Path) -> str:
    fitted = len(group.rows) - len(group.held_out)
    lines = [f"\n## {group.title}\n\nSource: {group.source}. Open to fitting: {fitted}, counted in no figure.\n"]
    if plots is not None and group.held_out:
        image = (plots / f"{group.name}.png").relative_to(target.parent)
        lines.append(f"\n![measured and predicted time]({image.as_posix()})\n")
    rows = worst(group.held_out, WORST_ROWS if len(group.held_out) > 20 else len(group.held_out))
    if rows:
        lines.append(_table("furthest off", rows))
    if group.faulty:
        lines.append(_faulty(group))
    if group.unpriced:
        lines.append("\nNot priced:\n\n")
        lines += [f"- {count} rows: {reason}\n" for reason, count in group.unpriced.most_common()]
    return "".join(lines)


def _faulty(group: Group) -> str:
    """Rows that count in no figure, and what the figures would be with them."""
    words = f"\nLeft out, {group.fault}: {len(group.faulty)} rows"
    if every := _with_faulty(group):
        held_out = every.count - len(group.held_out)
        words += f", {held_out} of them not open to fitting, with which the mean would be {every.mean:.1%}"
    return f"{words}.\n{_table('left out', worst(group.faulty, len(group.faulty)))}"


def _with_faulty(group: Group) -> Summary | None:
    """The figures with the rows that were left out; ``None`` if none of those was held out."""
    held_out = [row for row in group.faulty if not row.fitted]
    return Summary.of([*group.held_out, *held_out]) if held_out else None


def _table(title: str, rows: Sequence[Row]) -> str:
    head = f"\n| {title} | measured | predicted | error | |\n| --- | --- | --- | --- | --- |\n"
    return head + "".join(
        f"| `{row.label.replace('|', ' ')}` | {duration(row.measured_s)} | {duration(row.predicted_s)}"
        f" | {row.error:+.0%} | {row.note} |\n"
        for row in rows
    )


def document(groups: Sequence[Group], *, rows: bool) -> dict[str, Any]:
    """All figures as JSON takes them, with every row or only the summaries."""
    return {
        group.name: {
            "title": group.title,
            "source": group.source,
            "aim": "" if group.aim is None else str(group.aim),
            "held_out": _plain(Summary.of(group.held_out)),
            "unpriced": dict(group.unpriced),
            "left_out": {"reason": group.fault, "rows": len(group.faulty)} if group.faulty else None,
            **({"rows": [_row(row) for row in group.rows]} if rows else {}),
        }
        for group in groups
    }


def _plain(summary: Summary | None) -> dict[str, float | None] | None:
    if summary is None:
        return None
    return {name: None if math.isnan(value) else round(value, 4) for name, value in vars(summary).items()}


def _row(row: Row) -> dict[str, Any]:
    band = None if row.inside is None else [round(row.low, 4), round(row.high, 4)]
    return {
        "label": row.label,
        "measured_s": row.measured_s,
        "predicted_s": row.predicted_s,
        "fitted": row.fitted,
        "band": band,
    }


def write(path: Path, text: str) -> None:
    """Write a whole file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def write_json(path: Path, groups: Sequence[Group], *, rows: bool) -> None:
    """Write the figures as JSON."""
    write(path, json.dumps(document(groups, rows=rows), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def scatter(group: Group, path: Path) -> None:
    """Predicted over measured time of the rows that were not fitted, on logarithmic axes, with lines at 20 %."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = group.held_out
    measured, predicted = [row.measured_s for row in rows], [row.predicted_s for row in rows]
    ends = (min(*measured, *predicted) * 0.8, max(*measured, *predicted) * 1.25)
    figure, axes = pyplot.subplots(figsize=(4.2, 3.6))
    for factor, style in ((1.0, "-"), (1.2, ":"), (1 / 1.2, ":")):
        axes.plot(ends, [end * factor for end in ends], style, color="0.6", linewidth=0.8)
    axes.scatter(measured, predicted, s=7, alpha=0.5, linewidths=0)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured, s", ylabel="predicted, s")
    axes.set_title(group.title, fontsize=9)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80, metadata={"Software": None})
    pyplot.close(figure)
