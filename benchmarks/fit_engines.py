"""Fit what engines add to a step: python benchmarks/fit_engines.py --measured DIRECTORY [--update]

Fits ``step_s``, ``launch_overlap`` and ``prefill_share`` to the output-token times of public serving runs and then
``request_s`` and ``queue_share`` to the first-token times at up to 4 requests a replica, on the runs whose key has an
even CRC-32, by the mean absolute logarithm of predicted over measured time; ``expert_step_s`` and ``expert_layer_s``
with them where they are worth a constant. Around that, it fits what expert kernels that an engine brings along cost, as
far as no table of kernels tells. Needs the extra ``fit``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import measured_serving as serving
from benchmarks.accuracy_steps import FEW_OTHERS
from benchmarks.cached_prompts import COMPUTED, matrix_share
from benchmarks.fit_costs import yaml_of
from benchmarks.measured_kernels import is_fitted
from benchmarks.measured_serving import FloatArray
from benchmarks.outdone import Outdone, outdone
from benchmarks.serving_rounds import Company
from tensor_cast.devices import get_device
from tensor_cast.estimate import Estimate
from tensor_cast.ops import Collective, GroupedMatMul
from tensor_cast.performance_model.engine import DATA, engines, get_engine
from tensor_cast.performance_model.engine_kernels import priced_by
from tensor_cast.performance_model.roofline import cost_variants
from tensor_cast.quantity import Quantity

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]
Rows = dict[str, dict[str, float]]

SOURCE = "fit of half of the public serving runs of aiconfigurator-core 0.12.0 (Apache-2.0)"
# Of the mean absolute logarithm of the fitted rows; a constant that gains less is left at zero.
WORTH = 0.01
NOTHING = 1e-6

FAMILY = "nvidia_hopper"
FP8, FP4 = "grouped_matmul_fp8", "grouped_matmul_bfloat16_fp4"
OWN_KERNELS: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm": {FP8: ("matrix_efficiency",), FP4: ("matrix_efficiency", "memory_efficiency", "fixed_s")},
    "trtllm": {FP4: ("matrix_efficiency", "memory_efficiency", "fixed_s")},
    "sglang": {},
}
"""Rows of expert kernels on Hopper that the runs of an engine are many enough to tell, and which of their figures.

There vLLM runs Triton's on FP8 and Marlin's on MXFP4, TensorRT-LLM Triton's on MXFP4 (recipes of InferenceX). Tables of
kernels have those on FP8 at sizes of decodes, and none on MXFP4.
"""
TAKEN_OVER = {"sglang": {FP8: "vllm", FP4: "trtllm"}}
"""Rows of other engines that run the same kernels: SGLang's experts are Triton's too. Efficiencies are taken over."""


@dataclass(frozen=True)
class Runs:
    """Columns over all runs of an engine: the pieces of their times without the engine, and what was measured.

    A figure tells of its device unless another run outdid it by far.
    """

    decode_s: FloatArray
    fixed_s: FloatArray
    prefill_s: FloatArray
    prefill_fixed_s: FloatArray
    expert_layers: FloatArray
    others: FloatArray
    batch_share: FloatArray
    output: FloatArray
    wait_steps: FloatArray
    tpot_s: FloatArray
    ttft_s: FloatArray
    tpot_tells: BoolArray
    ttft_tells: BoolArray
    fitted: BoolArray

    @property
    def company(self) -> Company:
        """The other requests of each run."""
        return Company(self.others, self.batch_share)

    @property
    def few(self) -> BoolArray:
        """Runs of few requests whose first tokens tell of the device."""
        return (self.others <= FEW_OTHERS) & self.ttft_tells


@dataclass(frozen=True)
class MeasuredRuns:
    """Runs of one configuration, what other runs say of them, and the row of their expert kernels if it is fitted."""

    runs: serving.MeasuredRuns
    outdone: Outdone
    row: str = ""


def main() -> None:
    """Fit, print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path, required=True, help="directory of the measured tables")
    parser.add_argument("--update", action="store_true", help="write the constants into engines.yaml")
    arguments = parser.parse_args()
    text = DATA.read_text(encoding="utf-8")
    found: dict[str, Rows] = {}
    for engine in OWN_KERNELS:
        taken = {row: _efficiencies(found[other][row]) for row, other in TAKEN_OVER.get(engine, {}).items()}
        entry, found[engine] = _fit(engine, Pricer(engine, load(arguments.measured, engine)), taken)
        print(entry, flush=True)
        before, _, rest = text.partition(f"\n{engine}:\n")
        after = rest.splitlines(keepends=True)
        while after and after[0].startswith(" "):
            after.pop(0)
        text = before.rstrip("\n") + "\n" + entry + "".join(after)
    if arguments.update:
        DATA.write_text(text, encoding="utf-8")


