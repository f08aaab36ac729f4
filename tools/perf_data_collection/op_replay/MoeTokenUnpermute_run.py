"""MoeTokenUnpermute: the experts' results of each token brought back and summed, weighted."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import numpy as np
import torch

from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host.float64 import Array, float64, whole
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Copies (T·k, H), the place of each (T·k), and weights (T, k) or nothing."""
    copies, indices = row.input(0, "permuted_tokens", 2), row.input(1, "sorted_indices", 1)
    count = indices.shape[0]
    if count != copies.shape[0]:
        raise RowError(f"{count} places do not fit {copies.shape[0]} tokens.")
    places = torch.arange(count).roll(count // 2)
    return make(copies), make.integers(places, indices), make.optional(row.optional_input(2))


def launch(copies: torch.Tensor, places: torch.Tensor, weights: torch.Tensor | None) -> object:
    """The tokens."""
    function = npu_function("npu_moe_token_unpermute")
    return function(copies, places) if weights is None else function(copies, places, weights)


def host(copies: torch.Tensor, places: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """The same."""
    back = copies.index_select(0, places)
    if weights is None:
        return back
    by_token = back.view(*weights.shape, -1)
    summed: torch.Tensor = (by_token * weights.unsqueeze(-1)).sum(1)
    return summed.to(copies.dtype)


def reference(copies: torch.Tensor, places: torch.Tensor, weights: torch.Tensor | None) -> Array:
    """The same, token by token."""
    back = float64(copies)[whole(places)]
    if weights is None:
        return back
    factors = float64(weights)
    tokens, experts = factors.shape
    return np.array([factors[t] @ back[t * experts : (t + 1) * experts] for t in range(tokens)])


KERNEL = Kernel("MoeTokenUnpermute", operands, launch=launch, host=host, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
