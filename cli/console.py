"""Where a report goes: a terminal in colour, anything else as plain text."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tensor_cast.reporting.layout import Section, plain_text


def show(sections: Sequence[Section]) -> None:
    """Print a report on stdout."""
    if not sys.stdout.isatty():
        sys.stdout.write(plain_text(sections))
        return
    from rich.console import Console

    from tensor_cast.reporting.terminal import print_sections

    print_sections(Console(highlight=False), sections)
