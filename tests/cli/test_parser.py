"""Values of flags, and how errors name flags."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.main import main
from tensor_cast.command_line import CommandParser, UsageError, choice, given_path, number, whole_number


@given(st.integers(min_value=1, max_value=10**12))
def test_whole_numbers_are_read(value: int) -> None:
    assert whole_number(1)(str(value)) == value


@given(st.text().filter(lambda text: not text.strip().lstrip("+-").isdecimal()))
def test_nothing_else_is(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be a whole number"):
        whole_number(0)(text)


def test_numbers_have_bounds() -> None:
    assert number(0.0, 1.0)("0.25") == 0.25
    assert number(0.0, 1.0, inclusive=True)("1") == 1.0
    for text in ("1", "-0.1", "nan", "inf", "half"):
        with pytest.raises(argparse.ArgumentTypeError, match="at least 0 and less than 1"):
            number(0.0, 1.0)(text)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        # "--foo" has two of five letters in common with "--json": that is no misspelling.
        (["text-generate", "--foo"], "there is no argument --foo. `"),
        (["text-generate", "--num-querys", "4"], "there is no argument --num-querys. Did you mean --num-queries"),
        (["text-generate", "--log-level", "foo"], "got 'foo'. `"),
        (["models", "shwo"], "there is no command 'shwo': one of list, show. Did you mean show? `"),
        (["devices", "foo"], "there is no command 'foo': one of show, add. `"),
        (["models", "show", "Qwen/Qwen3-8B", "--tp-sise", "2"], "--tp-sise. Did you mean --tp-size"),
        (["devices", "--json"], "there is no argument --json. `"),
        (["devices", "show"], "the following arguments are required: NAME. `"),
    ],
)
def test_only_what_is_alike_is_suggested(name: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(name) == 2
    assert sentence in capsys.readouterr().err


def test_choices_in_any_case() -> None:
    assert choice(("W8A8_DYNAMIC", "FP8"))("w8a8-dynamic") == "W8A8_DYNAMIC"
    with pytest.raises(argparse.ArgumentTypeError, match=r"got 'W8A8'\. Did you mean W8A8_DYNAMIC"):
        choice(("W8A8_DYNAMIC", "FP8"))("W8A8")


def test_an_error_starts_with_the_flag() -> None:
    parser = CommandParser(prog="program")
    parser.add_argument("--size", "--length", type=whole_number(1))
    with pytest.raises(UsageError, match=r"^--size must be a whole number of at least 1, got '0'\. `program --help`"):
        parser.parse_args(["--size", "0"])
    with pytest.raises(UsageError, match=r"^there is no argument --siz\. Did you mean --size\?"):
        parser.refuse(["--siz", "3"])
    with pytest.raises(UsageError, match=r"^there is no argument --siz\. Did you mean --size\?"):
        parser.parse_args(["--siz", "3"])


def test_hidden_flags_are_not_proposed_and_choices_are_listed_with_the_nearest() -> None:
    parser = CommandParser(prog="program")
    parser.add_argument("--journal", help=argparse.SUPPRESS)
    parser.add_argument("--backend", choices=("npu", "cpu"))
    with pytest.raises(UsageError, match=r"^there is no argument --journa\. `program --help`"):
        parser.parse_args(["--journa"])
    with pytest.raises(UsageError, match=r"^--backend must be one of npu, cpu, got 'cpus'\. Did you mean cpu"):
        parser.parse_args(["--backend", "cpus"])


def test_an_empty_path_is_a_variable_that_is_not_set() -> None:
    assert given_path("a/b") == Path("a/b")
    for text in ("", "  "):
        with pytest.raises(argparse.ArgumentTypeError, match="is empty: give a path"):
            given_path(text)


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("perf-db", "stats", ""), "DIR"),
        (("calibrate", "", "--name", "X"), "DATABASE"),
        (("text-generate", "Qwen/Qwen3-0.6B", "--json", ""), "--json"),
        (("video-generate", "FLUX", "--profiling-database-path", ""), "--profiling-database-path"),
        (("compare", ""), "RESULTS_DIR"),
    ],
)
def test_no_command_takes_the_working_directory_for_an_empty_path(
    words: tuple[str, ...], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith(f"error: {flag} is empty: give a path.")


def test_the_help_is_printed_and_nothing_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("--help",), ("text-generate", "--help"), ("models", "show", "--help"), ("devices", "--help")):
        assert main(words) == 0
        assert capsys.readouterr().out.startswith("usage: msmodeling")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("msmodeling ")
