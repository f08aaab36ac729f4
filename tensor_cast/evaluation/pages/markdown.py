"""A page as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tensor_cast.evaluation.pages.blocks import (
    Block,
    Cards,
    Code,
    Column,
    Facts,
    Figure,
    Heading,
    Page,
    Paragraph,
    Table,
    cell_text,
)

# An underscore inside a word, as in a file's name, means itself.
_SPECIAL = re.compile(r"([\\*\[\]<>#]|(?<!\w)_|_(?!\w))")
_CODE = re.compile(r"(`[^`]*`)")
_MARKS = {"bad": "❌ ", "warning": "⚠️ ", "good": "✅ "}


def markdown(page: Page) -> str:
    """The page as GitHub's Markdown; charts are left out, or said in words."""
    parts = [f"# {_escaped(page.title)}", _escaped(page.subtitle), *(text for b in page.blocks for text in _block(b))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"{'#' * block.level} {_escaped(block.text)}"
    elif isinstance(block, Paragraph):
        text = _escaped(block.text)
        mark = _MARKS.get(block.tone)
        yield text if mark is None else f"> {mark}{text}"
    elif isinstance(block, Cards):
        yield "\n".join(
            f"- {_escaped(card.label)}: **{_escaped(card.value)}**{f' ({_escaped(card.note)})' if card.note else ''}"
            for card in block.cards
        )
    elif isinstance(block, Table):
        rows = [*block.rows, *([block.total] if block.total else [])]
        yield _table(block.columns, [[cell_text(cell) for cell in row] for row in rows])
        if block.note:
            yield _escaped(block.note)
    elif isinstance(block, Facts):
        yield _table((Column(""), Column("")), [list(row) for row in block.rows])
    elif isinstance(block, Code):
        yield f"```bash\n{block.text}\n```"
    else:
        assert isinstance(block, Figure)
        if block.words:
            yield _escaped(block.words)
            yield _escaped(block.caption)


def _table(columns: tuple[Column, ...], rows: list[list[str]]) -> str:
    lines = [
        _row([column.title for column in columns]),
        "|" + "|".join(" ---: " if column.right else " --- " for column in columns) + "|",
        *(_row(row) for row in rows),
    ]
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(_escaped(cell).replace("|", "\\|").replace("\n", "<br>") for cell in cells) + " |"


def _escaped(text: str) -> str:
    """``text`` with Markdown's signs taken literally, except for code in backticks."""
    return "".join(
        piece if piece.startswith("`") else _SPECIAL.sub(r"\\\1", piece) for piece in _CODE.split(text) if piece
    )
