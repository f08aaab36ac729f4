"""MoeTokenPermute: tokens copied once for each of their experts, in the experts' order."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import numpy as np
import torch

from tools.perf_data_collection.op_replay.host.float64 import Array, float64, whole
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (T, H) and the experts of each (T, k) or (T)."""
    return make(row.input(0, "tokens", 2)), make(row.input(1, "indices", 1, 2))


def launch(tokens: torch.Tensor, indices: torch.Tensor) -> object:
    """The copies and where each copy went."""
    return npu_function("npu_moe_token_permute")(tokens, indices)


def host(tokens: torch.Tensor, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same: op-plugin documents the places as argsort(argsort(indices))."""
    order = torch.argsort(indices.flatten(), stable=True)
    places = torch.empty_like(order)
    places[order] = torch.arange(order.numel(), device=order.device)
    return tokens[order // (order.numel() // tokens.shape[0])], places.to(torch.int32)


def reference(tokens: torch.Tensor, indices: torch.Tensor) -> tuple[Array, Array]:
    """The same, sorted by expert and then by position."""
    experts = whole(indices).reshape(tokens.shape[0], -1)
    copies = sorted((int(expert), token, k) for token, own in enumerate(experts) for k, expert in enumerate(own))
    places = np.zeros(len(copies))
    for place, (_, token, k) in enumerate(copies):
        places[token * experts.shape[1] + k] = place
    return float64(tokens)[[token for _, token, _ in copies]], places


KERNEL = Kernel("MoeTokenPermute", operands, launch=launch, host=host, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
