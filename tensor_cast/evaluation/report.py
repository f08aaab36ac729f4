"""The report of one evaluation: chapters from ``config.json`` and ``summary.json``, nothing computed anew."""

from __future__ import annotations

from pathlib import Path

from tensor_cast.evaluation.chapters.appendix import appendix
from tensor_cast.evaluation.chapters.communication import communication_chapter
from tensor_cast.evaluation.chapters.configuration import configuration_chapter
from tensor_cast.evaluation.chapters.findings import findings_chapter
from tensor_cast.evaluation.chapters.headline import headline
from tensor_cast.evaluation.chapters.memory import memory_chapter
from tensor_cast.evaluation.chapters.metrics import metrics_chapter
from tensor_cast.evaluation.chapters.operators import operators_chapter
from tensor_cast.evaluation.language import Language
from tensor_cast.evaluation.pages.blocks import Block, Heading, Page
from tensor_cast.evaluation.pages.html_page import html
from tensor_cast.evaluation.pages.markdown import markdown
from tensor_cast.evaluation.results import PAGE, REPORT, Results

KINDS = {
    "text": "Performance evaluation of {model} {spec} on {device}",
    "video": "Video generation evaluation of {model} {spec} on {device}",
    "image": "Image generation evaluation of {model} {spec} on {device}",
}


def report_page(results: Results, language: str = "en", *, title_name: str | None = None) -> Page:
    """The whole report; ``title_name`` is the directory's name where it is not there yet."""
    t = Language(language)
    config = results.config
    chapters: list[tuple[str, list[Block]]] = [
        (t("Test configuration"), configuration_chapter(results, t)),
        (t("Results"), metrics_chapter(results, t)),
        (t("Operator analysis"), operators_chapter(results, t)),
    ]
    if config["parallel"]["world"] > 1:
        chapters.append((t("Communication analysis"), communication_chapter(results, t)))
    chapters += [
        (t("Memory"), memory_chapter(results, t)),
        (t("Key findings and advice"), findings_chapter(results, t)),
        (t("Appendix"), appendix(results, t)),
    ]
    model, device = config["model"], config["device"]["name"]
    return Page(
        title=t(KINDS[config["kind"]], model=model["model"], spec=model["spec"], device=device),
        subtitle=f"{title_name or results.name} · {config['time'].replace('T', ' ')}",
        blocks=(
            *headline(results, t),
            *(block for title, blocks in chapters for block in (Heading(title), *blocks)),
        ),
        language=t.html_name,
    )


def write_report(results: Results, language: str = "en", *, title_name: str | None = None) -> tuple[Path, Path]:
    """Write the report as Markdown and HTML into the results directory; returns both paths."""
    from tensor_cast.reporting.output_file import write_whole

    page = report_page(results, language, title_name=title_name)
    paths = results.directory / REPORT, results.directory / PAGE
    write_whole(paths[0], markdown(page))
    write_whole(paths[1], html(page))
    return paths
