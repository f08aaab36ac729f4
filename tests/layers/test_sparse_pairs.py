"""Numbers of (query, key) pairs in closed form, against counting them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.layers.indexer import BlockIndexer
from tensor_cast.layers.softmax_attention import causal_pairs, compressed_pairs

lengths = st.integers(0, 700)


@given(
    new=st.integers(1, 400), cached=lengths, ratio=st.sampled_from([2, 4, 128]), top_k=st.sampled_from([None, 1, 7, 60])
)
def test_compressed_entries(new: int, cached: int, ratio: int, top_k: int | None) -> None:
    seen = [(position + 1) // ratio for position in range(cached, cached + new)]
    counted = sum(entries if top_k is None else min(entries, top_k) for entries in seen)
    assert compressed_pairs(float(new), float(cached), ratio, top_k=top_k) == counted


@given(new=st.integers(1, 400), cached=lengths, block=st.sampled_from([1, 16, 64]), top_k=st.integers(1, 6))
def test_chosen_blocks(new: int, cached: int, block: int, top_k: int) -> None:
    indexer = BlockIndexer(hidden=8, heads=1, dim=8, block=block, top_k=top_k)
    keys, pairs = indexer.selected(float(new), float(cached))
    # The block of the query up to the query itself, and the blocks before it that fit in the choice.
    counted = sum(min(p // block, top_k - 1) * block + p % block + 1 for p in range(cached, cached + new))
    assert pairs == counted
    assert keys == min(cached + new, new * top_k * block)


@given(new=st.integers(1, 300), cached=lengths, top_k=st.integers(1, 500))
def test_chosen_tokens_are_as_many_as_a_window_sees(new: int, cached: int, top_k: int) -> None:
    counted = sum(min(position + 1, top_k) for position in range(cached, cached + new))
    assert causal_pairs(float(new), float(cached), window=top_k) == counted


def test_a_prompt_after_a_cached_prefix() -> None:
    # 4,000 tokens whose first 500 are cached: 8,002,000 - 125,250.
    assert causal_pairs(3500.0, 500.0) == 7_876_750


def test_arrays_equal_single_points() -> None:
    new, cached = np.array([1.0, 5.0, 900.0]), np.array([0.0, 511.0, 4000.0])
    together = compressed_pairs(new, cached, 4, top_k=128)
    alone = [compressed_pairs(n, c, 4, top_k=128) for n, c in zip(new, cached, strict=True)]
    assert together == pytest.approx(alone, rel=1e-15)
