"""ReshapeAndCacheNdKernel: keys and values of new tokens written into their slots of a paged cache."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import torch

from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host.float64 import Array, float64, whole
from tools.perf_data_collection.op_replay.kernel import ATB, Kernel
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[torch.Tensor, ...]:
    """key and value (T, h, d), both caches (blocks, size, h, d), and a slot of its own for each token."""
    cache, slots = row.input(2, "key_cache", 4), row.input(4, "slot_indices", 1)
    count, room = slots.shape[0], cache.shape[0] * cache.shape[1]
    if count > room:
        raise RowError(f"{count} tokens do not fit the cache's {room} slots.")
    key, value = make(row.input(0, "key", 3)), make(row.input(1, "value", 3))
    caches = make(cache), make(row.input(3, "value_cache", 4))
    return key, value, *caches, make.integers(torch.arange(count) * (room // max(count, 1)), slots)


def launch(
    key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, slots: torch.Tensor
) -> object:
    """In place."""
    return npu_function("_npu_reshape_and_cache")(key, value, key_cache, value_cache, slots)


def host(
    key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, slots: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Both caches with the tokens in them."""
    places = slots.long()
    key_cache.flatten(0, 1).index_copy_(0, places, key)
    value_cache.flatten(0, 1).index_copy_(0, places, value)
    return key_cache, value_cache


def reference(
    key: torch.Tensor, value: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, slots: torch.Tensor
) -> tuple[Array, Array]:
    """The same, token by token."""
    results = []
    for new, cache in ((key, key_cache), (value, value_cache)):
        result = float64(cache).copy()
        for token, slot in enumerate(whole(slots)):
            result[slot // cache.shape[1], slot % cache.shape[1]] = float64(new)[token]
        results.append(result)
    return results[0], results[1]


KERNEL = Kernel(
    "ReshapeAndCacheNdKernel", operands, launch=launch, host=host, reference=reference, needs=frozenset({ATB})
)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
