"""Products of matrices and of batches of them, however the operands are stored."""

from __future__ import annotations

import torch

from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host.float64 import Array, float64
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow


def matrix_operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, torch.Tensor]:
    """a (M, K) and b (K, N) as views of how the row stores them: b usually as (N, K), seldom transposed; bias left out.

    Raises:
        RowError: the shapes are no product.
    """
    rows, columns = row.output(0, "y", 2).shape
    a, b = make(row.input(0, "a", 2)), make(row.input(1, "b", 2, 4))
    inner = a.shape[1] if a.shape[0] == rows else a.shape[0]
    if sorted(a.shape) != sorted((rows, inner)) or sorted(b.shape) != sorted((columns, inner)):
        raise RowError(f"{tuple(a.shape)} and {tuple(b.shape)} give no {rows},{columns}: the shapes are no product.")
    return (a if a.shape == (rows, inner) else a.t()), (b.t() if b.shape == (columns, inner) else b)


def matrix_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a times b."""
    return torch.mm(a, b)


def matrix_reference(a: torch.Tensor, b: torch.Tensor) -> Array:
    """a times b."""
    return float64(a) @ float64(b)


def right_side(b: torch.Tensor, inner: int, columns: int) -> torch.Tensor:
    """b as (…, K, N), whether it is stored so or as (…, N, K).

    Raises:
        RowError: it is neither.
    """
    if tuple(b.shape[-2:]) == (columns, inner):
        return b.transpose(-1, -2)
    if tuple(b.shape[-2:]) == (inner, columns):
        return b
    raise RowError(f"The second operand {tuple(b.shape)} has no K={inner} and N={columns}.")
