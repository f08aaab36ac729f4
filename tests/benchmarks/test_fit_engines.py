"""The fit's model of serving runs, on runs made by known constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.fit_engines import Runs, _step_times, _tpot_errors, _ttft_errors

BY_TOKEN = np.array([2e-3, 0.5, 0.8])


def runs(**changes: Any) -> Runs:
    # A step of 2 + 10 - 0.5 x 4 = 10 ms, a prefill of 2 + 102 - 0.5 x 8 = 100 ms.
    columns: dict[str, Any] = {
        "decode_s": [10e-3, 10e-3], "fixed_s": [4e-3, 4e-3], "prefill_s": [102e-3, 102e-3],
        "prefill_fixed_s": [8e-3, 8e-3], "expert_layers": [0, 50], "others": [0.0, 3.0], "output": [100.0, 100.0],
        "wait_steps": [0.0, 20.0], "tpot_s": [10e-3, 10e-3 + 0.8 * 3 * 100e-3 / 100],
        "ttft_s": [30e-3 + 100e-3, 30e-3 + 50 * 1e-3 + 100e-3 * (1 + 0.1 * 3) + 20 * 10e-3], "tpot_tells": [True, True],
        "ttft_tells": [True, True], "fitted": [True, False],
    }  # fmt: skip
    return Runs(**{name: np.array(column) for name, column in {**columns, **changes}.items()})


def test_launches_hide_in_both_steps() -> None:
    decode_s, prefill_s = _step_times(runs(), 2e-3, 0.5)
    np.testing.assert_allclose(decode_s, 10e-3)
    np.testing.assert_allclose(prefill_s, 100e-3)


def test_the_constants_that_made_the_runs_leave_no_error() -> None:
    np.testing.assert_allclose(_tpot_errors(runs(), BY_TOKEN), 0.0, atol=1e-12)
    np.testing.assert_allclose(_ttft_errors(runs(), BY_TOKEN, np.array([30e-3, 0.1, 1e-3])), 0.0, atol=1e-12)


def test_an_engine_without_a_cost_of_expert_layers_misses_it() -> None:
    errors = _ttft_errors(runs(), BY_TOKEN, np.array([30e-3, 0.1]))
    assert errors[0] == pytest.approx(0.0, abs=1e-12)
    assert errors[1] == pytest.approx(np.log(1 - 50e-3 / runs().ttft_s[1]))
