"""Residuals of the kernels' costs: python benchmarks/fit_errors.py --measured DIRECTORY [--update]

Run it after ``fit_costs.py``: it prices the same rows with the packaged profiles, prints the tenth and ninetieth
percentile of measured over predicted time by family, class and length of the kernel, and how many of the rows that were
not fitted fall between them. Where costs were fitted to few rows, each of those is predicted by costs fitted to the
others, which takes minutes. ``--update`` writes ``residuals.yaml``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.fit_costs import FITS, Fit, FloatArray, Table, cost_of, load_tables, log_errors_of, solve
from benchmarks.measured_a3 import DEVICE
from benchmarks.measured_kernels import SYSTEMS, is_fitted
from benchmarks.video_rows import priced, requests
from tensor_cast.performance_model.error import DATA, Group, Limits, Residuals, class_of, to_plain

SPLIT_S = 15e-6
# Of errors of different rows of one step. With 0.02 the bands of the fitted half of serving runs hold 91 % (dense),
# 79 % (MoE) and 88 % (first tokens) of the measured times, with 0.1 they hold 93, 82 and 90 %, with 0 90, 78 and 87 %;
# of the fitted half of generations 86 % with 0.02, 89 % with 0.05 and 82 % with 0.
CORRELATION = 0.02
OF_GENERATIONS = ("attention_prefill_full", "attention_prefill_fa2", "matmul_conv")
WIDENING = 1.5
# Of kernels without a group: half as long to twice as long.
UNMEASURED = Limits(-0.5, 1.0)
# Percentiles of a few dozen rows that the costs were fitted to are narrower than those of new rows.
OPTIMISM = 1.25
# So few rows say little of the percentiles of a side: the wider one counts for both. Costs fitted to them, half as many
# figures as rows, follow each row: its error is that of costs fitted without it.
FEW_ROWS = 12
HEIRS = {"ascend_a2": "ascend_a3", "ascend_350": "ascend_a3", "amd_instinct": "nvidia_hopper"}
HEADER = """\
# How far measured times lie from the analytic model's, by device family and kernel class (with a dtype where it has a
# cost of its own): tenth and ninetieth percentile of measured / predicted - 1 on the rows that costs were fitted on,
# their logarithms widened by {optimism:g}, and for few rows as Student's prediction interval is.
# Written by benchmarks/fit_errors.py; the rows are those of the profiles.
"""


def main() -> None:
    """Print and, where asked to, write the residuals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path, required=True, help="directory of the measured tables")
    parser.add_argument("--update", action="store_true", help="write the packaged residuals")
    arguments = parser.parse_args()
    groups: dict[str, dict[str, Group]] = {}
    measured: dict[str, tuple[str, ...]] = {}
    for fit in FITS:
        tables = load_tables(fit, arguments.measured)
        fitted = np.concatenate([table.fitted for table in tables]) if tables else np.zeros(0, bool)
        if fitted.sum() < 8:
            continue
        residual, predicted = log_errors_of(tables)
        if fitted.sum() <= FEW_ROWS:
            residual = _left_out(fit, tables, residual, predicted)
        ratio = np.exp(-residual)
        group = _group(ratio[fitted], predicted[fitted])
        groups.setdefault(fit.family, {})[fit.key] = group
        measured[fit.family] = _devices(fit)
        inside = _inside(group, ratio[~fitted], predicted[~fitted])
        print(f"{fit.family} {fit.key}: {group}, {inside:.0%} of {int((~fitted).sum())} other rows inside", flush=True)
    grouped = groups["ascend_a3"]
    for key in ("matmul", "matmul_int8"):
        # Priced as a plain product, and not measured alone: the error is at least that of the product.
        grouped.setdefault(f"grouped_{key}", grouped[key])
    for family, found in _of_generations(arguments.measured).items():
        groups.setdefault(family, {}).update(found)
    result = Residuals(SPLIT_S, CORRELATION, WIDENING, UNMEASURED, HEIRS, measured, groups)
    if arguments.update:
        DATA.write_text(HEADER.format(optimism=OPTIMISM) + _yaml(to_plain(result)), encoding="utf-8")


