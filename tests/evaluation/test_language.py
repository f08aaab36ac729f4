from __future__ import annotations

import ast
import string
from pathlib import Path

import pytest

from tensor_cast import evaluation
from tensor_cast.errors import ModelingError
from tensor_cast.evaluation.chinese import SENTENCES
from tensor_cast.evaluation.explain.layers import GAPS, OVERLAP
from tensor_cast.evaluation.findings import SENTENCES as FINDINGS
from tensor_cast.evaluation.language import Language
from tensor_cast.evaluation.report import KINDS
from tensor_cast.performance_model.roofline import BOUNDS

_SOURCES = sorted(Path(evaluation.__file__).parent.rglob("*.py"))


def _sentences() -> set[str]:
    """The text of every ``t("…")`` in the package."""
    found: set[str] = set()
    for path in _SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "t"
            if is_call and isinstance(node.args[0], ast.Constant):
                found.add(node.args[0].value)
    return found


def test_every_sentence_has_its_chinese() -> None:
    sentences = _sentences() | set(FINDINGS.values()) | set(KINDS.values()) | {*BOUNDS, GAPS, OVERLAP}
    assert len(sentences) > 100
    assert sentences - set(SENTENCES) == set()


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_translation_shows_the_same_figures(sentence: str) -> None:
    def fields(text: str) -> list[str]:
        return sorted(f"{name}:{form}" for _, name, form, _ in string.Formatter().parse(text) if name is not None)

    assert fields(SENTENCES[sentence]) == fields(sentence)


def test_names_from_data_are_translated_where_there_is_a_word() -> None:
    assert Language("zh").known("memory") == "访存"
    assert Language("zh").known("flash_attention") == "flash_attention"
    assert Language("en").known("memory") == "memory"


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(ModelingError, match="written in en and zh, not in 'fr'"):
        Language("fr")
