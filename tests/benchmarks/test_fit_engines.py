"""The fit's model of serving runs, on runs made by known constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import measured_serving as serving
from benchmarks.fit_engines import (
    FP4,
    FP8,
    MeasuredRuns,
    Pricer,
    Runs,
    _constants,
    _expert_row,
    _fit,
    _step_times,
    _tpot_errors,
    _ttft_errors,
)
from benchmarks.outdone import Outdone
from tensor_cast import Deployment, TextWorkload, simulate

BY_TOKEN = np.array([2e-3, 0.5, 0.8])


def runs(**changes: Any) -> Runs:
    # A step of 2 + 10 - 0.5 x 4 = 10 ms, a prefill of 2 + 102 - 0.5 x 8 = 100 ms.
    columns: dict[str, Any] = {
        "decode_s": [10e-3, 10e-3], "fixed_s": [4e-3, 4e-3], "prefill_s": [102e-3, 102e-3],
        "prefill_fixed_s": [8e-3, 8e-3], "expert_layers": [0, 50], "others": [0.0, 3.0],
        "batch_share": [np.nan, np.nan], "output": [100.0, 100.0],
        "wait_steps": [0.0, 20.0], "tpot_s": [10e-3, 10e-3 + 0.8 * 3 * 100e-3 / 100],
        "ttft_s": [30e-3 + 100e-3, 30e-3 + 50 * 1e-3 + 100e-3 * (1 + 0.1 * 3) + 20 * 10e-3], "tpot_tells": [True, True],
        "ttft_tells": [True, True], "fitted": [True, False],
    }  # fmt: skip
    return Runs(**{name: np.array(column) for name, column in {**columns, **changes}.items()})


def in_both_halves(known: Runs) -> Runs:
    """The same runs fitted and not."""
    columns = {name: np.tile(column, 2) for name, column in vars(known).items()}
    return Runs(**{**columns, "fitted": np.repeat([True, False], len(known.fitted))})


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


def test_runs_that_others_outdid_shape_no_constant() -> None:
    # The same runs twice, and once more ten times as slow.
    columns = {name: np.tile(column, 3) for name, column in vars(runs()).items()}
    columns["ttft_s"][4:] *= 10.0
    columns["tpot_s"][4:] *= 10.0
    tells = np.arange(6) < 4
    found = _constants(in_both_halves(Runs(**{**columns, "tpot_tells": tells, "ttft_tells": tells})))
    assert found.cost < 0.01
    assert _constants(in_both_halves(Runs(**columns))).cost > 0.5


def test_a_cost_of_expert_layers_needs_runs_without_them() -> None:
    def columns(layers: list[int]) -> Runs:
        first = 30e-3 + np.array(layers) * 4e-3
        known = runs(
            expert_layers=layers, others=[0.0, 0.0], wait_steps=[0.0, 0.0], tpot_s=[10e-3, 10e-3],
            ttft_s=first + 100e-3,
        )  # fmt: skip
        return in_both_halves(known)

    both, alone = _constants(columns([0, 50])), _constants(columns([20, 50]))
    assert both.first.values[2:] == pytest.approx([4e-3], rel=0.05)
    assert len(alone.first.values) == 2


def test_expert_layers_may_cost_every_step() -> None:
    layers = np.array([0, 0, 40, 40, 60, 60])
    decode_s = np.array([8e-3, 12e-3] * 3)
    known = in_both_halves(
        runs(
            expert_layers=layers, decode_s=decode_s, fixed_s=np.zeros(6), prefill_s=np.full(6, 0.1),
            prefill_fixed_s=np.zeros(6), others=np.zeros(6), batch_share=np.full(6, np.nan), output=np.full(6, 100.0),
            wait_steps=np.zeros(6), tpot_s=1e-3 + decode_s + 50e-6 * layers, ttft_s=np.full(6, 0.2),
            tpot_tells=np.full(6, True), ttft_tells=np.full(6, True), fitted=np.full(6, True),
        )
    )  # fmt: skip
    values = _constants(known).by_token.values
    assert values[0] == pytest.approx(1e-3, rel=0.05)
    assert values[3:] == pytest.approx([50e-6], rel=0.05)
    assert _step_times(known, 1e-3, 0.0, 50e-6)[1][4] == pytest.approx(0.1 + 4e-3)


def measured(model: str, scheme: str, device: str = "H200_SXM_141GB") -> MeasuredRuns:
    deployment = Deployment(world_size=8, tp_size=8, quantize_linear=scheme, engine="vllm", compile=True)
    load, times = serving.Load(4.0, 8192.0, 1024.0), np.array([1.0])
    config = serving.Configuration(model, device, "vllm", deployment)
    found = serving.MeasuredRuns(config, ("a",), (load,), times, times, times)
    nothing = np.array([False])
    row = _expert_row(serving.price(config, (load,)).prefill)
    return MeasuredRuns(found, Outdone(nothing, nothing), row)


def test_the_row_of_the_experts_follows_from_their_format_and_the_device() -> None:
    assert measured("openai/gpt-oss-120b", "CHECKPOINT").row == FP4
    assert measured("Qwen/Qwen3-30B-A3B", "FP8").row == FP8
    assert measured("Qwen/Qwen3-30B-A3B", "DISABLED").row == ""
    assert measured("Qwen/Qwen3-30B-A3B", "FP8", "B200_SXM").row == ""
    assert measured("Qwen/Qwen3-32B", "FP8").row == ""


def test_runs_are_priced_with_the_kernels_that_are_tried_and_without_the_engines_times() -> None:
    pricer = Pricer("vllm", [measured("Qwen/Qwen3-30B-A3B", "FP8"), measured("Qwen/Qwen3-32B", "FP8")])
    slow, fast = (pricer({FP8: {"matrix_efficiency": value}}) for value in (0.2, 0.4))
    plain = pricer({})
    assert slow.prefill_s[0] > fast.prefill_s[0] > plain.prefill_s[0]
    assert slow.prefill_s[1] == fast.prefill_s[1] == plain.prefill_s[1]
    assert pricer.concerns(FP8).tolist() == [True, False]
    bare = Deployment(world_size=8, tp_size=8, quantize_linear="FP8", compile=True)
    prompt = TextWorkload(num_queries=1, query_length=8192)
    alone = simulate("Qwen/Qwen3-32B", device="H200", workload=prompt, deployment=bare)
    assert plain.prefill_s[1] == pytest.approx(alone.total_time_s)


class KnownKernels:
    """Runs whose prompts take 40 ms at the full matrix rate and 2 ms beside, measured where kernels reached 40 %."""

    def __call__(self, rows: Any) -> Runs:
        efficiency = rows.get(FP8, {"matrix_efficiency": 0.794})["matrix_efficiency"]
        known = runs(
            prefill_s=np.full(2, 40e-3 / efficiency + 2e-3), prefill_fixed_s=np.zeros(2), fixed_s=np.zeros(2),
            expert_layers=[50, 50], wait_steps=[0.0, 0.0], decode_s=[8e-3, 8e-3],
            tpot_s=[10e-3, 10e-3 + 3 * 104e-3 / 100], ttft_s=[30e-3 + 104e-3, 30e-3 + 104e-3 * 1.3],
        )  # fmt: skip
        return in_both_halves(known)

    def concerns(self, row: str) -> Any:
        return np.full(4, row == FP8)


def test_an_efficiency_is_found_with_the_constants_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.fit_engines.OWN_KERNELS", {"vllm": {FP8: ("matrix_efficiency",)}})
    pricer: Any = KnownKernels()
    entry, rows = _fit("vllm", pricer, {})
    found = rows[FP8]["matrix_efficiency"]
    # 2 + 40 / 0.4 = 102 ms, and 2 ms of the engine's; other pairs of efficiency and shares do as well, none better.
    assert _constants(pricer(rows)).cost < 0.02
    assert 0.2 < found < 0.794
    assert f"      {FP8}: {{matrix_efficiency: {found:.3g}}}\n" in entry
    assert "TPOT n=2, mean error " in entry
    assert "(without it " in entry


def test_rows_taken_over_say_from_whom() -> None:
    pricer: Any = KnownKernels()
    taken = {FP8: {"matrix_efficiency": 0.4}, FP4: {"matrix_efficiency": 0.3}}
    entry, rows = _fit("sglang", pricer, taken)
    assert rows == taken
    assert f'kernels.nvidia_hopper.{FP8}: "assumed: as vllm, whose kernels it runs; runs of such experts: TPOT' in entry
    assert f'{FP4}: "assumed: as trtllm, whose kernels it runs; no run of such experts is published"' in entry
