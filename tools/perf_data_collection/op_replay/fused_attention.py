"""How a FusedInferAttentionScore row becomes a call: layouts, lengths, masks, block tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tensor_cast.performance_model.profiling_database.kernels_attention import (
    BLOCK_TABLE,
    KEY_ROPE,
    MASK,
    QUERY_LENGTHS,
    QUERY_ROPE,
)
from tensor_cast.performance_model.profiling_database.shapes import Tensor
from tools.perf_data_collection.fia_common import CAUSAL, FUSED_MASK
from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host.attention import paged
from tools.perf_data_collection.op_replay.host.requests import (
    block_table,
    cumulative,
    cumulative_kv_lengths,
    paged_kv_lengths,
    query_lengths,
)
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow, raw_shapes

_RECORDED_LAYOUTS = ("", "TND", "BNSD", "BNSD_NBSD", "TND_NTD")


@dataclass(frozen=True)
class AttentionCall:
    """Operands of the call; ``query`` is (T, N, D) or (B, N, S, D), keys and values lie one after another or paged."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    query_rope: torch.Tensor | None
    key_rope: torch.Tensor | None
    mask: torch.Tensor | None
    table: torch.Tensor | None
    query_lengths: list[int]
    kv_lengths: list[int]
    kv_heads: int
    layout: str
    scale: float
    block_size: int
    with_sum: bool

    @property
    def is_causal(self) -> bool:
        """Whether the last query sees all keys and earlier ones fewer."""
        return self.mask is not None

    def keywords(self) -> dict[str, Any]:
        """Keyword arguments of npu_fused_infer_attention_score."""
        is_packed = self.layout == "TND"
        lengths = self.kv_lengths if self.table is not None or not is_packed else cumulative(self.kv_lengths)
        heads = self.query.shape[1]
        return {
            "atten_mask": self.mask,
            "actual_seq_lengths": cumulative(self.query_lengths) if is_packed else None,
            "actual_seq_lengths_kv": lengths,
            "block_table": self.table,
            "query_rope": self.query_rope,
            "key_rope": self.key_rope,
            "num_heads": heads,
            "scale": self.scale,
            "input_layout": self.layout,
            "num_key_value_heads": self.kv_heads,
            "sparse_mode": CAUSAL if self.is_causal else 0,
            "block_size": self.block_size,
            "softmax_lse_flag": self.with_sum,
        }

    def requests(self) -> Iterator[tuple[slice | int, torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Each request: where its queries are, query (L, N, D), key and value (S, N_kv, D), rope parts joined on."""
        start = key_start = 0
        for request, (length, keys) in enumerate(zip(self.query_lengths, self.kv_lengths, strict=True)):
            if self.layout == "TND":
                place: slice | int = slice(start, start + length)
                query = _joined(self.query[place], None if self.query_rope is None else self.query_rope[place])
            else:
                place = request
                rope = None if self.query_rope is None else self.query_rope[request].transpose(0, 1)
                query = _joined(self.query[request].transpose(0, 1), rope)
            key, value, rope = (
                None if cache is None else self._own(cache, request, key_start, keys)
                for cache in (self.key, self.value, self.key_rope)
            )
            assert key is not None
            assert value is not None
            yield place, query, _joined(key, rope), value
            start += length
            key_start += keys

    def _own(self, cache: torch.Tensor, request: int, start: int, keys: int) -> torch.Tensor:
        if self.table is not None:
            return paged(self._by_slot(cache), self.table[request].long(), keys)
        if self.layout == "TND":
            return cache[start : start + keys]
        return cache[request].transpose(0, 1)[:keys]

    def _by_slot(self, cache: torch.Tensor) -> torch.Tensor:
        """A cache (blocks, size, H) or (blocks, N_kv, size, D) as (blocks, size, N_kv, D)."""
        return cache.view(*cache.shape[:2], self.kv_heads, -1) if cache.dim() == 3 else cache.transpose(1, 2)


def attention_call(row: ReplayRow, make: OperandMaker) -> tuple[AttentionCall]:
    """The call of a row.

    Lengths come from the Runtime columns; where these are empty, queries are shared out evenly and a paged request
    fills its blocks.

    Raises:
        RowError: shapes, layout and lengths do not belong together.
    """
    query, key, value = (_spec(row, slot, name) for slot, name in enumerate(("query", "key", "value")))
    recorded = row.cells.get("Runtime input_layout", "").strip().upper()
    if recorded not in _RECORDED_LAYOUTS or len(query.shape) not in (3, 4):
        raise RowError(f"Layout {recorded or len(query.shape)} is not replayed: rows are TND, BNSD or BNSD_NBSD.")
    layout = "TND" if len(query.shape) == 3 else _batched_layout(row, query)
    query_rope, key_rope, table = (_optional(row, slot) for slot in (QUERY_ROPE, KEY_ROPE, BLOCK_TABLE))
    requests = _requests(row, query, table, layout)
    kv_heads, block_size = _heads_and_block(row, key, query.shape[-1], is_paged=table is not None)
    tokens = query.shape[0] if layout == "TND" else query.shape[0] * query.shape[2]
    own_queries = query_lengths(row, tokens, requests) if layout == "TND" else [query.shape[2]] * requests
    made_table = None
    if table is not None:
        capacity = table.shape[1] * block_size
        own_keys = paged_kv_lengths(row, requests, capacity)
        made_table = make.integers(block_table(requests, table.shape[1], key.shape[0]), table)
    elif layout == "TND":
        own_keys = cumulative_kv_lengths(row, key.shape[0], requests)
    else:
        own_keys = paged_kv_lengths(row, requests, key.shape[2])
    width = query.shape[-1] + (query_rope.shape[-1] if query_rope is not None else 0)
    return (
        AttentionCall(
            query=make(query),
            key=make(key),
            value=make(value),
            query_rope=make.optional(query_rope),
            key_rope=make.optional(key_rope),
            mask=_mask(row, make),
            table=made_table,
            query_lengths=own_queries,
            kv_lengths=own_keys,
            kv_heads=kv_heads,
            layout=layout,
            scale=width**-0.5,
            block_size=block_size,
            with_sum=len(row.outputs) > 1 and row.outputs[1] is not None,
        ),
    )


def _spec(row: ReplayRow, slot: int, name: str) -> Tensor:
    spec = row.input(slot, name)
    raw = raw_shapes(row)
    return Tensor(raw[slot], spec.dtype, spec.format) if raw is not None and slot < len(raw) and raw[slot] else spec


def _optional(row: ReplayRow, slot: int) -> Tensor | None:
    spec = row.optional_input(slot)
    return spec if spec is None or not spec.shape else _spec(row, slot, f"slot {slot}")


def _batched_layout(row: ReplayRow, query: Tensor) -> str:
    """BNSD keeps the query's order in the output, BNSD_NBSD exchanges batch and heads."""
    recorded = row.cells.get("Runtime input_layout", "").strip().upper()
    result = row.output(0, "attention_out").shape
    exchanged = (query.shape[1], query.shape[0])
    if recorded in ("BNSD", "BNSD_NBSD"):
        return recorded
    return "BNSD_NBSD" if result[:2] == exchanged else "BNSD"


def _requests(row: ReplayRow, query: Tensor, table: Tensor | None, layout: str) -> int:
    if layout != "TND":
        return query.shape[0]
    if table is not None:
        return table.shape[0]
    lengths = _optional(row, QUERY_LENGTHS)
    return lengths.shape[0] if lengths is not None else 1


def _heads_and_block(row: ReplayRow, key: Tensor, width: int, *, is_paged: bool) -> tuple[int, int]:
    """Key heads and the tokens of a block; ``width`` is the query's D, which the keys share."""
    recorded = row.whole_number("Runtime num_key_value_heads")
    if not is_paged:
        return key.shape[1], 0
    if len(key.shape) == 4:
        return key.shape[1], key.shape[2]
    # A profile tells the heads by the widths alone: (blocks, size, heads * D) under queries of D.
    heads = recorded or max(1, key.shape[-1] // width)
    if len(key.shape) != 3 or key.shape[2] != heads * width:
        raise RowError(
            f"A paged key {key.shape} does not hold {heads} heads of the query's D {width}: give it as "
            "(blocks, size, heads * D)."
        )
    return heads, key.shape[1]


def _mask(row: ReplayRow, make: OperandMaker) -> torch.Tensor | None:
    """The upper triangle for sparse_mode 3, nothing for 0; a row that does not say has the mode its mask implies."""
    spec = _optional(row, MASK)
    mode = row.whole_number("Runtime sparse_mode")
    mode = (CAUSAL if spec is not None else 0) if mode is None else mode
    if mode == 0:
        return None
    if mode != CAUSAL:
        raise RowError(f"sparse_mode {mode} is not replayed: rows have 0 or {CAUSAL}.")
    dtype = torch.int8 if spec is not None and spec.dtype == "INT8" else torch.bool
    return make.place(torch.ones(FUSED_MASK, FUSED_MASK, dtype=dtype).triu(1))


def _joined(part: torch.Tensor, rope: torch.Tensor | None) -> torch.Tensor:
    return part if rope is None else torch.cat((part, rope), dim=-1)