def _efficiencies(figures: Mapping[str, float]) -> dict[str, float]:
    """What is of the kernels alone; a fixed cost holds what the engine launches around them too."""
    return {name: value for name, value in figures.items() if name.endswith("efficiency")}


def load(directory: Path, engine: str) -> list[MeasuredRuns]:
    """The runs of an engine that can be priced."""
    import polars as pl

    frame = pl.read_csv(directory / "e2e_nvidia_silicon.csv", infer_schema_length=None)
    measured, _ = serving.measured_runs(frame.filter(pl.col("backend") == engine).iter_rows(named=True))
    found = []
    for runs, faults in zip(measured, outdone(measured), strict=True):
        try:
            time = serving.price(runs.config, runs.loads)
        except serving.ModelingError:
            continue
        found.append(MeasuredRuns(runs, faults, _expert_row(time.prefill)))
    return found


def _expert_row(estimate: Estimate) -> str:
    """The row of costs that is fitted to runs and prices the experts of ``estimate``, if one does."""
    if estimate.device.family != FAMILY:
        return ""
    keys = {
        f"grouped_matmul_{variant}"
        for kernel in estimate.kernels
        if isinstance(kernel.op, GroupedMatMul)
        for variant in cost_variants(kernel.op)
    }
    return next((row for row in (FP8, FP4) if row in keys), "")


