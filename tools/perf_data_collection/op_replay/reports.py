"""What a replay says about itself: a Markdown report and the rows whose replay is far from the profile."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensor_cast.performance_model.profiling_database.atomic import make_directory, replace_files
from tools.perf_data_collection.op_replay.journal import RowRecord
from tools.perf_data_collection.op_replay.write_back import FileOutcome, Gap, totals

GAP_LOW, GAP_HIGH = 0.8, 1.2
"""A replay outside this share of the profile is a hotspot."""
_TOP = 20
_EXAMPLES = 3
_HOTSPOT_HEADER = ("Operator", "CSV Name", "MicroBench(us)", "Profiling(us)", "Abs Diff(us)", "MB/Profile", "Shape")


@dataclass
class Report:
    """Everything a report tells; ``status`` is the content of the status file, ``None`` when there is none."""

    outcomes: Sequence[FileOutcome]
    status: dict[str, Any] | None = None
    unmeasured: Sequence[RowRecord] = ()
    failures: Sequence[tuple[str, str]] = ()
    environment: str = ""
    hotspots: list[Gap] = field(init=False)

    def __post_init__(self) -> None:
        self.hotspots = hotspots(gap for outcome in self.outcomes for gap in outcome.gaps)

    def text(self, hotspot_name: str) -> str:
        """The report in Markdown."""
        parts = ["# Profile Update Report", ""]
        if self.environment:
            parts += [self.environment, ""]
        if self.status is not None:
            parts += ["## Operator Execution Status", "", *_status_lines(self.status), ""]
        parts += ["## Overview", "", *_table(("Metric", "Value"), self._overview()), ""]
        parts += ["## Update Summary", "", *_table(_SUMMARY_HEADER, self._summary()), ""]
        for title, samples in _EXAMPLE_SECTIONS:
            parts += [f"## {title}", "", *_table(("Operator", "Count", "Examples"), self._examples(samples)), ""]
        gap_rows = [_gap_cells(gap) for gap in self.hotspots[:_TOP]]
        parts += ["## Duration Gap Hotspots", "", *_table(_GAP_HEADER, gap_rows), ""]
        failures = [*self.failures, *(_unmeasured_cells(row) for row in self.unmeasured)]
        if failures:
            parts += ["## Failures", "", *_table(("Operator", "Reason"), failures), ""]
        return "\n".join([*parts, f"All hotspots: {hotspot_name}", ""])

    def _overview(self) -> list[tuple[str, ...]]:
        outcomes = self.outcomes
        counts = {
            "CSV files touched": sum(outcome.table is not None for outcome in outcomes),
            "Rows updated": sum(outcome.updated for outcome in outcomes),
            "Rows added": sum(outcome.added for outcome in outcomes),
            "Rows deleted": sum(len(outcome.deleted) for outcome in outcomes),
            "Rows unchanged": sum(outcome.unchanged for outcome in outcomes),
            "Duplicate signatures": sum(len(outcome.duplicates) for outcome in outcomes),
            "Missing shapes": sum(len(outcome.missing) for outcome in outcomes),
            "Hotspots": len(self.hotspots),
        }
        return [
            *((name, str(count)) for name, count in counts.items()),
            ("Gap threshold", f"<{GAP_LOW} or >{GAP_HIGH}"),
        ]

    def _summary(self) -> list[tuple[str, ...]]:
        return [
            (
                operator,
                *(
                    str(sum(count(outcome) for outcome in group))
                    for count in (
                        lambda outcome: outcome.updated,
                        lambda outcome: outcome.added,
                        lambda outcome: len(outcome.deleted),
                        lambda outcome: outcome.unchanged,
                        lambda outcome: len(outcome.missing),
                    )
                ),
            )
            for operator, group in totals(self.outcomes).items()
        ]

    def _examples(self, samples: Callable[[FileOutcome], list[str]]) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for operator, group in totals(self.outcomes).items():
            shapes = [shape for outcome in group for shape in samples(outcome)]
            if shapes:
                rows.append((operator, str(len(shapes)), "<br>".join(shapes[:_EXAMPLES])))
        return rows


_SUMMARY_HEADER = ("Operator", "Updated", "Added", "Deleted", "Unchanged", "Missing Samples")
_GAP_HEADER = ("Operator", "MicroBench(us)", "Profiling(us)", "Abs Diff(us)", "MB/Profile", "Shape")
_EXAMPLE_SECTIONS: tuple[tuple[str, Callable[[FileOutcome], list[str]]], ...] = (
    ("Missing Shapes", lambda outcome: outcome.missing),
    ("Deleted Empty Rows", lambda outcome: outcome.deleted),
    ("Duplicate Signatures", lambda outcome: outcome.duplicates),
)


def hotspots(gaps: Any) -> list[Gap]:
    """Gaps outside the threshold; the largest factor either way first, then the largest difference, then the name."""
    far = [gap for gap in gaps if not GAP_LOW <= gap.ratio <= GAP_HIGH]
    return sorted(
        far,
        key=lambda gap: (max(gap.ratio, 1 / gap.ratio), abs(gap.replay_us - gap.profile_us), gap.operator),
        reverse=True,
    )


def hotspot_csv(gaps: Sequence[Gap]) -> str:
    """All hotspots as a CSV file."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(_HOTSPOT_HEADER)
    for gap in gaps:
        operator, *figures, shape = _gap_cells(gap)
        writer.writerow([operator, gap.csv_name, *figures, shape])
    return text.getvalue()


def write_report(directory: Path, report: Report) -> str:
    """Write both files below ``reports/``; returns the report's text.

    Raises:
        ModelingError: they cannot be written.
    """
    reports = directory / "reports"
    make_directory(reports)
    stamp = time.strftime("%Y%m%d_%H%M%S")
    hotspot_path = reports / f"duration_gap_hotspots_full_{stamp}.csv"
    text = report.text(hotspot_path.name)
    replace_files(
        {
            reports / f"profile_update_report_{stamp}.md": text.encode(),
            hotspot_path: hotspot_csv(report.hotspots).encode(),
        }
    )
    return text


def read_status(path: Path) -> dict[str, Any] | None:
    """The status file's content, ``None`` when there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _status_lines(status: dict[str, Any]) -> list[str]:
    failed = status.get("failed", [])
    lines = [
        f"- Success: {len(status.get('success', []))}",
        f"- Failed: {len(failed)}",
        f"- Skipped: {len(status.get('skipped', []))}",
    ]
    return lines + [f"  - {entry['op']}: {entry['reason']}" for entry in failed]


def _gap_cells(gap: Gap) -> tuple[str, ...]:
    difference = abs(gap.replay_us - gap.profile_us)
    figures = (gap.replay_us, gap.profile_us, difference, gap.ratio)
    return (gap.operator, *(f"{figure:.6f}" for figure in figures), gap.shape)


def _unmeasured_cells(row: RowRecord) -> tuple[str, str]:
    return row.operator, f"line {row.line} {row.state}, {row.shapes}: {row.reason}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return ["_None_"]
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return [
        f"| {' | '.join(header)} |",
        f"|{'|'.join(' --- ' for _ in header)}|",
        *(f"| {' | '.join(row)} |" for row in cells),
    ]
