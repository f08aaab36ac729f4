"""Figures as people read them."""

from __future__ import annotations

import pytest

from tensor_cast.units import byte_size, column_unit, count, duration, plural


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.4947, "2.495 s"),
        (0.060987, "60.99 ms"),
        (4.5e-6, "4.500 us"),
        (0.0, "0.000 us"),
        (123.4567, "123.5 s"),
        (0.99999, "1.000 s"),
        (9.9996, "10.00 s"),
        (0.0999996, "100.0 ms"),
        (0.9999, "999.9 ms"),
    ],
)
def test_durations_have_four_digits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_column_has_one_unit() -> None:
    assert column_unit([2.5, 1e-6]) == (1e-3, "ms")
    assert column_unit([250.0]) == (1.0, "s")
    assert column_unit([9e-4]) == (1e-6, "us")
    assert column_unit([]) == (1e-6, "us")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (671_026_404_352, "671 B"),
        (37_552_282_624, "37.6 B"),
        (1.0264e12, "1.03 T"),
        (999, "999"),
        (0, "0"),
        (999_885_952, "1.00 B"),
        (999_400_000, "999 M"),
        (99_960_000, "100 M"),
        (9_996_000, "10.0 M"),
    ],
)
def test_counts(number: float, text: str) -> None:
    assert count(number) == text


@pytest.mark.parametrize(("size", "text"), [(459_000, "459 kB"), (8.27e6, "8.27 MB"), (128, "128 bytes")])
def test_bytes_are_decimal(size: float, text: str) -> None:
    assert byte_size(size) == text


def test_plurals() -> None:
    assert [plural(1, "query"), plural(2, "query"), plural(1234, "token")] == ["1 query", "2 queries", "1,234 tokens"]
