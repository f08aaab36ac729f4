"""Rows that could be measured: a kernel's widths by points of its axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import numpy.typing as npt

from tensor_cast.performance_model.profiling_database.kernels import Kernel
from tensor_cast.performance_model.profiling_database.kernels_attention import (
    DECODE_ATTENTION,
    EXPANDED_ATTENTION,
    LATENT_ATTENTION,
    LIGHTNING_INDEXER,
    PREFILL_ATTENTION,
    RING_ATTENTION,
)
from tensor_cast.performance_model.profiling_database.kernels_matmul import (
    GROUPED_MATMUL,
    GROUPED_MATMUL_SWIGLU_QUANT,
    MATMUL_KERNELS,
    QUANT_GROUPED_MATMUL,
)
from tensor_cast.performance_model.profiling_database.kernels_moe import (
    DISPATCH_FFN_COMBINE,
    TOKEN_PERMUTE,
    TOKEN_UNPERMUTE,
)
from tensor_cast.performance_model.profiling_database.kernels_vector import PAD
from tools.perf_data_collection.grid_generator import axes

FloatArray = npt.NDArray[np.float64]

DEFAULT_DTYPES: Mapping[str, str] = {
    "x": "bfloat16",
    "y": "bfloat16",
    "z": "bfloat16",
    "w": "int8",
    "q": "int8",
}
"""Dtypes of a layout's names where neither a model nor a row of the file says others."""


@dataclass(frozen=True)
class Structure:
    """A kernel with widths: what a model and its deployment decide.

    ``dtypes`` are those that the model asks for, sorted pairs; ``hints`` are sizes that only writing a row needs (the
    width of a head).
    """

    kernel: Kernel
    widths: tuple[float, ...]
    dtypes: tuple[tuple[str, str], ...] = ()
    hints: tuple[tuple[str, float], ...] = field(default=(), compare=False)

    @property
    def sizes(self) -> dict[str, float]:
        """Widths by name, hints too."""
        return {**dict(self.hints), **dict(zip(self.kernel.widths, self.widths, strict=True))}


def axis_points(kernel: Kernel) -> FloatArray:
    """(points, axes of the kernel): where a structure of this kernel could be measured."""
    if kernel in (DECODE_ATTENTION, LATENT_ATTENTION, LIGHTNING_INDEXER):
        return _table((kv, 1.0, b) for b, kv in product(axes.DECODE_BATCHES, axes.DECODE_CONTEXTS))
    if kernel in (PREFILL_ATTENTION, EXPANDED_ATTENTION):
        return _table((q, q, b) for b, q in product(axes.PREFILL_BATCHES, axes.PREFILL_LENGTHS))
    if kernel is RING_ATTENTION:
        return _table((q, q, 1.0) for q in axes.PREFILL_LENGTHS)
    if kernel in (GROUPED_MATMUL, QUANT_GROUPED_MATMUL, GROUPED_MATMUL_SWIGLU_QUANT):
        return _table((rows,) for rows in axes.EXPERT_ROWS)
    if kernel in (TOKEN_PERMUTE, TOKEN_UNPERMUTE, DISPATCH_FFN_COMBINE):
        return _table((rows,) for rows in axes.EXPERT_ROWS[:-1])
    if kernel is PAD:
        return _table((rows,) for rows in axes.PADDED_ROWS)
    return _table((rows,) for rows in (axes.TOKENS if kernel in MATMUL_KERNELS else axes.ROWS))


def _table(points: Iterable[Sequence[float]]) -> FloatArray:
    return np.array(list(points), dtype=np.float64)
