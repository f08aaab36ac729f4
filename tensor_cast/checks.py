"""Checks of single values in a description of a request: what is no such value is one sentence, not a TypeError."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tensor_cast.errors import ModelingError


def whole(value: Any, name: str, *, minimum: int) -> int:
    """``value`` as an int of at least ``minimum``; NumPy's integers are taken too.

    Raises:
        ModelingError: it is not one.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = minimum - 1
    if number < minimum or isinstance(value, bool | np.bool_):
        raise ModelingError(f"{name} must be a whole number of at least {minimum}, got {value!r:.60}.")
    return number


def real(value: Any, name: str) -> float:
    """``value`` as a finite float.

    Raises:
        ModelingError: it is not one number.
    """
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or not np.isfinite(value):
        raise ModelingError(f"{name} must be one number, got {value!r:.60}.")
    return float(value)


def flag(value: Any, name: str) -> bool:
    """``value`` as a bool: a word or a number in its place is more likely a mistake than a yes.

    Raises:
        ModelingError: it is neither true nor false.
    """
    if not isinstance(value, bool | np.bool_):
        raise ModelingError(f"{name} must be True or False, got {value!r:.60}.")
    return bool(value)


def text(value: Any, name: str) -> str:
    """``value``, a string.

    Raises:
        ModelingError: it is not one.
    """
    if not isinstance(value, str):
        raise ModelingError(f"{name} must be a name, got {value!r:.60}.")
    return value
