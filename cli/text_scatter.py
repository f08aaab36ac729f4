"""Points and curves over two logarithmic axes, in characters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_CURVE = "·"


@dataclass(frozen=True)
class Series:
    """Points drawn as ``mark``, and a curve through ``curve(x)`` below them."""

    mark: str
    x: FloatArray
    y: FloatArray
    curve: Callable[[FloatArray], FloatArray]


def log_scatter(
    series: Sequence[Series],
    format_x: Callable[[float], str],
    format_y: Callable[[float], str],
    *,
    width: int = 64,
    height: int = 16,
) -> list[str]:
    """Lines of a chart of ``width`` x ``height`` characters and its axes; points hide curves."""
    every_x = np.concatenate([each.x for each in series])
    low_x, high_x = _limits(every_x)
    columns = np.geomspace(low_x, high_x, width)
    curves = [np.asarray(each.curve(columns), dtype=np.float64) for each in series]
    low_y, high_y = _limits(np.concatenate([*(each.y for each in series), *curves]))

    def place(values: FloatArray, low: float, high: float, count: int) -> npt.NDArray[np.int64]:
        share: FloatArray = np.log(values / low) / np.log(high / low)
        return np.rint(share * (count - 1)).astype(np.int64)

    canvas = np.full((height, width), " ")
    for curve in curves:
        canvas[place(curve, low_y, high_y, height), np.arange(width)] = _CURVE
    for each in series:
        canvas[place(each.y, low_y, high_y, height), place(each.x, low_x, high_x, width)] = each.mark

    labels = {0: format_y(low_y), height // 2: format_y(float(np.sqrt(low_y * high_y))), height - 1: format_y(high_y)}
    margin = max(map(len, labels.values()))
    lines = [f"{labels.get(row, ''):>{margin}} |{''.join(canvas[row]).rstrip()}" for row in reversed(range(height))]
    middle = format_x(float(np.sqrt(low_x * high_x)))
    left, right = format_x(low_x), format_x(high_x)
    axis = f"{left}{middle.center(width - len(left) - len(right))}{right}"
    return [*lines, f"{'':>{margin}} +{'-' * width}", f"{'':>{margin}}  {axis}"]


def _limits(values: FloatArray) -> tuple[float, float]:
    """The range of ``values``; a single value gets some room around it."""
    low, high = float(values.min()), float(values.max())
    return (low, high) if high > low else (low / 2.0, high * 2.0)
