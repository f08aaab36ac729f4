"""The report's sections and the order of hotspots."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from tools.perf_data_collection.op_replay.journal import RowRecord
from tools.perf_data_collection.op_replay.reports import Report, hotspots, write_report
from tools.perf_data_collection.op_replay.write_back import FileOutcome, Gap

SECTIONS = [
    "# Profile Update Report",
    "## Operator Execution Status",
    "## Overview",
    "## Update Summary",
    "## Missing Shapes",
    "## Deleted Empty Rows",
    "## Duplicate Signatures",
    "## Duration Gap Hotspots",
    "## Failures",
]


def gap(replay, profile, operator="Add"):
    return Gap(operator, f"{operator}.csv", replay, profile, "4 -> 4")


def headings(text):
    return [line for line in text.splitlines() if line.startswith("#")]


def test_sections_stand_in_order_and_leave_out_what_is_not_known(tmp_path):
    outcome = FileOutcome("Add", Path("Add.csv"), updated=2, added=1, unchanged=3, missing=["1", "2", "3", "4|5"])
    outcome.gaps = [gap(3.0, 2.0)]
    status = {"success": ["Add_run.py"], "failed": [{"op": "Sort_run.py", "reason": "no"}], "skipped": []}
    failed = RowRecord("Add", "x", 7, "9 -> 9", "failed", "too large")
    text = write_report(tmp_path, Report([outcome], status=status, unmeasured=[failed]))
    assert headings(text) == SECTIONS
    assert "| Add | 2 | 1 | 0 | 3 | 4 |" in text
    assert "| Add | 4 | 1<br>2<br>3 |" in text
    assert "- Failed: 1\n- Skipped: 0\n  - Sort_run.py: no" in text
    assert "| Add | line 7 failed, 9 -> 9: too large |" in text
    assert "| Gap threshold | <0.8 or >1.2 |" in text
    [report] = (tmp_path / "reports").glob("profile_update_report_????????_??????.md")
    [listing] = (tmp_path / "reports").glob("duration_gap_hotspots_full_????????_??????.csv")
    assert report.read_text(encoding="utf-8") == text
    assert text.rstrip().splitlines()[-1].endswith(listing.name)
    assert list(csv.DictReader(io.StringIO(listing.read_text(encoding="utf-8")))) == [
        {
            "Operator": "Add",
            "CSV Name": "Add.csv",
            "MicroBench(us)": "3.000000",
            "Profiling(us)": "2.000000",
            "Abs Diff(us)": "1.000000",
            "MB/Profile": "1.500000",
            "Shape": "4 -> 4",
        }
    ]
    plain = write_report(tmp_path, Report([]))
    assert headings(plain) == [name for name in SECTIONS if name not in (SECTIONS[1], SECTIONS[-1])]
    assert plain.count("_None_") == 5


def test_hotspots_are_outside_the_threshold_and_the_largest_factor_comes_first():
    # ratios 1.2 and 0.8 are inside; 0.25 is a factor of 4, more than 3; equal factors go by difference
    gaps = [gap(12, 10), gap(8, 10), gap(3, 1), gap(1, 4), gap(30, 10), gap(30, 10, "Sort")]
    assert [(item.operator, item.replay_us) for item in hotspots(gaps)] == [
        ("Add", 1),
        ("Sort", 30),
        ("Add", 30),
        ("Add", 3),
    ]