class Pricer:
    """Prices the runs of an engine without its own times, with expert kernels of given figures."""

    def __init__(self, engine: str, measured: Sequence[MeasuredRuns]) -> None:
        self._engine = engine
        self._measured = measured
        self._columns: dict[tuple[int, tuple[tuple[str, float], ...]], tuple[FloatArray, ...]] = {}

    def __call__(self, rows: Mapping[str, Mapping[str, float]]) -> Runs:
        """Columns over all runs."""
        parts = []
        for index, measured in enumerate(self._measured):
            figures = rows.get(measured.row, {})
            key = index, tuple(figures.items())
            if key not in self._columns:
                self._columns[key] = self._price(measured, figures)
            parts.append(self._columns[key])
        return Runs(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def concerns(self, row: str) -> BoolArray:
        """Which of the runs use expert kernels of ``row``."""
        lengths = {index: len(columns[0]) for (index, _), columns in self._columns.items()}
        return np.concatenate([np.full(lengths[i], one.row == row) for i, one in enumerate(self._measured)])

    def _price(self, measured: MeasuredRuns, figures: Mapping[str, float]) -> tuple[FloatArray, ...]:
        bare = replace(
            get_engine(self._engine),
            step_s=0.0,
            launch_overlap=0.0,
            request_s=0.0,
            expert_layer_s=0.0,
            expert_step_s=0.0,
            kernels={},
        )
        if figures:
            source = {f"kernels.{FAMILY}.{measured.row}": "tried"}
            kernels = {FAMILY: {measured.row: dict(figures)}}
            bare = replace(bare, kernels=kernels, sources={**bare.sources, **source})
        with mock.patch.dict(engines(), {self._engine: bare}):
            return _columns(serving.price(measured.runs.config, measured.runs.loads), measured)


def _columns(time: serving.ServingTime, measured: MeasuredRuns) -> tuple[FloatArray, ...]:
    """The columns of ``Runs``, without the runs whose prompts were not computed."""
    runs = measured.runs
    shape = (len(runs.loads),)
    met = serving.company_of(runs.config, runs.loads)
    computed = matrix_share(time, runs) <= COMPUTED
    columns = (
        np.broadcast_to(time.decode.total_time_s, shape),
        np.broadcast_to(_fixed_s(time.decode), shape),
        np.broadcast_to(time.prefill.total_time_s, shape),
        np.broadcast_to(_fixed_s(time.prefill), shape),
        np.full(shape, time.prefill.model.expert_layers),
        met.others,
        met.batch_share,
        np.array([run.output * run.mean_share for run in runs.loads]),
        np.array([run.wait_steps for run in runs.loads]),
        runs.tpot_s,
        runs.ttft_s,
        ~measured.outdone.tpot,
        ~measured.outdone.ttft,
        np.array([is_fitted(key) for key in runs.keys]),
    )
    return tuple(column[computed] for column in columns)


def _fixed_s(estimate: Estimate) -> Quantity:
    return sum((k.time.fixed_s * k.count for k in estimate.kernels if not isinstance(k.op, Collective)), start=0.0)


@dataclass(frozen=True)
class Constants:
    """What was fitted to output tokens and to first tokens, each with a cost of expert layers if it is worth one."""

    by_token: Best
    first: Best

    @property
    def cost(self) -> float:
        """Of both fits."""
        return self.by_token.cost + self.first.cost


def _constants(runs: Runs) -> Constants:
    by_token = _best_with_layers(
        lambda values: _tpot_errors(runs, values), [1e-3, 0.3, 1.0], 3e-5, runs, runs.tpot_tells
    )
    first = _best_with_layers(
        lambda values: _ttft_errors(runs, by_token.values, values), [0.05, 0.2], 1e-3, runs, runs.few
    )
    return Constants(by_token, first)


def _best_with_layers(
    errors: Callable[[FloatArray], FloatArray], start: Sequence[float], layer: float, runs: Runs, rows: BoolArray
) -> Best:
    """The constants without a cost of expert layers, or with one as the last where it is worth it."""
    plain = _best(errors, start, runs, rows)
    # Runs of expert models alone cannot tell what each layer adds from what a step or a request does.
    if len(np.unique(runs.expert_layers[rows & runs.fitted] > 0)) < 2:
        return plain
    layered = _best(errors, [*start, layer], runs, rows)
    return layered if plain.cost - layered.cost > WORTH else plain


def _fit(name: str, pricer: Pricer, taken: Rows) -> tuple[str, Rows]:
    """The entry of an engine, and its rows of expert kernels."""
    rows = {**taken, **_fit_kernels(name, pricer)}
    found = _constants(pricer(rows))
    step, overlap, share, *step_layer = found.by_token.values
    request, queue, *first_layer = found.first.values
    on_tpot, on_ttft = f"{SOURCE}; TPOT, {found.by_token.words}", f"{SOURCE}; TTFT of few requests, {found.first.words}"
    packaged = get_engine(name)
    sources = {
        "step_s": on_tpot,
        "launch_overlap": on_tpot,
        "request_s": on_ttft,
        "expert_layer_s": on_ttft if first_layer else "chosen: 0, first tokens do not tell it apart",
        "expert_step_s": on_tpot if step_layer else "chosen: 0, output tokens do not tell it apart",
        "prefill_share": on_tpot,
        "queue_share": on_ttft,
        "expert_spread": packaged.sources["expert_spread"],
    }
    for row in rows:
        sources[f"kernels.{FAMILY}.{row}"] = _kernel_source(name, row, pricer, rows)
    kernels = "".join(f"      {row}: {yaml_of(figures)}\n" for row, figures in rows.items())
    entry = (
        f"{name}:\n  step_s: {step:.3g}\n  launch_overlap: {overlap:.3g}\n  request_s: {request:.3g}\n"
        f"  expert_layer_s: {sum(first_layer):.3g}\n  expert_step_s: {sum(step_layer):.3g}\n"
        f"  prefill_share: {share:.3g}\n  queue_share: {queue:.3g}\n"
        f"  expert_spread: {packaged.expert_spread:.3g}\n  kernels:\n    {FAMILY}:\n{kernels}  sources:\n"
        + "".join(f'    {figure}: "{source}"\n' for figure, source in sources.items())
    )
    return entry, rows


def _fit_kernels(name: str, pricer: Pricer) -> Rows:
    """Each row of the engine in turn, and a second time where they depend on each other."""
    from scipy.optimize import minimize

    device = get_device("H200_SXM_141GB")
    found: Rows = {}
    own = OWN_KERNELS[name]
    for row, names in list(own.items()) * min(len(own), 2):
        packaged = device.kernels[priced_by(row, device)]
        start = np.array([getattr(packaged, figure) for figure in names])
        # Factors of the profile's figures: efficiencies of at most 1.
        limits = [
            (0.1, 1.0 / value if figure.endswith("efficiency") else 10.0)
            for figure, value in zip(names, start, strict=True)
        ]

        def figures(factors: FloatArray, names=names, start=start) -> dict[str, float]:
            return {name: float(f"{value:.2g}") for name, value in zip(names, start * factors, strict=True)}

        best = minimize(
            lambda factors, row=row, figures=figures: _constants(pricer({**found, row: figures(factors)})).cost,
            [0.5, *np.ones(len(names) - 1)],
            method="Nelder-Mead",
            bounds=limits,
            options={"xatol": 0.02, "fatol": 1e-4},
        )
        found[row] = figures(best.x)
    return found


def _kernel_source(name: str, row: str, pricer: Pricer, rows: Rows) -> str:
    """Where a row comes from, with the errors of the runs that have such experts with and without it."""
    origin = f"{SOURCE}, with the engine's other constants"
    if row not in OWN_KERNELS[name]:
        origin = f"assumed: as {TAKEN_OVER[name][row]}, whose kernels it runs"
    concerned = pricer.concerns(row)
    if not concerned.any():
        return f"{origin}; no run of such experts is published"
    with_row = _sizes_of_errors(pricer(rows))
    without = _sizes_of_errors(pricer({key: figures for key, figures in rows.items() if key != row}))
    halves = []
    for half in (with_row.runs.fitted, ~with_row.runs.fitted):
        figures = (
            (what, concerned & half & tells, errors, others)
            for what, tells, errors, others in (
                ("TPOT", with_row.runs.tpot_tells, with_row.tpot, without.tpot),
                ("TTFT", with_row.runs.few, with_row.ttft, without.ttft),
            )
        )
        halves.append(
            ", ".join(
                f"{what} n={part.sum()}, mean error {errors[part].mean():.0%} (without it {others[part].mean():.0%})"
                for what, part, errors, others in figures
                if part.any()
            )
        )
    return f"{origin}; runs of such experts: {halves[0]}; other half {halves[1]}"


@dataclass(frozen=True)
class Sizes:
    """Relative errors of all runs by their fitted constants, without sign."""

    runs: Runs
    tpot: FloatArray
    ttft: FloatArray


def _sizes_of_errors(runs: Runs) -> Sizes:
    found = _constants(runs)
    logarithms = (
        _tpot_errors(runs, found.by_token.values),
        _ttft_errors(runs, found.by_token.values, found.first.values),
    )
    return Sizes(runs, *(np.abs(np.expm1(errors)) for errors in logarithms))


def _step_times(runs: Runs, step: float, overlap: float, layer: float = 0.0) -> tuple[FloatArray, FloatArray]:
    """Seconds of a decode step and of the prefill of one request."""
    hidden, own = min(overlap, 1.0), step + layer * runs.expert_layers
    return own + runs.decode_s - hidden * runs.fixed_s, own + runs.prefill_s - hidden * runs.prefill_fixed_s


def _tpot_errors(runs: Runs, values: FloatArray) -> FloatArray:
    step, overlap, share, *layer = values
    decode_s, prefill_s = _step_times(runs, step, overlap, *layer)
    between = runs.company.prompts_between(share)
    return np.log((decode_s + between * prefill_s / runs.output) / runs.tpot_s)


def _ttft_errors(runs: Runs, by_token: FloatArray, values: FloatArray) -> FloatArray:
    request, queue, *layer = values
    step, overlap, _, *step_layer = by_token
    decode_s, prefill_s = _step_times(runs, step, overlap, *step_layer)
    first = request + sum(layer) * runs.expert_layers
    before = runs.company.prompts_before(queue)
    return np.log((first + before * prefill_s + runs.wait_steps * decode_s) / runs.ttft_s)


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
