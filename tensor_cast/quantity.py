"""Quantities of work: a float, or a NumPy array of many points at once.

A *structure* (layers, heads, parallel sizes) is an ordinary ``int`` and may decide control flow. A *quantity*
(queries, tokens, context length) may be an array of thousands of points, so code never branches on one: it uses
the functions here and NumPy's ``maximum``, ``where``, ``ceil``.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tensor_cast.errors import ModelingError

Quantity: TypeAlias = "float | npt.NDArray[np.float64]"
"""One value, or one value a point of a sweep; shapes broadcast."""


def quantity(value: object, name: str, *, minimum: float) -> Quantity:
    """``value`` as a float or float array, checked.

    Raises:
        ModelingError: it is not numeric, not a whole number, or below ``minimum``.
    """
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ModelingError(f"{name} must be a number or an array of numbers, got {value!r}.") from None
    if array.size == 0:
        raise ModelingError(f"{name} is empty: give at least one value.")
    wrong = ~np.isfinite(array) | (array < minimum) | (array != np.floor(array))
    if wrong.any():
        first = array[wrong].flat[0] if array.ndim else array[()]
        raise ModelingError(f"{name} must be a whole number of at least {minimum:g}, got {first:g}.")
    return float(array) if array.ndim == 0 else array


def ceil_div(value: Quantity, divisor: Quantity) -> Quantity:
    """The least whole number not below ``value / divisor``."""
    return np.ceil(np.divide(value, divisor))


def round_up(value: Quantity, multiple: Quantity) -> Quantity:
    """The least multiple of ``multiple`` not below ``value``."""
    return ceil_div(value, multiple) * multiple


def plain(value: Quantity) -> float | list[object]:
    """``value`` as JSON takes it: a float, or nested lists of floats."""
    array = np.asarray(value, dtype=np.float64)
    return float(array) if array.ndim == 0 else array.tolist()
