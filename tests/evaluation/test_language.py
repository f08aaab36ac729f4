from __future__ import annotations

import ast
import string
from pathlib import Path

import pytest

from tensor_cast import Deployment, TextWorkload, cautions, evaluation, simulate, unmeasured, video_simulator
from tensor_cast.errors import ModelingError
from tensor_cast.evaluation.chinese import SENTENCES
from tensor_cast.evaluation.chinese_warnings import WARNINGS, translated
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


def _warnings() -> set[str]:
    """Every sentence that the simulators may warn with, ``x`` in the place of each figure."""
    found: set[str] = set()
    for module in (cautions, unmeasured, video_simulator):
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))):
            is_append = isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "append"
            said = node.value if isinstance(node, ast.Yield) else node.args[0] if is_append else None  # type: ignore[attr-defined]
            if isinstance(said, ast.Tuple):
                name, reason = (_text(element) for element in said.elts)
                found.add(f"Without effect: {name}, as {reason}.")
            elif isinstance(said, ast.Constant | ast.JoinedStr):
                found.add(_text(said))
    return found


def _text(node: ast.expr) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(part.value if isinstance(part, ast.Constant) else "x" for part in parts)  # type: ignore[misc]


def test_every_warning_has_its_chinese() -> None:
    assert len(_warnings()) > 20
    # Of an engine the test of real requests has every form: how many of its times are assumed makes the sentence.
    written = {warning for warning in _warnings() if "'s own time" not in warning}
    assert {warning for warning in written if translated(warning) == warning} == set()


@pytest.mark.parametrize("sentence", WARNINGS)
def test_a_translated_warning_shows_the_same_figures(sentence: str) -> None:
    def fields(text: str) -> list[str]:
        return sorted(name for _, name, _, _ in string.Formatter().parse(text) if name is not None)

    assert fields(WARNINGS[sentence]) == fields(sentence)


def test_warnings_of_real_requests_are_translated() -> None:
    decode = TextWorkload(num_queries=1, query_length=2, context_length=200_000, decode=True)
    prefill = TextWorkload(num_queries=1, query_length=200_000)
    for model, workload, options in (
        ("openai/gpt-oss-20b", decode, {"engine": "mindie"}),
        ("openai/gpt-oss-20b", prefill, {"engine": "mindie"}),
        ("openai/gpt-oss-20b", prefill, {"engine": "vllm-ascend"}),
        ("openai/gpt-oss-20b", prefill, {"engine": "vllm-ascend", "world_size": 8, "tp_size": 8, "ep_size": 8}),
        ("openai/gpt-oss-20b", prefill, {"engine": "sglang", "world_size": 8, "tp_size": 8, "ep_size": 8}),
        ("XiaomiMiMo/MiMo-V2-Flash", decode, {"quantize_lmhead": True}),
        ("google/gemma-2-9b", decode, {}),
    ):
        estimate = simulate(model, device="H100", workload=workload, deployment=Deployment(**options))  # type: ignore[arg-type]
        assert len(estimate.warnings) > 1
        for warning in estimate.warnings:
            assert Language("en").warning(warning) == warning
            chinese = Language("zh").warning(warning)
            assert chinese != warning
            assert any("\u4e00" <= character <= "\u9fff" for character in chinese)


def test_an_unknown_warning_stays_english() -> None:
    assert Language("zh").warning("Something new.") == "Something new."
