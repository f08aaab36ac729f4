"""Sections as lines: plain, and on terminals of any width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.reporting.layout import Column, Facts, Section, Sentence, Table, fitted, lines, plain_text

TABLE = Table(
    "Things",
    (Column("name", breakable=True), Column("size", right=True), Column("kind", rank=1), Column("source", rank=2)),
    (("a_rather_long_name.of_something", "1,234", "Vector", "analytic"), ("b", "5", "Comm", "analytic")),
    total=("all", "1,239", "", ""),
)


def rendered(section: Section, width: int) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in lines(section, width)]


def test_plain_text_is_aligned_and_whole() -> None:
    facts = Facts("Facts", (("name", "value"), ("n", "a very long value " * 20)))
    assert plain_text([Sentence("A sentence."), facts, TABLE]).splitlines() == [
        "A sentence.",
        "",
        "Facts",
        "  name  value",
        "  n     " + ("a very long value " * 20).rstrip(),
        "",
        "Things",
        "  name                              size  kind    source",
        "  a_rather_long_name.of_something  1,234  Vector  analytic",
        "  b                                    5  Comm    analytic",
        "  " + "-" * 56,
        "  all                              1,239",
    ]


def test_details_stand_below_their_row() -> None:
    table = Table("T", (Column("name"),), (("a",), ("b",)), details=("first", "second"))
    assert rendered(table, 80) == ["T", "  name", "  a", "      first", "  b", "      second"]


def test_lesser_columns_go_first_and_are_named() -> None:
    assert fitted(TABLE, TABLE.width) is TABLE
    without_source = fitted(TABLE, TABLE.width - 1)
    assert [column.title for column in without_source.columns] == ["name", "size", "kind"]
    assert without_source.note == "This terminal is too narrow for: source."
    assert without_source.total == ("all", "1,239", "")
    assert [column.title for column in fitted(TABLE, 40).columns] == ["name", "size"]


def test_names_are_broken_after_separators() -> None:
    narrow = fitted(TABLE, 24)
    assert narrow.rows[0][0] == "a_rather_long_\nname.of_something"
    assert rendered(narrow, 26)[2:4] == ["  a_rather_long_     1,234", "  name.of_something"]


@given(st.integers(min_value=24, max_value=120))
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    sections: list[Section] = [TABLE, Facts("F", (("name", "word " * 50),)), Sentence("word " * 50)]
    for section in sections:
        assert max(map(len, rendered(section, width))) <= max(width, 27)


@given(st.integers(min_value=24, max_value=120))
def test_nothing_is_lost_but_what_is_said(width: int) -> None:
    text = "".join(rendered(TABLE, width)).replace(" ", "")
    for cell in ("1,234", "1,239", "b", "5"):
        assert cell in text
    assert "source" in text
    assert "kind" in text


def test_styles_name_what_they_colour() -> None:
    table = Table("T", (Column("bound", styled=True),), (("memory",),))
    assert [line[-1][1] for line in lines(table)] == ["title", "quiet", "memory"]
    assert list(lines(Sentence("No.", "bad"))) == [[("No.", "bad")]]


@pytest.mark.parametrize("text", ["", "one\ntwo"])
def test_sentences_keep_their_lines(text: str) -> None:
    assert rendered(Sentence(text), 80) == text.split("\n")
