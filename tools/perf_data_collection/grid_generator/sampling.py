"""Which rows to measure first: those that interpolation needs.

Between two measured points the lookup follows the analytic model's shape, so what matters is that every structure has
the ends of its axis, then points that halve the widest gaps (by logarithm), those where tiles are full first. Where
there are more structures than can be measured so, ones that lie far from each other stand for their neighbours.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tools.perf_data_collection.grid_generator.axes import TILE_HEIGHTS
from tools.perf_data_collection.grid_generator.candidates import FloatArray

Order = npt.NDArray[np.intp]

POINTS_A_STRUCTURE = 9
"""Points that a structure should have before another structure is begun. Of 2, 4, 6, 9 and 14 points this many left the
smallest error in ``benchmarks/shape_grid.py``: 2,000 products of 50,653 then predict the others to 1.4 % (median)."""
_BEND_BONUS = 1.25
"""A gap that a bend halves counts as this much wider: better there than 1, 2 and 4."""


def measuring_order(widths: FloatArray, points: FloatArray, rows: int, generator: np.random.Generator) -> Order:
    """Indices structure x len(points) + point of all candidates, those to measure first in front.

    Args:
        widths: (structures, widths) positive.
        points: (points, axes) positive.
        rows: how many will be measured; 0: all.
        generator: breaks ties; the same seed gives the same order.
    """
    structures = spread(widths, generator)
    order = spread(points, generator, starts=ends(points), bonus=_bonus(points))
    enough = len(structures) if not rows else max(1, -(-rows // min(POINTS_A_STRUCTURE, len(order))))
    parts = []
    for group in (structures[:enough], structures[enough:]):
        for point in order:
            if len(group):
                parts.append(generator.permutation(group) * len(points) + point)
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.intp)


def spread(
    values: FloatArray,
    generator: np.random.Generator,
    *,
    starts: list[int] | None = None,
    bonus: FloatArray | None = None,
) -> Order:
    """All rows of ``values`` in farthest-point order by logarithm: each as far as can be from all before it."""
    places = np.log2(np.maximum(values, 1e-9)).reshape(len(values), -1)
    factor = np.ones(len(values)) if bonus is None else bonus
    order = list(starts) if starts else [int(generator.integers(len(values)))]
    distance = np.full(len(values), np.inf)
    for index in order:
        distance = np.minimum(distance, np.abs(places - places[index]).sum(axis=1))
    distance[order] = -1.0
    while len(order) < len(values):
        index = int(np.argmax(distance * factor))
        order.append(index)
        distance = np.minimum(distance, np.abs(places - places[index]).sum(axis=1))
        distance[order] = -1.0
    return np.array(order, dtype=np.intp)


def ends(points: FloatArray) -> list[int]:
    """The smallest and the largest point, by the product of their axes."""
    product = points.prod(axis=1)
    return list(dict.fromkeys((int(product.argmin()), int(product.argmax()))))


def _bonus(points: FloatArray) -> FloatArray:
    if points.shape[1] > 1:
        return np.ones(len(points))
    return np.where(np.isin(points[:, 0], TILE_HEIGHTS), _BEND_BONUS, 1.0)
