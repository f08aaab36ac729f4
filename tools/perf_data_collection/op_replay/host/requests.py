"""Lengths and block tables of the requests in an attention row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch

from tensor_cast.performance_model.profiling_database.kernels_attention import AVERAGE_KV, KV_VALUES, QUERY_VALUES
from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.rows import ReplayRow


def evenly(total: int, parts: int) -> list[int]:
    """A total cut into parts that differ by at most one."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def query_lengths(row: ReplayRow, tokens: int, requests: int) -> list[int]:
    """Query tokens of each request: what the row records, cumulative or not, else an even share.

    Raises:
        RowError: what it records does not fit the shapes.
    """
    given = list(row.numbers(QUERY_VALUES))
    return _single(given, requests, tokens, QUERY_VALUES) if given else evenly(tokens, requests)


def cumulative_kv_lengths(row: ReplayRow, tokens: int, requests: int) -> list[int]:
    """Keys of each request where they lie one after another: as for queries."""
    given = list(row.numbers(KV_VALUES))
    return _single(given, requests, tokens, KV_VALUES) if given else evenly(tokens, requests)


def paged_kv_lengths(row: ReplayRow, requests: int, capacity: int) -> list[int]:
    """Keys of each request in a paged cache: what the row records, the recorded mean, else all that its blocks hold.

    Raises:
        RowError: it records other requests, or more keys than the block table has room for.
    """
    given = list(row.numbers(KV_VALUES))
    if not given and (mean := row.cells.get(AVERAGE_KV, "").strip()):
        try:
            given = [max(1, round(float(mean)))] * requests
        except ValueError:
            raise RowError(f"{AVERAGE_KV} {mean!r} is not a number.") from None
    lengths = given or [capacity] * requests
    if len(lengths) != requests or not all(0 < length <= capacity for length in lengths):
        raise RowError(f"{KV_VALUES} {lengths} do not fit {requests} requests of at most {capacity} keys.")
    return lengths


def block_table(requests: int, width: int, blocks: int) -> torch.Tensor:
    """Blocks of each request (requests, width), all in range, each used once while they last."""
    return (torch.arange(requests * width) % blocks).view(requests, width)


def cumulative(lengths: Sequence[int]) -> list[int]:
    """Ends of each request."""
    return list(accumulate(lengths))


def _single(given: list[int], requests: int, total: int, column: str) -> list[int]:
    is_cumulative = given[-1] == total and all(before <= after for before, after in pairwise(given))
    lengths = [end - start for start, end in zip([0, *given], given, strict=False)] if is_cumulative else given
    if len(lengths) != requests or sum(lengths) != total or min(lengths) < 0:
        raise RowError(f"{column} {given} do not fit {requests} requests with {total} tokens together.")
    return lengths
