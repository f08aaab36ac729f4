"""A report in colour, wrapped to the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from tensor_cast.reporting.layout import Section, lines

STYLES = {
    "title": "bold",
    "bad": "bold red",
    "warning": "yellow",
    "quiet": "dim",
    "total": "bold",
    "matrix": "green",
    "vector": "cyan",
    "memory": "blue",
    "comm": "magenta",
    "fixed": "yellow",
    "wait": "red",
}


def print_sections(console: Console, sections: Sequence[Section]) -> None:
    """Print a report as wide as ``console``; a table that is wider even so is wrapped by the terminal, never cut."""
    for index, section in enumerate(sections):
        if index:
            console.print()
        for line in lines(section, console.width):
            text = Text.assemble(*((span, STYLES.get(style, "")) for span, style in line))
            text.rstrip()
            console.print(text, soft_wrap=True)
