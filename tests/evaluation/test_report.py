from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cli.main import main
from tensor_cast.evaluation.report import write_report
from tensor_cast.evaluation.results import read_results
from tests.evaluation.conftest import TEXT

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class _Page(HTMLParser):
    """Tags that are open at the end, what is fetched, and how many of each tag there are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: dict[str, int] = {}
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "link", "br", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_markdown_has_something_below_every_heading(
    text_results: Path, shared_text_results: Path, video_results: Path
) -> None:
    for results in (text_results, shared_text_results, video_results):
        text = (results / "evaluation_report.md").read_text()
        lines = [line for line in text.splitlines() if line]
        ends = zip(lines, [*lines[1:], "#"], strict=True)
        # A heading may be followed by one below it, never by one of its own level.
        levels = [(len(line) - len(line.lstrip("#")), len(after) - len(after.lstrip("#"))) for line, after in ends]
        assert not [pair for pair in levels if pair[0] and 0 < pair[1] <= pair[0]]
    summary = json.loads((text_results / "summary.json").read_text())
    text = (text_results / "evaluation_report.md").read_text()
    said = text.partition("### What bounds the time\n\n")[2].partition("\n")[0].split(", ")
    total_s = summary["metrics"]["execution_time_s"]
    for part, (bound, seconds) in zip(said, summary["operators"]["bounds"].items(), strict=True):
        name, share = part.split()
        assert name == bound
        assert float(share.lstrip("<").rstrip("%")) == pytest.approx(100.0 * seconds / total_s, abs=0.1)


def test_stages_that_wait_are_not_called_communication(tmp_path: Path) -> None:
    stages = ("--world-size", "2", "--tp-size", "1", "--pp-size", "2", "--iterations", "1", "--no-advice")
    assert main([*TEXT, *stages, "--output-dir", str(tmp_path)]) == 0
    (results,) = tmp_path.iterdir()
    summary = json.loads((results / "summary.json").read_text())
    total_s = summary["metrics"]["execution_time_s"]
    collectives = sum(one["total_s"] for one in summary["collectives"]) / total_s
    waiting = summary["operators"]["bounds"]["wait"] / total_s
    assert waiting > 0.01
    assert summary["operators"]["categories"]["Comm"]["share"] == pytest.approx(collectives + waiting, abs=1e-6)
    assert f"Communication takes {collectives:.1%} of the time." in (results / "evaluation_report.md").read_text()


def test_the_page_is_whole_and_fetches_nothing(text_results: Path, video_results: Path) -> None:
    for results in (text_results, video_results):
        text = (results / "evaluation_report.html").read_text()
        page = _Page(text)
        assert page.open == []
        assert page.counts["svg"] >= 4
        assert "script" not in page.counts
        assert all(target.startswith(("#", "data:")) for target in page.fetched)
        assert "http" not in re.sub(r"http-equiv", "", text.partition("<body>")[2])


def test_the_chapters_stand_in_order(text_results: Path, shared_text_results: Path) -> None:
    chapters = re.findall(r"^## (.*)$", (text_results / "evaluation_report.md").read_text(), re.MULTILINE)
    assert chapters == [
        "Test configuration",
        "Results",
        "Operator analysis",
        "Memory",
        "Key findings and advice",
        "Appendix",
    ]
    chapters = re.findall(r"^## (.*)$", (shared_text_results / "evaluation_report.md").read_text(), re.MULTILINE)
    assert chapters == ["测试配置", "测试结果", "算子分析", "通信分析", "显存", "关键发现与建议", "附录"]


def test_the_report_shows_the_summarys_figures(text_results: Path) -> None:
    summary = json.loads((text_results / "summary.json").read_text())
    report = (text_results / "evaluation_report.md").read_text()
    time_us = summary["metrics"]["execution_time_s"] * 1e6
    shown = f"{time_us / 1e3:.3f} ms" if time_us >= 1e3 else f"{time_us:.1f} us"
    assert f"| Execution time | {shown} |" in report
    assert f"{summary['metrics']['tokens_per_s_per_device']:,.1f}" in report
    assert json.loads((text_results / "config.json").read_text())["command"] in report


def test_a_report_is_written_again_in_another_language(
    text_results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(text_results, tmp_path / text_results.name)
    assert main(["evaluate", "report", str(copy), "--language", "zh"]) == 0
    assert "evaluation_report.html" in capsys.readouterr().out
    assert "性能评测" in (copy / "evaluation_report.md").read_text()
    assert '<html lang="zh-CN">' in (copy / "evaluation_report.html").read_text()


def test_text_from_outside_cannot_become_markup(text_results: Path, tmp_path: Path) -> None:
    results = read_results(Path(shutil.copytree(text_results, tmp_path / text_results.name)))
    results.config["command"] = results.config["device"]["description"] = "<script>alert(1)</script> | `x`"
    results.config["model"]["spec"] = '"><img src=x>'
    page = write_report(results)[1].read_text()
    assert "<script" not in page
    assert "<img" not in page


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine; the page's structure is checked without it")
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_browser_draws_the_charts_and_complains_of_nothing(
    language: str, text_results: Path, shared_text_results: Path, tmp_path: Path
) -> None:
    results = {"en": text_results, "zh": shared_text_results}[language]
    page = results / "evaluation_report.html"
    errors = _chromium(page, tmp_path, "--window-size=1100,4000", f"--screenshot={tmp_path / 'page.png'}").stderr
    assert "CONSOLE" not in errors
    # A page of text and charts; an empty one of this size takes less than 10 kB.
    assert (tmp_path / "page.png").stat().st_size > 100_000
    drawn = _chromium(page, tmp_path, "--dump-dom").stdout
    charts = re.findall(r"<figure><svg.*?</svg>", drawn, re.DOTALL)
    assert len(charts) >= 4
    assert all("<rect" in chart and "<title>" in chart for chart in charts)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_complaint_of_the_browser_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<script>missing()</script>")
    assert "CONSOLE" in _chromium(page, tmp_path, "--dump-dom").stderr


def _chromium(page: Path, scratch: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    return subprocess.run(
        [
            CHROMIUM,
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--enable-logging=stderr", f"--user-data-dir={scratch / 'profile'}", *options),
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "HOME": str(scratch)},
        check=True,
    )
