"""Writing an explanation."""

from __future__ import annotations

import json
from pathlib import Path

from tensor_cast.errors import ModelingError
from tensor_cast.evaluation.explain.explain_report import explanation_page
from tensor_cast.evaluation.explain.layers import Explanation, explanation_to_dict
from tensor_cast.evaluation.language import Language
from tensor_cast.evaluation.pages.html_page import html
from tensor_cast.evaluation.pages.markdown import markdown
from tensor_cast.reporting.output_file import write_whole

_STEM = "explanation"


def write_explanation(found: Explanation, language: str, directory: Path | None = None) -> list[Path]:
    """Write the explanation as Markdown, HTML and JSON, by default into ``explain/`` of the results."""
    root = directory or found.results.directory / "explain"
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelingError(f"Cannot make the directory {root}: {error.strerror}.", exit_status=1) from None
    page = explanation_page(found, Language(language))
    texts = {
        ".md": markdown(page),
        ".html": html(page),
        ".json": json.dumps(explanation_to_dict(found), indent=2, ensure_ascii=False, allow_nan=False) + "\n",
    }
    for suffix, text in texts.items():
        write_whole(root / f"{_STEM}{suffix}", text)
    return [root / f"{_STEM}{suffix}" for suffix in texts]
