"""How far a run is: operators, rows, time left and the current shape, on stderr."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from tools.perf_data_collection.op_replay.rows import ReplayRow

_QUIET_S = 30.0
_REFRESH_S = 0.2


@dataclass
class Progress:
    """Position of the run of one operator in the whole run; ``rows_total`` counts the rows of all operators."""

    operator_number: int = 1
    operators: int = 1
    rows_done: int = 0
    rows_total: int = 0
    started: float = 0.0
    _shown: float = 0.0
    _width: int = 0

    @classmethod
    def parse(cls, text: str) -> Progress:
        """Progress handed to another process by ``text()``."""
        number, operators, done, total, started = text.split(",")
        return cls(int(number), int(operators), int(done), int(total), float(started))

    def text(self) -> str:
        """The position for another process's command line."""
        return f"{self.operator_number},{self.operators},{self.rows_done},{self.rows_total},{self.started}"

    def begin(self, row: ReplayRow) -> None:
        """Show the row that starts now; without a terminal only now and then."""
        now = time.time()
        self.started = self.started or now
        is_terminal = sys.stderr.isatty()
        if now - self._shown < (_REFRESH_S if is_terminal else _QUIET_S):
            return
        self._shown = now
        left = (now - self.started) / self.rows_done * (self.rows_total - self.rows_done) if self.rows_done else None
        line = (
            f"[operator {self.operator_number}/{self.operators}, row {self.rows_done + 1}/{self.rows_total}"
            f"{f', {duration_text(left)} left' if left is not None else ''}] {row.kernel_type} {row.shape_text}"
        )
        if is_terminal:
            print(f"\r{line[:160]:<{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = min(len(line), 160)
        else:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Count the row that ended."""
        self.rows_done += 1

    def note(self, text: str) -> None:
        """A line that stays."""
        if self._width and sys.stderr.isatty():
            print(f"\r{'':<{self._width}}\r", end="", file=sys.stderr)
        print(text, file=sys.stderr, flush=True)


def duration_text(seconds: float) -> str:
    """Seconds as people read them."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
