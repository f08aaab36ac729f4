"""What a report is made of, and how it is laid out: sentences, facts and tables become lines of styled text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

GAP = "  "
"""Between columns, and before everything under a title."""

Span: TypeAlias = "tuple[str, str]"
"""Text and the name of its style: ``title``, ``bad``, ``warning``, ``quiet``, ``total``, a bound, or empty."""

Line: TypeAlias = "list[Span]"


@dataclass(frozen=True)
class Sentence:
    """A paragraph."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Facts:
    """Names with their values, one a line."""

    title: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Numbers stand to the ``right``. On a narrow terminal columns of the highest ``rank`` are left out first, then
    ``breakable`` ones are wrapped. The cells of a ``styled`` one name their own style.
    """

    title: str
    right: bool = False
    rank: int = 0
    breakable: bool = False
    styled: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under columns, perhaps a last row of totals and a note; ``details`` gives each row a line below it."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    total: tuple[str, ...] | None = None
    note: str = ""
    details: tuple[str, ...] = ()

    @property
    def widths(self) -> list[int]:
        """Width of each column: its widest line."""
        header = tuple(column.title for column in self.columns)
        cells = (header, *self.rows, *([self.total] if self.total else []))
        return [max(_width(row[index]) for row in cells) for index in range(len(self.columns))]

    @property
    def width(self) -> int:
        """Width of the rows."""
        return sum(self.widths) + len(GAP) * (len(self.columns) - 1)


Section: TypeAlias = "Sentence | Facts | Table"


def plain_text(sections: Sequence[Section]) -> str:
    """The report without colour, cutting or wrapping: what a pipe or a file gets."""
    blocks = ("\n".join("".join(text for text, _ in line).rstrip() for line in lines(s)) for s in sections)
    return "\n\n".join(blocks) + "\n"


def lines(section: Section, width: int | None = None) -> Iterator[Line]:
    """The lines of a section, wrapped to ``width`` columns where one is given."""
    if isinstance(section, Sentence):
        for text in _wrap(section.text, width):
            yield [(text, section.style)]
    elif isinstance(section, Facts):
        yield from _facts_lines(section, width)
    else:
        yield from _table_lines(section if width is None else fitted(section, width - len(GAP)), width)


def _facts_lines(facts: Facts, width: int | None) -> Iterator[Line]:
    yield [(facts.title, "title")]
    names = max(len(name) for name, _ in facts.rows)
    for name, value in facts.rows:
        for index, text in enumerate(_wrap(value, None if width is None else width - names - 2 * len(GAP))):
            yield [(GAP, ""), ((name if index == 0 else "").ljust(names), "quiet"), (GAP, ""), (text, "")]


def _table_lines(table: Table, width: int | None) -> Iterator[Line]:
    if table.title:
        yield [(table.title, "title")]
    widths = table.widths
    yield from _row_lines(tuple(column.title for column in table.columns), table.columns, widths, "quiet")
    for index, row in enumerate(table.rows):
        yield from _row_lines(row, table.columns, widths)
        if table.details:
            for text in _wrap(table.details[index], None if width is None else width - 3 * len(GAP)):
                yield [(GAP * 3 + text, "quiet")]
    if table.total:
        yield [(GAP + "-" * table.width, "quiet")]
        yield from _row_lines(table.total, table.columns, widths, "total")
    if table.note:
        for text in _wrap(table.note, None if width is None else width - len(GAP)):
            yield [(GAP + text, "quiet")]


def _row_lines(row: Sequence[str], columns: Sequence[Column], widths: Sequence[int], style: str = "") -> Iterator[Line]:
    broken = [cell.split("\n") for cell in row]
    for depth in range(max(len(cell) for cell in broken)):
        line: Line = []
        for cell, column, width in zip(broken, columns, widths, strict=True):
            text = cell[depth] if depth < len(cell) else ""
            padded = text.rjust(width) if column.right else text.ljust(width)
            line += [(GAP, ""), (padded, style or (text if column.styled else ""))]
        yield line


def fitted(table: Table, width: int) -> Table:
    """The table no wider than ``width``, as far as that goes: without its lesser columns, then with names wrapped."""
    hidden: list[str] = []
    while table.width > width and (rank := max(column.rank for column in table.columns)):
        index = next(index for index, column in enumerate(table.columns) if column.rank == rank)
        hidden.append(table.columns[index].title)
        table = _without_column(table, index)
    if hidden:
        hidden_note = f"This terminal is too narrow for: {', '.join(hidden)}."
        table = replace(table, note=f"{table.note} {hidden_note}".lstrip())
    while table.width > width:
        breakable = [index for index, column in enumerate(table.columns) if column.breakable]
        widest = max(breakable, key=lambda index: table.widths[index], default=None)
        if widest is None:
            return table
        rows = tuple(_with_wrapped_cell(row, widest, table.widths[widest] - 1) for row in table.rows)
        narrowed = replace(table, rows=rows)
        if narrowed.width >= table.width:
            return table
        table = narrowed
    return table


def _without_column(table: Table, index: int) -> Table:
    def cut(row: tuple[str, ...]) -> tuple[str, ...]:
        return (*row[:index], *row[index + 1 :])

    columns = (*table.columns[:index], *table.columns[index + 1 :])
    total = None if table.total is None else cut(table.total)
    return replace(table, columns=columns, rows=tuple(cut(row) for row in table.rows), total=total)


def _with_wrapped_cell(row: tuple[str, ...], index: int, width: int) -> tuple[str, ...]:
    broken = [""]
    for piece in re.findall(r"[^_./-]+[_./-]?|[_./-]", row[index].replace("\n", "")):
        if broken[-1] and len(broken[-1] + piece) > width:
            broken.append("")
        broken[-1] += piece
    return (*row[:index], "\n".join(broken), *row[index + 1 :])


def _wrap(text: str, width: int | None) -> list[str]:
    if width is None:
        return text.split("\n")
    wrapped = (
        textwrap.wrap(part, max(width, 20), break_long_words=True, break_on_hyphens=False) for part in text.split("\n")
    )
    return [line for part in wrapped for line in (part or [""])]


def _width(cell: str) -> int:
    return max(len(line) for line in cell.split("\n"))
