"""Fit what engines add to a step: python benchmarks/fit_engines.py --measured DIRECTORY [--update]

Fits ``step_s``, ``launch_overlap`` and ``prefill_share`` to the output-token times of public serving runs and then
``request_s``, ``queue_share`` and, where it is worth a constant, ``expert_layer_s`` to the first-token times at up to 4
requests a replica, on the runs whose key has an even CRC-32, by the mean absolute logarithm of predicted over measured
time. Needs SciPy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import measured_serving as serving
from benchmarks.accuracy_steps import FEW_OTHERS, STALLED_S
from benchmarks.cached_prompts import COMPUTED, matrix_share
from benchmarks.measured_kernels import is_fitted
from benchmarks.measured_serving import FloatArray
from tensor_cast.estimate import Estimate
from tensor_cast.ops import Collective
from tensor_cast.performance_model.engine import DATA, get_engine
from tensor_cast.quantity import Quantity

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]

SOURCE = "fit of half of the public serving runs of aiconfigurator-core 0.12.0 (Apache-2.0)"
# Of the mean absolute logarithm of the fitted rows; a constant that gains less is left at zero.
WORTH = 0.01
NOTHING = 1e-6


@dataclass(frozen=True)
class Runs:
    """Columns over all runs of an engine: the pieces of their times without the engine, and what was measured."""

    decode_s: FloatArray
    fixed_s: FloatArray
    prefill_s: FloatArray
    prefill_fixed_s: FloatArray
    expert_layers: FloatArray
    others: FloatArray
    output: FloatArray
    wait_steps: FloatArray
    tpot_s: FloatArray
    ttft_s: FloatArray
    fitted: BoolArray


def main() -> None:
    """Fit, print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path, required=True, help="directory of the measured tables")
    parser.add_argument("--update", action="store_true", help="write the constants into engines.yaml")
    arguments = parser.parse_args()
    text = DATA.read_text(encoding="utf-8")
    for engine in ("vllm", "sglang", "trtllm"):
        entry = _fit(engine, load(arguments.measured, engine))
        print(entry, flush=True)
        before, _, rest = text.partition(f"\n{engine}:\n")
        after = rest.splitlines(keepends=True)
        while after and after[0].startswith(" "):
            after.pop(0)
        text = before.rstrip("\n") + "\n" + entry + "".join(after)
    if arguments.update:
        DATA.write_text(text, encoding="utf-8")


def load(directory: Path, engine: str) -> Runs:
    """The runs of an engine that can be priced, on their own kernels alone."""
    import polars as pl

    frame = pl.read_csv(directory / "e2e_nvidia_silicon.csv", infer_schema_length=None)
    parts = []
    measured, _ = serving.measured_runs(frame.filter(pl.col("backend") == engine).iter_rows(named=True))
    for runs in measured:
        bare = replace(runs.config, engine="none", deployment=replace(runs.config.deployment, engine="none"))
        try:
            time = serving.price(bare, runs.loads)
        except serving.ModelingError:
            continue
        parts.append(_columns(time, runs))
    return Runs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _columns(time: serving.ServingTime, runs: serving.MeasuredRuns) -> tuple[FloatArray, ...]:
    """The columns of ``Runs``, without the runs whose prompts were not computed."""
    shape = (len(runs.loads),)
    ranks = runs.config.deployment.dp_size or 1
    computed = matrix_share(time, runs) <= COMPUTED
    columns = (
        np.broadcast_to(time.decode.total_time_s, shape),
        np.broadcast_to(_fixed_s(time.decode), shape),
        np.broadcast_to(time.prefill.total_time_s, shape),
        np.broadcast_to(_fixed_s(time.prefill), shape),
        np.full(shape, time.prefill.model.expert_layers),
        np.array([run.concurrency / ranks - 1.0 for run in runs.loads]),
        np.array([run.output * run.mean_share for run in runs.loads]),
        np.array([run.wait_steps for run in runs.loads]),
        runs.tpot_s,
        runs.ttft_s,
        np.array([is_fitted(key) for key in runs.keys]),
    )
    return tuple(column[computed] for column in columns)


