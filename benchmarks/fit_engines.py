"""Fit what engines add to a step: python benchmarks/fit_engines.py --measured DIRECTORY [--update]

Fits ``step_s``, ``launch_overlap`` and ``prefill_share`` to the output-token times of public serving runs and
``request_s`` and ``queue_share`` to the first-token times at up to 8 requests a replica, on the runs whose key has an
even CRC-32, by the mean absolute logarithm of predicted over measured time. Needs SciPy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import measured_serving as serving
from benchmarks.fit_costs import FloatArray
from benchmarks.measured_kernels import is_fitted
from tensor_cast.ops import Collective
from tensor_cast.performance_model.engine import DATA

SOURCE = "fit of half of the public serving runs of aiconfigurator-core 0.12.0 (Apache-2.0)"
FEW_OTHERS = 7


@dataclass(frozen=True)
class Runs:
    """Columns over all runs of an engine: the pieces of their times without the engine, and what was measured."""

    decode_s: FloatArray
    fixed_s: FloatArray
    prefill_s: FloatArray
    others: FloatArray
    output: FloatArray
    tpot_s: FloatArray
    ttft_s: FloatArray
    fitted: np.ndarray[Any, np.dtype[np.bool_]]


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
    groups: dict[serving.Configuration, list[dict[str, Any]]] = {}
    for row in frame.filter(pl.col("backend") == engine).iter_rows(named=True):
        config = serving.configuration(row)
        if not isinstance(config, str):
            bare = replace(config, engine="none", deployment=replace(config.deployment, engine="none"))
            groups.setdefault(bare, []).append(row)
    parts = []
    for config, rows in groups.items():
        loads = [serving.load(row, config.deployment) for row in rows]
        try:
            time = serving.price(config, loads)
        except serving.ModelingError:
            continue
        named = replace(config, engine=engine)
        parts.append(_columns(time, named, loads, rows))
    return Runs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _columns(
    time: serving.ServingTime,
    config: serving.Configuration,
    loads: Sequence[serving.Load],
    rows: Sequence[dict[str, Any]],
) -> tuple[FloatArray, ...]:
    shape = (len(loads),)
    fixed = sum((k.time.fixed_s * k.count for k in time.decode.kernels if not isinstance(k.op, Collective)), start=0.0)
    ranks = config.deployment.dp_size or 1
    return (
        np.broadcast_to(time.decode.total_time_s, shape),
        np.broadcast_to(fixed, shape),
        np.broadcast_to(time.prefill.total_time_s, shape),
        np.array([run.concurrency / ranks - 1.0 for run in loads]),
        np.array([run.output for run in loads]),
        np.array([row["silicon_tpot_ms"] * 1e-3 for row in rows]),
        np.array([row["silicon_ttft_ms"] * 1e-3 for row in rows]),
        np.array([is_fitted(serving.key(config, run)) for run in loads]),
    )


def _fit(name: str, runs: Runs) -> str:
    from scipy.optimize import minimize

    def tpot(values: FloatArray) -> FloatArray:
        step, overlap, share = np.abs(values)
        met = runs.others * runs.prefill_s / runs.output
        return np.log((step + runs.decode_s - min(overlap, 1.0) * runs.fixed_s + share * met) / runs.tpot_s)

    def ttft(values: FloatArray) -> FloatArray:
        request, share = np.abs(values)
        return np.log((request + runs.prefill_s * (1.0 + share * runs.others)) / runs.ttft_s)

    few = runs.others <= FEW_OTHERS
    found: list[FloatArray] = []
    words = []
    for errors, start, rows in ((tpot, [1e-3, 0.2, 1.0], np.ones_like(few)), (ttft, [0.05, 0.3], few)):
        best = minimize(lambda v, e=errors, r=rows: np.mean(np.abs(e(v)[runs.fitted & r])), start, method="Nelder-Mead")
        values = np.array([float(f"{abs(value):.3g}") for value in best.x])
        found.append(values)
        train, other = (np.abs(np.expm1(errors(values)[half & rows])) for half in (runs.fitted, ~runs.fitted))
        words.append(f"n={len(train)}, mean error {train.mean():.0%}; other half n={len(other)}, {other.mean():.0%}")
    (step, overlap, share), (request, queue) = found
    return (
        f"{name}:\n  step_s: {step:.3g}\n  launch_overlap: {min(overlap, 1.0):.3g}\n  request_s: {request:.3g}\n"
        f"  prefill_share: {share:.3g}\n  queue_share: {queue:.3g}\n  sources:\n"
        + "".join(f'    {figure}: "{SOURCE}; TPOT, {words[0]}"\n' for figure in ("step_s", "launch_overlap"))
        + f'    request_s: "{SOURCE}; TTFT of few requests, {words[1]}"\n'
        + f'    prefill_share: "{SOURCE}; TPOT, {words[0]}"\n'
        + f'    queue_share: "{SOURCE}; TTFT of few requests, {words[1]}"\n'
    )


if __name__ == "__main__":
    main()
