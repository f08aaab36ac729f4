from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.errors import ModelingError
from tensor_cast.quantity import ceil_div, plain, quantity, round_up


def test_scalars_become_floats_and_sequences_arrays() -> None:
    assert quantity(3, "n", minimum=1) == 3.0
    assert isinstance(quantity(np.int64(3), "n", minimum=1), float)
    np.testing.assert_array_equal(quantity([1, 2], "n", minimum=1), [1.0, 2.0])


@pytest.mark.parametrize("value", [0, -1, 2.5, float("nan"), float("inf"), "abc", None, [1, 0], [1.5], []])
def test_wrong_values_are_refused_by_name(value: object) -> None:
    with pytest.raises(ModelingError, match="num_queries"):
        quantity(value, "num_queries", minimum=1)


@given(st.integers(0, 10**9), st.integers(1, 10**6))
def test_round_up_is_the_least_multiple_not_below(value: int, multiple: int) -> None:
    rounded = round_up(float(value), multiple)
    assert rounded % multiple == 0
    assert value <= rounded < value + multiple
    assert ceil_div(float(value), multiple) == -(-value // multiple)


def test_plain_is_what_json_takes() -> None:
    assert plain(np.float64(2.0)) == 2.0
    assert plain(np.array([[1.0, 2.0]])) == [[1.0, 2.0]]
