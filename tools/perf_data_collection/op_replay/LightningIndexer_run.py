"""LightningIndexer: for each query the keys with the highest index scores, out of a paged cache."""

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
from tools.perf_data_collection.op_replay.host.attention import paged
from tools.perf_data_collection.op_replay.host.float64 import Array, float64, whole
from tools.perf_data_collection.op_replay.host.requests import block_table, cumulative, paged_kv_lengths, query_lengths
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main

SINCE = "7.3.0"
NOTHING = -1


@dataclass(frozen=True)
class Operands:
    """query (T, N, D), keys (blocks, size, 1, D), weights (T, N), ends of queries, key lengths, blocks, how many."""

    query: torch.Tensor
    keys: torch.Tensor
    weights: torch.Tensor
    ends: torch.Tensor
    lengths: torch.Tensor
    table: torch.Tensor
    count: int


def operands(row: ReplayRow, make: OperandMaker) -> tuple[Operands]:
    """The operands of a row."""
    query, keys, table = row.input(0, "query", 3), row.input(1, "key", 4), row.input(5, "block_table", 2)
    ends, lengths = row.input(3, "actual_seq_lengths_query", 1), row.input(4, "actual_seq_lengths_key", 1)
    requests, width = table.shape
    query_ends = make.integers(cumulative(query_lengths(row, query.shape[0], requests)), ends)
    kv_lengths = make.integers(paged_kv_lengths(row, requests, width * keys.shape[1]), lengths)
    blocks = make.integers(block_table(requests, width, keys.shape[0]), table)
    weights = make(row.input(2, "weights", 2))
    count = row.output(0, "indices").shape[-1]
    return (Operands(make(query), make(keys), weights, query_ends, kv_lengths, blocks, count),)


def launch(given: Operands) -> object:
    """torch_npu's function: vllm-ascend's of the same name launches another kernel."""
    return npu_function("npu_lightning_indexer", SINCE)(
        given.query,
        given.keys,
        given.weights,
        actual_seq_lengths_query=given.ends,
        actual_seq_lengths_key=given.lengths,
        block_table=given.table,
        layout_query="TND",
        layout_key="PA_BSND",
        sparse_count=given.count,
        sparse_mode=CAUSAL,
    )


def host(given: Operands) -> torch.Tensor:
    """Positions (T, 1, count) by falling score, -1 where a query sees fewer keys.

    DeepSeek-V3.2's score of key s for query t is the sum over heads of w[t, n] * relu(q[t, n] · k[s]).
    """
    result = torch.full((given.query.shape[0], 1, given.count), NOTHING, dtype=torch.int32, device=given.query.device)
    start = 0
    for request, (end, length) in enumerate(zip(given.ends.tolist(), given.lengths.tolist(), strict=True)):
        own = paged(given.keys, given.table[request], length).squeeze(1)
        for token in range(start, end):
            visible = max(length - (end - 1 - token), 0)
            scores = (given.query[token] @ own[:visible].T).relu_().float()
            best = (given.weights[token].float() @ scores).topk(min(given.count, visible)).indices
            result[token, 0, : best.numel()] = best.to(torch.int32)
        start = end
    return result


def reference(given: Operands) -> Array:
    """The same, key by key."""
    result = np.full((given.query.shape[0], 1, given.count), NOTHING)
    q, w, cache, blocks = float64(given.query), float64(given.weights), float64(given.keys), whole(given.table)
    size, start = given.keys.shape[1], 0
    for request, (end, length) in enumerate(zip(whole(given.ends), whole(given.lengths), strict=True)):
        for token in range(start, end):
            scores = []
            for place in range(length - (end - 1 - token)):
                key = cache[blocks[request, place // size], place % size, 0]
                scores.append(sum(w[token, n] * max(q[token, n] @ key, 0.0) for n in range(q.shape[1])))
            best = np.argsort(-np.array(scores), kind="stable")[: given.count]
            result[token, 0, : len(best)] = best
        start = end
    return result


KERNEL = Kernel("LightningIndexer", operands, launch=launch, host=host, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
