"""A page as one HTML file: style and charts inside, nothing fetched, nothing run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from tensor_cast.evaluation.pages.blocks import (
    Bar,
    Block,
    Card,
    Cards,
    Cell,
    Code,
    Column,
    Facts,
    Figure,
    Heading,
    Page,
    Paragraph,
    Table,
)

_STYLE = Path(__file__).with_name("page.css")
_CODE = re.compile(r"`([^`]*)`")
_JOINT = re.compile(r"(?<=[a-z0-9])[_.](?=[a-z])|(?<=[A-Za-z0-9])_(?=[A-Z0-9])")
# No script, no network, and no icon to ask a server for.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def html(page: Page) -> str:
    """The page; ``language`` sets how browsers choose fonts and break lines."""
    contents = "".join(
        f'<a href="#{_anchor(index)}">{escape(block.text)}</a>'
        for index, block in enumerate(page.blocks)
        if isinstance(block, Heading) and block.level == 2
    )
    body = "\n".join(text for index, block in enumerate(page.blocks) for text in _block(block, index))
    return f"""<!doctype html>
<html lang="{escape(page.language)}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<link rel="icon" href="data:,">
<title>{escape(page.title)}</title>
<style>
{_STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
<header><h1>{escape(page.title)}</h1><p>{_inline(page.subtitle)}</p></header>
<nav>{contents}</nav>
<main>
{body}
</main>
</body>
</html>
"""


def _anchor(index: int) -> str:
    return f"section-{index}"


def _block(block: Block, index: int) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f'<h{block.level} id="{_anchor(index)}">{_inline(block.text)}</h{block.level}>'
    elif isinstance(block, Paragraph):
        yield f'<p class="{block.tone}">{_inline(block.text)}</p>'
    elif isinstance(block, Cards):
        yield f'<div class="cards">{"".join(map(_card, block.cards))}</div>'
    elif isinstance(block, Table):
        yield from _table(block)
    elif isinstance(block, Facts):
        rows = "".join(f"<tr><th>{_inline(name)}</th><td>{_inline(value)}</td></tr>" for name, value in block.rows)
        yield f'<div class="scroll"><table class="facts"><tbody>{rows}</tbody></table></div>'
    elif isinstance(block, Figure):
        yield f"<figure>{block.svg}<figcaption>{_inline(block.caption)}</figcaption></figure>"
    else:
        assert isinstance(block, Code)
        yield f"<pre><code>{escape(block.text)}</code></pre>"


def _card(card: Card) -> str:
    note = f'<div class="note">{_inline(card.note)}</div>' if card.note else ""
    return (
        f'<div class="card {card.tone}"><div class="label">{_inline(card.label)}</div>'
        f'<div class="value">{_inline(card.value)}</div>{note}</div>'
    )


def _table(table: Table) -> Iterator[str]:
    head = "".join(f"<th{_side(column)}>{_inline(column.title)}</th>" for column in table.columns)
    rows = "".join(f"<tr>{_cells(row, table.columns)}</tr>" for row in table.rows)
    total = f"<tfoot><tr>{_cells(table.total, table.columns)}</tr></tfoot>" if table.total else ""
    yield f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody>{total}</table></div>'
    if table.note:
        yield f'<p class="quiet">{_inline(table.note)}</p>'


def _cells(row: tuple[Cell, ...], columns: tuple[Column, ...]) -> str:
    return "".join(_cell(cell, column) for cell, column in zip(row, columns, strict=True))


def _cell(cell: Cell, column: Column) -> str:
    if isinstance(cell, Bar):
        width = f"{min(max(cell.share, 0.0), 1.0):.1%}"
        colour = f"var(--{cell.colour})" if cell.colour else "var(--bar)"
        return (
            f'<td class="bar"><span class="track"><i style="width:{width};background:{colour}"></i></span>'
            f"<span>{_inline(cell.text)}</span></td>"
        )
    return f"<td{_side(column)}>{_breakable(_inline(cell))}</td>"


def _breakable(markup: str) -> str:
    """Long names may break behind their underscores and dots, so that columns stay on the page."""
    return _JOINT.sub(r"\g<0><wbr>", markup)


def _side(column: Column) -> str:
    return ' class="right"' if column.right else ""


def _inline(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text, quote=False)).replace("\n", "<br>")
