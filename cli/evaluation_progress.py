"""How far an evaluation is, on stderr: a moving line on a terminal, a line a step elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status


class ConsoleProgress:
    """Shows each step, and on a terminal the simulator's last line beside it."""

    def __init__(self) -> None:
        self._status: Status | None = None
        self._step = ""

    def __enter__(self) -> ConsoleProgress:
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True, highlight=False).status("")
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def step(self, text: str) -> None:
        """A new piece of work begins."""
        self._step = text
        if self._status is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self._status.console.print(f"[dim]{_literal(text)}")
            self._status.update(_literal(text))

    def line(self, text: str) -> None:
        """The simulator said a line."""
        if self._status is not None:
            width = max(self._status.console.width - len(self._step) - 8, 10)
            self._status.update(f"{_literal(self._step)} [dim]{_literal(text.strip()[:width])}")


def _literal(text: str) -> str:
    from rich.markup import escape

    return escape(text)
