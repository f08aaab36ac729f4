from __future__ import annotations

import pytest

from tensor_cast.errors import closest, did_you_mean

FLAGS = ("--num-queries", "--query-length", "--tp-size", "--dtype", "--chrome-trace-file", "--json", "--decode")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("--num-query", ["--num-queries"]),
        ("--TP-Size", ["--tp-size"]),
        # A word of the flag, which is far from the whole of it.
        ("--trace", ["--chrome-trace-file"]),
        ("--tp", ["--tp-size"]),
        # Dashes alone make nothing alike.
        ("--foo", []),
        ("--gpu-memory-utilization", []),
        ("--", []),
    ],
)
def test_only_names_that_are_alike_are_close(name: str, found: list[str]) -> None:
    assert closest(name, FLAGS) == found


def test_at_most_three_are_suggested() -> None:
    assert len(closest("tp-size", ["tp-size1", "tp-size2", "tp-size3", "tp-size4"])) == 3


def test_nothing_is_said_where_nothing_is_close() -> None:
    assert did_you_mean("--foo", FLAGS) == ""
    assert did_you_mean("--jason", FLAGS) == " Did you mean --json?"
