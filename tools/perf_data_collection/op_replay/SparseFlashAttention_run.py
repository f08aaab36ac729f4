"""SparseFlashAttention: MLA attention over the keys that an indexer chose, out of a paged cache."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import numpy as np
import torch

from tools.perf_data_collection.fia_common import CAUSAL
from tools.perf_data_collection.op_replay.host.float64 import Array, float64, softmax, whole
from tools.perf_data_collection.op_replay.host.requests import block_table, cumulative, paged_kv_lengths, query_lengths
from tools.perf_data_collection.op_replay.kernel import C_ASCEND, CUSTOM_OPP, Kernel
from tools.perf_data_collection.op_replay.npu import argument_names, custom_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main

NOTHING = -1


@dataclass(frozen=True)
class Operands:
    """query (T, N, c), key and value caches (blocks, size, 1, c), chosen positions (T, 1, k), block table and lengths.

    Queries' ends are cumulative, keys' lengths are not; the rope parts of query and key follow, and the scale. The
    positions of a query lie evenly over what it sees.
    """

    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    chosen: torch.Tensor
    table: torch.Tensor
    ends: torch.Tensor
    lengths: torch.Tensor
    query_rope: torch.Tensor
    key_rope: torch.Tensor
    scale: float


def operands(row: ReplayRow, make: OperandMaker) -> tuple[Operands]:
    """The operands of a row."""
    query, keys, chosen = row.input(0, "query", 3), row.input(1, "key", 4), row.input(3, "sparse_indices", 3)
    table, ends, lengths = (
        row.input(4, "block_table", 2),
        *(row.input(slot, "actual_seq_lengths", 1) for slot in (5, 6)),
    )
    requests, width = table.shape
    query_counts = query_lengths(row, query.shape[0], requests)
    kv_lengths = paged_kv_lengths(row, requests, width * keys.shape[1])
    places = torch.full(chosen.shape, NOTHING)
    token = 0
    for queries, length in zip(query_counts, kv_lengths, strict=True):
        for visible in range(length - queries + 1, length + 1):
            count = min(chosen.shape[-1], max(visible, 0))
            places[token, 0, :count] = torch.arange(count) * visible // max(count, 1)
            token += 1
    rope = row.input(7, "query_rope", 3)
    given = Operands(
        make(query),
        make(keys),
        make(row.input(2, "value", 4)),
        make.integers(places, chosen),
        make.integers(block_table(requests, width, keys.shape[0]), table),
        make.integers(cumulative(query_counts), ends),
        make.integers(kv_lengths, lengths),
        make(rope),
        make(row.input(8, "key_rope", 4)),
        (query.shape[-1] + rope.shape[-1]) ** -0.5,
    )
    return (given,)


def launch(given: Operands) -> object:
    """The block size of the choice is 1 in both generations of the call: positional up to 0.20, a keyword later."""
    function = custom_function("_C_ascend", "npu_sparse_flash_attention")
    is_keyword = argument_names(function).index("sparse_block_size") > argument_names(function).index("block_table")
    return function(
        given.query,
        given.keys,
        given.values,
        given.chosen,
        given.scale,
        *(() if is_keyword else (1,)),
        block_table=given.table,
        actual_seq_lengths_query=given.ends,
        actual_seq_lengths_kv=given.lengths,
        query_rope=given.query_rope,
        key_rope=given.key_rope,
        layout_query="TND",
        layout_kv="PA_BSND",
        sparse_mode=CAUSAL,
        **({"sparse_block_size": 1} if is_keyword else {}),
    )


def host(given: Operands) -> torch.Tensor:
    """The output (T, N, c)."""
    output = torch.empty_like(given.query)
    size, start = given.keys.shape[1], 0
    for request, end in enumerate(given.ends.tolist()):
        for token in range(start, end):
            places = given.chosen[token, 0].long()
            places = places[places != NOTHING]
            slots = given.table[request].long()[places // size] * size + places % size
            own, own_rope, own_values = (
                cache.flatten(0, 2)[slots] for cache in (given.keys, given.key_rope, given.values)
            )
            scores = given.query[token] @ own.T + given.query_rope[token] @ own_rope.T
            output[token] = (scores.float() * given.scale).softmax(-1).to(own_values.dtype) @ own_values
        start = end
    return output


def reference(given: Operands) -> Array:
    """The same, with the two parts of each key put together."""
    q = np.concatenate((float64(given.query), float64(given.query_rope)), axis=-1)
    k = np.concatenate((float64(given.keys), float64(given.key_rope)), axis=-1)
    v, blocks, places = float64(given.values), whole(given.table), whole(given.chosen)
    output = np.zeros(given.query.shape)
    for token in range(given.query.shape[0]):
        request = int(np.searchsorted(whole(given.ends), token, side="right"))
        seen = [(blocks[request, place // k.shape[1]], place % k.shape[1]) for place in places[token, 0] if place >= 0]
        own_keys = np.array([k[block, offset, 0] for block, offset in seen])
        own_values = np.array([v[block, offset, 0] for block, offset in seen])
        output[token] = softmax(q[token] @ own_keys.T * given.scale) @ own_values
    return output


KERNEL = Kernel(
    "SparseFlashAttention",
    operands,
    launch=launch,
    host=host,
    reference=reference,
    needs=frozenset({CUSTOM_OPP, C_ASCEND}),
)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
