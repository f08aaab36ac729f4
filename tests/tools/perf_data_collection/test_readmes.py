"""The readmes say what the parsers accept: every flag, default and choice, in both languages."""

from __future__ import annotations

import argparse
import importlib
import re
from pathlib import Path

import pytest

from cli.main import _parser
from tensor_cast.performance_model.profiling_database.schema import PROFILE_COUNT, RUNTIME_COLUMNS, kernel_columns
from tools.perf_data_collection.parsers import parse_kernel_details

ROOT = Path(parse_kernel_details.__file__).resolve().parents[1]
CHINESE, ENGLISH = "readme.md", "readme_en.md"
REQUIRED = {CHINESE: "必填", ENGLISH: "required"}
_FLAG_HEADING = re.compile(r"^### .*`(?P<script>[\w/]+\.py)`")
SCRIPTS = sorted(
    str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if "\ndef build_parser()" in path.read_text("utf-8")
)


def text_of(readme: str) -> str:
    return (ROOT / readme).read_text(encoding="utf-8")


def flag_tables(readme: str) -> dict[str, dict[str, tuple[str, list[str]]]]:
    """Script to flag to (default, choices), read from the tables below headings that name a script."""
    tables: dict[str, dict[str, tuple[str, list[str]]]] = {}
    script = None
    for line in text_of(readme).splitlines():
        if line.startswith("#"):
            heading = _FLAG_HEADING.match(line)
            script = heading.group("script") if heading else None
        elif script and line.startswith("| `--"):
            flag, default, choices, _ = (cell.strip() for cell in line.strip("|").split("|"))
            tables.setdefault(script, {})[flag.strip("`")] = (default.strip("`"), re.findall(r"`([^`]+)`", choices))
    return tables


def documented(action: argparse.Action, required: str) -> tuple[str, list[str]]:
    if action.required:
        default = required
    elif action.default in (None, False):
        default = ""
    elif isinstance(action.default, list):
        default = " ".join(map(str, action.default))
    else:
        default = str(action.default)
    return default, [str(choice) for choice in action.choices or ()]


def parser_of(script: str) -> argparse.ArgumentParser:
    name = ".".join(("tools", "perf_data_collection", *Path(script).with_suffix("").parts))
    parser = importlib.import_module(name).build_parser()
    assert isinstance(parser, argparse.ArgumentParser)
    return parser


def test_there_is_a_script_to_document() -> None:
    assert "parsers/parse_kernel_details.py" in SCRIPTS
    assert "comm_bench/generate_comm_microbench.py" in SCRIPTS


@pytest.mark.parametrize("readme", [CHINESE, ENGLISH])
@pytest.mark.parametrize("script", SCRIPTS)
def test_flags_defaults_and_choices(readme: str, script: str) -> None:
    actions = [
        action
        for action in parser_of(script)._actions
        if not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS
    ]
    expected = {action.option_strings[-1]: documented(action, REQUIRED[readme]) for action in actions}
    assert flag_tables(readme)[script] == expected


def test_both_languages_have_the_same_sections_and_code() -> None:
    def skeleton(readme: str) -> tuple[list[str], list[str]]:
        text = text_of(readme)
        numbers = re.findall(r"^#+ ([\d.]+)", text, flags=re.MULTILINE)
        return numbers, re.findall(r"```.*?```", text, flags=re.DOTALL)

    assert skeleton(CHINESE) == skeleton(ENGLISH)


@pytest.mark.parametrize("readme", [CHINESE, ENGLISH])
def test_columns_that_are_named_exist(readme: str) -> None:
    text = text_of(readme)
    columns = set(kernel_columns("FusedInferAttentionScore"))
    named = set(re.findall(r"`((?:Profiling|Runtime) [A-Za-z_() ]+)`", text))
    assert named <= columns
    assert PROFILE_COUNT in named
    assert str(len(kernel_columns("Add"))) in re.findall(r"\b(\d+) (?:columns:|列)", text.replace("共 37 列", "37 列"))
    assert str(len(RUNTIME_COLUMNS)) in re.findall(r"(\d+)", text)


@pytest.mark.parametrize("readme", [CHINESE, ENGLISH])
def test_no_flag_is_mentioned_that_no_script_has(readme: str) -> None:
    known = {flag for script in SCRIPTS for action in parser_of(script)._actions for flag in action.option_strings}
    # msprof's, torchrun's (--nproc_per_node) and those of `msmodeling perf-db plot`.
    foreign = {"--task-time", "--aic-metrics", "--nproc", "--output", "--text-only"}
    _, simulation = _parser("text-generate")
    assert simulation is not None
    known |= {flag for action in simulation._actions for flag in action.option_strings}
    assert set(re.findall(r"--[a-z][a-z-]+", text_of(readme))) <= known | foreign
