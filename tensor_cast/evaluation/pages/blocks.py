"""What a page is made of. Text may hold `code` in backticks, and nothing else of Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Tone: TypeAlias = Literal["plain", "quiet", "good", "warning", "bad"]


@dataclass(frozen=True)
class Heading:
    """The title of a section; ``level`` 2 is a chapter, 3 a part of one."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """One paragraph; other tones than plain and quiet are set apart as a notice."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Card:
    """One figure to remember: what it is, its value, and a remark."""

    label: str
    value: str
    note: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True)
class Cards:
    """Figures side by side."""

    cards: tuple[Card, ...]


@dataclass(frozen=True)
class Bar:
    """A cell whose value is also drawn, as a share from 0 to 1 of the cell, in a colour of ``charts``."""

    text: str
    share: float
    colour: str = ""


Cell: TypeAlias = "str | Bar"


@dataclass(frozen=True)
class Column:
    """A column; numbers stand to the ``right``."""

    title: str
    right: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under columns, perhaps a last row of totals, and a note below."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: tuple[str, ...] | None = None
    note: str = ""


@dataclass(frozen=True)
class Facts:
    """Names with their values, one a line."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Figure:
    """A chart as SVG text, with a caption.

    Markdown has ``words`` in its place; none where a table beside it holds the same figures.
    """

    svg: str
    caption: str
    words: str = ""


@dataclass(frozen=True)
class Code:
    """Lines to copy."""

    text: str


Block: TypeAlias = "Heading | Paragraph | Cards | Table | Facts | Figure | Code"


@dataclass(frozen=True)
class Page:
    """A page with its title, a line below it, and its language as HTML names it (``en``, ``zh-CN``)."""

    title: str
    subtitle: str
    blocks: tuple[Block, ...]
    language: str = "en"


def cell_text(cell: Cell) -> str:
    """What a cell says."""
    return cell.text if isinstance(cell, Bar) else cell