def _fixed_s(estimate: Estimate) -> Quantity:
    return sum((k.time.fixed_s * k.count for k in estimate.kernels if not isinstance(k.op, Collective)), start=0.0)


def _fit(name: str, runs: Runs) -> str:
    few = (runs.others <= FEW_OTHERS) & (runs.ttft_s <= STALLED_S)
    by_token = _best(lambda values: _tpot_errors(runs, values), [1e-3, 0.3, 1.0], runs, np.ones_like(few))
    step, overlap, share = by_token.values
    first = _best(lambda values: _ttft_errors(runs, by_token.values, values), [0.05, 0.2], runs, few)
    layered = _best(lambda values: _ttft_errors(runs, by_token.values, values), [0.03, 0.1, 1e-3], runs, few)
    worth = first.cost - layered.cost > WORTH
    first = layered if worth else first
    request, queue, *layer = first.values
    on_tpot, on_ttft = f"{SOURCE}; TPOT, {by_token.words}", f"{SOURCE}; TTFT of few requests, {first.words}"
    sources = {
        "step_s": on_tpot,
        "launch_overlap": on_tpot,
        "request_s": on_ttft,
        "expert_layer_s": on_ttft if worth else "chosen: 0, first-token times are fitted as well without it",
        "prefill_share": on_tpot,
        "queue_share": on_ttft,
        "expert_spread": get_engine(name).sources["expert_spread"],
    }
    return (
        f"{name}:\n  step_s: {step:.3g}\n  launch_overlap: {overlap:.3g}\n  request_s: {request:.3g}\n"
        f"  expert_layer_s: {layer[0] if layer else 0:.3g}\n"
        f"  prefill_share: {share:.3g}\n  queue_share: {queue:.3g}\n"
        f"  expert_spread: {get_engine(name).expert_spread:.3g}\n  sources:\n"
        + "".join(f'    {figure}: "{source}"\n' for figure, source in sources.items())
    )


def _step_times(runs: Runs, step: float, overlap: float) -> tuple[FloatArray, FloatArray]:
    """Seconds of a decode step and of the prefill of one request."""
    hidden = min(overlap, 1.0)
    return step + runs.decode_s - hidden * runs.fixed_s, step + runs.prefill_s - hidden * runs.prefill_fixed_s


def _tpot_errors(runs: Runs, values: FloatArray) -> FloatArray:
    step, overlap, share = values
    decode_s, prefill_s = _step_times(runs, step, overlap)
    return np.log((decode_s + share * runs.others * prefill_s / runs.output) / runs.tpot_s)


def _ttft_errors(runs: Runs, by_token: FloatArray, values: FloatArray) -> FloatArray:
    request, queue, *layer = values
    decode_s, prefill_s = _step_times(runs, by_token[0], by_token[1])
    first = request + sum(layer) * runs.expert_layers
    return np.log((first + prefill_s * (1.0 + queue * runs.others) + runs.wait_steps * decode_s) / runs.ttft_s)


@dataclass(frozen=True)
class Best:
    """Values rounded to three digits, the mean absolute logarithm that was minimised, and the errors of both halves."""

    values: FloatArray
    cost: float
    words: str


def _best(errors: Callable[[FloatArray], FloatArray], start: Sequence[float], runs: Runs, rows: BoolArray) -> Best:
    from scipy.optimize import minimize

    def cost(values: FloatArray) -> float:
        return float(np.mean(np.abs(errors(np.abs(values))[runs.fitted & rows])))

    tight = {"maxiter": 4000, "maxfev": 8000, "xatol": 1e-7, "fatol": 1e-7}
    found = [
        minimize(cost, np.array(start) * factor, method="Nelder-Mead", options=tight) for factor in (1.0, 0.3, 3.0)
    ]
    best = min(found, key=lambda result: float(result.fun))
    values = np.array([0.0 if abs(value) < NOTHING else float(f"{abs(value):.3g}") for value in best.x])
    train, other = (np.abs(np.expm1(errors(values)[half & rows])) for half in (runs.fitted, ~runs.fitted))
    words = f"n={len(train)}, mean error {train.mean():.0%}; other half n={len(other)}, {other.mean():.0%}"
    return Best(values, cost(values), words)


if __name__ == "__main__":
    main()
