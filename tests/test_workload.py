from __future__ import annotations

import numpy as np
import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.workload import TextWorkload


def test_a_prefix_cache_hit_leaves_the_rest_of_the_prompt_to_compute() -> None:
    workload = TextWorkload(num_queries=1, query_length=4000, prefix_cache_hit_rate=0.125)
    assert workload.computed_query_length == 3500
    assert workload.cached_length == 500
    assert workload.sequence_length == 4000


def test_at_least_one_token_is_computed() -> None:
    workload = TextWorkload(num_queries=1, query_length=1, prefix_cache_hit_rate=0.999)
    assert workload.computed_query_length == 1


def test_expected_tokens_of_a_verified_draft() -> None:
    # (1 - a^(k+1)) / (1 - a) = (1 - 0.4096) / 0.2 for three drafted tokens accepted with probability 0.8.
    workload = TextWorkload(
        num_queries=1, query_length=4, context_length=10, decode=True, num_mtp_tokens=3, mtp_acceptance_rate=(0.8,)
    )
    assert workload.tokens_per_sequence == pytest.approx(2.952, rel=1e-12)


def test_a_step_yields_no_more_tokens_than_it_verifies() -> None:
    workload = TextWorkload(
        num_queries=1,
        query_length=[1, 2, 4],
        context_length=10,
        decode=True,
        num_mtp_tokens=3,
        mtp_acceptance_rate=(0.8,),
    )
    assert workload.tokens_per_sequence == pytest.approx([1.0, 2.0, 2.952], rel=1e-12)


def test_acceptance_may_differ_by_position() -> None:
    workload = TextWorkload(
        num_queries=1, query_length=3, context_length=10, decode=True, num_mtp_tokens=2, mtp_acceptance_rate=(0.5, 0.4)
    )
    assert workload.tokens_per_sequence == pytest.approx(1 + 0.5 + 0.5 * 0.4)


def test_without_acceptance_rates_one_token_is_counted() -> None:
    workload = TextWorkload(num_queries=1, query_length=4, context_length=10, decode=True, num_mtp_tokens=3)
    assert workload.tokens_per_sequence == 1.0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_queries": 0}, "num_queries"),
        ({"query_length": -3}, "query_length"),
        ({"context_length": -1}, "context_length"),
        ({"decode": True}, "context_length of at least 1"),
        ({"decode": True, "context_length": np.array([5, 0])}, "context_length of at least 1"),
        ({"prefix_cache_hit_rate": 1.0}, "prefix_cache_hit_rate"),
        ({"prefix_cache_hit_rate": -0.1}, "prefix_cache_hit_rate"),
        ({"decode": True, "context_length": 5, "prefix_cache_hit_rate": 0.5}, "prefill"),
        ({"num_mtp_tokens": 1}, "decode"),
        ({"num_mtp_tokens": -1}, "num_mtp_tokens"),
        ({"num_queries": np.arange(1, 4), "query_length": np.arange(1, 5)}, "broadcast"),
        (
            {"decode": True, "context_length": 5, "num_mtp_tokens": 3, "mtp_acceptance_rate": (0.5, 0.5)},
            "2 values for 3",
        ),
        ({"decode": True, "context_length": 5, "num_mtp_tokens": 1, "mtp_acceptance_rate": (1.5,)}, "between 0 and 1"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ModelingError, match=says):
        TextWorkload(**{"num_queries": 1, "query_length": 1, **changes})  # type: ignore[arg-type]