def _left_out(fit: Fit, tables: Sequence[Table], residual: FloatArray, predicted: FloatArray) -> FloatArray:
    """``residual`` with that of each fitted size by costs fitted without it; equal predictions are one size."""
    fitted = np.concatenate([table.fitted for table in tables])
    ends = np.cumsum([len(table.seconds) for table in tables])[:-1]
    result = residual.copy()
    for size in np.unique(predicted[fitted]):
        out = fitted & (predicted == size)
        others = [
            replace(table, fitted=table.fitted & ~part) for table, part in zip(tables, np.split(out, ends), strict=True)
        ]
        held_out = np.log1p(solve(fit, others, cost_of(fit, tables[0].device)).held_out)
        result[out] = held_out[out[~(fitted & ~out)]]
    return result


def _of_generations(measured: Path) -> dict[str, dict[str, Group]]:
    """Groups by family of the classes that only whole generations tell of: what those are off by, of all families.

    A generation is too long or too short by these classes, which most of it is, so that its error is taken as theirs.
    """
    ratios, keys, seconds = [], dict[str, set[str]](), []
    for request in requests(measured):
        if request.apart or request.profile is None or not is_fitted(request.key):
            continue
        predicted, estimate = priced(request, request.profile)
        ratios.append(request.measured_s / predicted)
        family = HEIRS.get(estimate.device.family, estimate.device.family)
        for kernel in estimate.kernels:
            key = class_of(kernel.op, estimate.device)
            if key in OF_GENERATIONS:
                keys.setdefault(family, set()).add(key)
                seconds.append(float(kernel.time.total_s))
    band = _band(np.array(ratios))
    group = Group(len(ratios), band, band, float(f"{min(seconds):.3g}"), float(f"{max(seconds):.3g}"))
    print(f"generations: {group}", flush=True)
    return {family: dict.fromkeys(sorted(found), group) for family, found in sorted(keys.items())}


def _devices(fit: Fit) -> tuple[str, ...]:
    return (DEVICE,) if fit.systems == ("a3",) else tuple(SYSTEMS[system] for system in fit.systems)


def _group(ratio: FloatArray, predicted: FloatArray) -> Group:
    short = predicted < SPLIT_S
    whole = _band(ratio)
    bands = [_band(ratio[part]) if part.sum() >= 8 else whole for part in (short, ~short)]
    return Group(len(ratio), *bands, float(f"{predicted.min():.3g}"), float(f"{predicted.max():.3g}"))


def _band(ratio: FloatArray) -> Limits:
    low, high = np.quantile(OPTIMISM * _small_sample(len(ratio)) * np.log(ratio), (0.1, 0.9))
    if len(ratio) <= FEW_ROWS:
        low, high = min(low, -high), max(high, -low)
    # At least 3 %: repeated runs of one kernel differ as much.
    return Limits(round(float(min(np.expm1(low), -0.03)), 3), round(float(max(np.expm1(high), 0.03)), 3))


def _small_sample(rows: int) -> float:
    """How much wider the band of a new row is after few rows than after many: Student's prediction interval."""
    from scipy import stats

    return float(stats.t.ppf(0.9, rows - 1) / stats.norm.ppf(0.9) * np.sqrt(1.0 + 1.0 / rows))


def _inside(group: Group, ratio: FloatArray, predicted: FloatArray) -> float:
    short = predicted < SPLIT_S
    low = np.where(short, group.short.low, group.long.low)
    high = np.where(short, group.short.high, group.long.high)
    return float(np.mean((ratio >= 1.0 + low) & (ratio <= 1.0 + high)))


def _yaml(value: Any, indent: int = 0) -> str:
    lines = []
    for key, item in value.items():
        if isinstance(item, dict) and any(isinstance(inner, dict) for inner in item.values()) and indent < 4:
            lines.append(f"{' ' * indent}{key}:\n{_yaml(item, indent + 2)}")
        else:
            lines.append(f"{' ' * indent}{key}: {_flow(item)}\n")
    return "".join(lines)


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_flow(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_flow(item) for item in value)}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
