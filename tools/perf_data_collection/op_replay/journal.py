"""What a run has done so far, on disk line by line, so that a killed or interrupted run loses nothing.

Several processes append to one journal; every line is one JSON object and one write.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tensor_cast.performance_model.profiling_database.atomic import replace_files, write_failure

State: TypeAlias = Literal["started", "done", "failed", "skipped"]


@dataclass(frozen=True)
class RowRecord:
    """What became of one row.

    ``launches`` is how often its kernel was launched under the profiler, ``process`` tells which process did it.
    """

    operator: str
    identity: str
    line: int
    shapes: str
    state: State
    reason: str = ""
    launches: int = 0
    process: str = ""
    signature: tuple[str, ...] = ()


@dataclass(frozen=True)
class OperatorRecord:
    """How the run of an operator ended."""

    operator: str
    state: Literal["success", "failed", "skipped"]
    reason: str = ""


@dataclass
class JournalContent:
    """A journal read back; of several lines about a row the last one counts."""

    rows: dict[str, RowRecord] = field(default_factory=dict)
    operators: dict[str, OperatorRecord] = field(default_factory=dict)

    def settled(self) -> set[str]:
        """Identities of rows that need no further try."""
        return {identity for identity, row in self.rows.items() if row.state != "started"}

    def of_state(self, state: State) -> list[RowRecord]:
        """Rows of a state in the order in which they were run."""
        return [row for row in self.rows.values() if row.state == state]

    def unfinished(self, operator: str) -> RowRecord | None:
        """The row of an operator that was started and of whose end nothing is known."""
        return next((row for row in self.of_state("started") if row.operator == operator), None)


class Journal:
    """Appends to a journal file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: RowRecord | OperatorRecord) -> None:
        """Write one record; it is on its way to the disk when this returns.

        Raises:
            ModelingError: it cannot be written.
        """
        kind = "row" if isinstance(record, RowRecord) else "operator"
        line = json.dumps({"event": kind, **asdict(record)}, ensure_ascii=False) + "\n"
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise write_failure(self.path, error) from None

    def read(self) -> JournalContent:
        """Everything recorded; a line that was cut off by a crash is left out."""
        return read_journal(self.path)

    def rewrite(self, records: Iterable[RowRecord]) -> None:
        """Replace the whole journal by these rows.

        Raises:
            ModelingError: it cannot be written; the old one stays.
        """
        lines = (json.dumps({"event": "row", **asdict(record)}, ensure_ascii=False) + "\n" for record in records)
        replace_files({self.path: "".join(lines).encode()})


def read_journal(path: Path) -> JournalContent:
    """The content of a journal, empty when there is none."""
    content = JournalContent()
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return content
    for line in lines:
        try:
            record: dict[str, Any] = json.loads(line)
            if record.pop("event") == "row":
                row = RowRecord(**{**record, "signature": tuple(record["signature"])})
                content.rows.pop(row.identity, None)
                content.rows[row.identity] = row
            else:
                operator = OperatorRecord(**record)
                content.operators[operator.operator] = operator
        except (ValueError, KeyError, TypeError):
            continue
    return content
