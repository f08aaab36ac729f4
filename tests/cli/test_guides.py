"""The guides name every flag, choice and key, in both languages, and none that does not exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.arguments.kernels import COMPILATION_OPTIONS
from cli.arguments.quantization import LINEAR_ACTIONS
from cli.main import _parser, main

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = ["text-generate.md", "text-generate.zh.md"]
SCHEMAS = ["json.md", "json.zh.md"]


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def flags_of(command: str) -> set[str]:
    _, parser = _parser(command)
    assert parser is not None
    options = {option for action in parser._actions for option in action.option_strings}
    return {option for option in options if option.startswith("--")} - {"--help"}


@pytest.mark.parametrize("guide", GUIDES)
def test_every_flag_is_explained_and_no_other(guide: str) -> None:
    cells = re.findall(r"^\| (`[^|]*) \|", read(guide), re.MULTILINE)
    explained = {flag for cell in cells for flag in re.findall(r"--[a-z0-9-]+", cell)}
    assert explained == flags_of("text-generate")


@pytest.mark.parametrize("guide", GUIDES)
def test_every_choice_is_named(guide: str) -> None:
    text = read(guide)
    for choice in (*LINEAR_ACTIONS, *COMPILATION_OPTIONS):
        assert f"`{choice}`" in text


def keys_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            # What was asked for goes by the names of the Python API, which describes them.
            if key not in ("workload", "deployment", "changes"):
                yield from keys_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_key_is_described(schema: str, capsys: pytest.CaptureFixture[str]) -> None:
    described = set(re.findall(r"`(\w+)`", read(schema)))
    request = ("text-generate", "deepseek-ai/DeepSeek-V3", "--device", "TEST_DEVICE", "--num-queries", "8")
    request += ("--query-length", "64", "--quantize-linear-action", "DISABLED", "--world-size", "8", "--tp-size", "8")
    for words in ((*request, "--json", "-"), ("models", "show", "openai/gpt-oss-20b", "--json"), ("models", "--json")):
        assert main(words) == 0
        assert set(keys_of(json.loads(capsys.readouterr().out))) <= described
