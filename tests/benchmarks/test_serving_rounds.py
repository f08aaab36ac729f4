"""What a request meets of other prompts, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.serving_rounds import BATCH_TOKENS, company

REQUESTS, PROMPT = np.array([1.0, 4.0, 16.0]), np.array([4096.0, 4096.0, 4096.0])


def test_requests_out_of_step_meet_a_share_of_the_others() -> None:
    for engine, varied in (("vllm", False), ("sglang", True)):
        met = company(engine, REQUESTS, PROMPT, np.full(3, varied))
        np.testing.assert_allclose(met.prompts_before(0.2), [1.0, 1.6, 4.0])
        np.testing.assert_allclose(met.prompts_between(0.5), [0.0, 1.5, 7.5])


def test_rounds_compute_all_prompts_first() -> None:
    # One prompt and four are a batch of at most 16,384 tokens: all wait for the whole batch, and none is between.
    # Sixteen are four batches: on average 16 x 5/8 come before a first token, the other 16 x 3/8 before the second.
    assert BATCH_TOKENS == 16384
    met = company("sglang", REQUESTS, PROMPT, np.full(3, False))
    np.testing.assert_allclose(met.prompts_before(0.2), [1.0, 4.0, 10.0])
    np.testing.assert_allclose(met.prompts_between(0.5), [0.0, 0.0, 6.0])
    # Whatever lies before the first token and after it is the whole round.
    assert (met.prompts_before(0.0) + met.prompts_between(0.0)).tolist() == pytest.approx(REQUESTS)
