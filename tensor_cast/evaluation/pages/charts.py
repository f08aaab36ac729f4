"""Charts as SVG that takes its colours and fonts from the page around it."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 960.0
_BAR_HEIGHT = 22.0
_ROW = 30.0
_LEGEND_ROW = 24.0
_GAP = 14.0
_CHARACTER = 7.4
"""Width of a Latin character at the page's size of chart text; a Chinese one is about twice as wide."""

_LIGHT = ("free", "gap")
_PALETTE = ("s0", "s1", "s2", "s3", "s4", "s5")


@dataclass(frozen=True)
class Part:
    """A value with its name, how the value is written, and a colour of the page (``MatMul``, ``memory``, ``s0`` …)."""

    label: str
    value: float
    text: str
    colour: str


def series_colour(index: int) -> str:
    """The colour of the ``index``-th of several things that are compared."""
    return _PALETTE[index % len(_PALETTE)]


def stacked_bar(title: str, parts: Sequence[Part]) -> str:
    """One bar of all ``parts`` and their legend below; parts of nothing are left out."""
    return stacked_bars(title, [("", parts)])


def stacked_bars(title: str, rows: Sequence[tuple[str, Sequence[Part]]], *, longest: float | None = None) -> str:
    """A bar a row, all on one scale, and one legend below; ``longest`` is the value that fills the width."""
    shown = [(name, [part for part in parts if part.value > 0.0]) for name, parts in rows]
    label_width = max((_text_width(name) for name, _ in shown), default=0.0)
    left = label_width + _GAP if label_width else 0.0
    full = longest or max((sum(part.value for part in parts) for _, parts in shown), default=0.0) or 1.0
    body: list[str] = []
    top = 0.0
    for name, parts in shown:
        if name:
            body.append(_text(0.0, top + 15.5, name))
        start = left
        for part in parts:
            width = part.value / full * (WIDTH - left)
            body.append(_rectangle(start, top, width, part))
            if _text_width(part.text) + 12.0 < width:
                style = "on-light" if part.colour in _LIGHT else "inside"
                body.append(_text(start + width / 2, top + 15.5, part.text, style, "middle"))
            start += width
        top += _ROW
    first = {part.colour: part for _, parts in reversed(shown) for part in parts}
    order = [part for _, parts in shown for part in parts]
    entries = [first[colour] for colour in dict.fromkeys(part.colour for part in order)]
    with_values = len(shown) == 1
    legend, height = _legend([(p.colour, f"{p.label}  {p.text}" if with_values else p.label) for p in entries], top)
    return _svg(title, height, [*body, *legend])


def bars(title: str, rows: Sequence[Part]) -> str:
    """A bar a row with its name before and its value behind, longest as wide as the chart."""
    longest = max((row.value for row in rows), default=0.0) or 1.0
    left = max((_text_width(row.label) for row in rows), default=0.0) + _GAP
    right = max((_text_width(row.text) for row in rows), default=0.0) + 8.0
    body: list[str] = []
    for index, row in enumerate(rows):
        top = index * _ROW
        width = max(row.value, 0.0) / longest * (WIDTH - left - right)
        body.append(_text(0.0, top + 15.5, row.label))
        body.append(_rectangle(left, top, max(width, 1.0), row))
        body.append(_text(left + max(width, 1.0) + 8.0, top + 15.5, row.text, "quiet"))
    return _svg(title, len(rows) * _ROW, body)


def grouped_bars(title: str, groups: Sequence[tuple[str, Sequence[Part]]]) -> str:
    """Groups of thin bars, one a series; a legend names the series by the parts' labels."""
    values = [part.value for _, parts in groups for part in parts]
    longest = max(values, default=0.0) or 1.0
    left = max((_text_width(name) for name, _ in groups), default=0.0) + _GAP
    right = max((_text_width(part.text) for _, parts in groups for part in parts), default=0.0) + 8.0
    body: list[str] = []
    top = 0.0
    for name, parts in groups:
        body.append(_text(0.0, top + 13.5, name))
        for part in parts:
            width = max(part.value / longest * (WIDTH - left - right), 1.0)
            body.append(_rectangle(left, top, width, part, 15.0))
            body.append(_text(left + width + 8.0, top + 12.0, part.text, "quiet"))
            top += 18.0
        top += 12.0
    series = {part.label: part.colour for _, parts in groups for part in parts}
    legend, height = _legend([(colour, label) for label, colour in series.items()], top)
    return _svg(title, height, [*body, *legend])


def _svg(title: str, height: float, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(body)}</svg>"
    )


def _rectangle(x: float, y: float, width: float, part: Part, height: float = _BAR_HEIGHT) -> str:
    name = f"{part.label}: {part.text}" if part.label else part.text
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:g}" rx="2" fill="var(--{part.colour})">'
        f"<title>{escape(name)}</title></rect>"
    )


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    styled = f' class="{style}"' if style else ""
    anchored = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{styled}{anchored}>{escape(text)}</text>'


def _legend(entries: Sequence[tuple[str, str]], top: float) -> tuple[list[str], float]:
    """Marks and names in as many lines as they need, and the height that the chart then has."""
    body: list[str] = []
    x, y = 0.0, top + 4.0
    for colour, text in entries:
        width = 20.0 + _text_width(text) + 22.0
        if x > 0.0 and x + width > WIDTH:
            x, y = 0.0, y + _LEGEND_ROW
        body.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="12" height="12" rx="3" fill="var(--{colour})"></rect>')
        body.append(_text(x + 19.0, y + 10.5, text))
        x += width
    return body, y + _LEGEND_ROW if entries else top


def _text_width(text: str) -> float:
    return sum(2.0 * _CHARACTER if unicodedata.east_asian_width(sign) in "WF" else _CHARACTER for sign in text)
