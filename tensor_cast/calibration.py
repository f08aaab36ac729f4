"""A device profile from measurements: costs of kernels and collectives fitted to a performance database.

Rows whose text has an even CRC-32 are fitted, by minimising the mean absolute logarithm of predicted over measured
time; errors are reported on the others. Peaks come from a base profile, or are the best rates that rows reached.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np

from tensor_cast.calibration_collectives import read_collective_rows, solve_collective
from tensor_cast.calibration_rows import FloatArray, Rows, best_rates, read_rows
from tensor_cast.calibration_search import Bound, minimise
from tensor_cast.devices.profile import KERNEL_CLASSES, CollectiveCost, DeviceProfile, KernelClass, KernelCost
from tensor_cast.devices.registry import load_device_file
from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.error import FEWEST_ROWS

# Output tiles that kernel libraries are built with (CUTLASS and cuBLAS on NVIDIA; the cube's L0 allows as much), and
# blocks of queries and keys of attention kernels.
MATMUL_TILES = ((64, 64), (128, 64), (128, 128), (256, 128), (128, 256))
BLOCKS = ((64, 64), (128, 128))

_MATMUL = ("matrix_efficiency", "memory_efficiency", "fixed_s", "wave_s", "step_s", "overlap")
_ATTENTION = (*_MATMUL, "vector_efficiency")
_VECTOR = ("memory_efficiency", "vector_efficiency", "fixed_s", "start_s", "overlap")
_EFFICIENCY = Bound(0.01, 1.0)
# A figure that changes the loss by less than this share is one that the rows do not tell.
_NOTICED = 1e-3
_DIGITS = 4


@dataclass(frozen=True)
class Residuals:
    """Relative errors on the rows that were not fitted, and the factor that they are off by on average.

    A time predicted at a tenth is off by 90 %, and at ten times by 900 %: ``factor``, the exponential of the mean
    absolute logarithm of predicted over measured, is 10 for both. It is the loss of a fit and decides for or against.
    """

    median: float
    p90: float
    factor: float


@dataclass(frozen=True)
class ClassFit:
    """What was done for one key of a profile's ``kernels``, or for its ``collective``.

    ``kept`` says why the cost stayed as it was, empty where it was fitted.
    """

    key: str
    fitted_rows: int
    other_rows: int
    before: Residuals
    after: Residuals
    kept: str = ""


@dataclass(frozen=True)
class Calibration:
    """A calibrated profile, its classes, and the rows of unknown layout that it does not rest on."""

    profile: DeviceProfile
    classes: tuple[ClassFit, ...]
    unused_rows: int


def calibrate(
    directory: Path,
    name: str,
    base: DeviceProfile | None = None,
    *,
    memory_bytes: float | None = None,
    on_class: Callable[[str], None] = lambda text: None,
) -> Calibration:
    """The profile ``name``: ``base`` with the costs of its kernel classes fitted to the database in ``directory``.

    Without ``base`` rates are the best that rows reached, cores are unknown, and everything else is the rules'.
    ``on_class`` hears of each class before it is fitted.

    Raises:
        ModelingError: the database cannot be read or has no row of use; without ``base``: none is a matrix product.
    """
    by_class = read_rows(directory)
    every = [rows for parts in by_class.rows.values() for rows in parts]
    device = _with_rates(base, every, directory) if base else _from_rates(every, directory, memory_bytes)
    if base and memory_bytes:
        sources = {**device.sources, "memory_bytes": "given by the user"}
        device = replace(device, memory_bytes=memory_bytes, sources=sources)
    device = replace(device, name=name, description=f"Calibrated from {directory}")
    start, fits = device, []
    for key, rows in by_class.rows.items():
        count = sum(len(part.seconds) for part in rows)
        on_class(f"{key}: {count} row{'' if count == 1 else 's'}")
        device, fit = _fit_class(start, device, key, rows, directory)
        fits.append(fit)
    unknown = Residuals(float("nan"), float("nan"), float("nan"))
    fits += [ClassFit(key, 0, 0, unknown, unknown, "no rows") for key in KERNEL_CLASSES if key not in by_class.rows]
    fits.sort(key=lambda fit: (KERNEL_CLASSES.index(_class_of(fit.key)), fit.key))
    collectives = read_collective_rows(directory, device)
    if collectives:
        on_class(f"collective: {sum(len(part.seconds) for part in collectives)} rows")
        device, fit = _fit_collective(device, collectives, directory)
        fits.append(fit)
    return Calibration(device, tuple(fits), by_class.unused)


def _with_rates(base: DeviceProfile, rows: Sequence[Rows], directory: Path) -> DeviceProfile:
    """The base, its sources naming it, with rates of the dtypes that rows have and it lacks."""
    sources = {path: _inherited(base.name, source) for path, source in base.sources.items()}
    matrix = dict(base.matrix_flops)
    for dtype, rate in best_rates(rows).matrix_flops.items():
        if dtype not in matrix:
            matrix[dtype] = _rounded(rate)
            sources[f"matrix_flops.{dtype}"] = _best_seen(directory)
    return replace(base, matrix_flops=matrix, sources=sources)


def _from_rates(rows: Sequence[Rows], directory: Path, memory_bytes: float | None) -> DeviceProfile:
    """A device of which only the rows are known, everything else by the rules for absent figures."""
    best = best_rates(rows)
    if not best.matrix_flops:
        raise ModelingError(
            f"{directory} has no matrix product, which a device's matrix rate could be seen from: "
            "name a base profile with --device or --device-file."
        )
    matrix = {dtype: _rounded(rate) for dtype, rate in best.matrix_flops.items()}
    seen = _best_seen(directory)
    sources = {
        "matrix_flops": seen,
        "vector_flops": seen,
        "memory_bandwidth": seen,
        "memory_bytes": "given by the user",
    }
    if "bfloat16" not in matrix:
        like = "float16" if "float16" in matrix else max(matrix, key=matrix.__getitem__)
        matrix["bfloat16"] = matrix[like]
        sources["matrix_flops.bfloat16"] = f"assumed: as {like}; {directory} has no product in bfloat16"
    if memory_bytes is None:
        memory_bytes = best.largest_kernel_bytes
        sources["memory_bytes"] = "assumed: no more than the largest kernel of the rows touches; --memory-gib gives it"
    document: dict[str, object] = {
        "name": "draft",
        "matrix_flops": matrix,
        "memory_bytes": memory_bytes,
        "memory_bandwidth": _rounded(best.memory_bandwidth),
        "sources": sources,
    }
    if best.vector_flops > 0.0:
        document["vector_flops"] = {"float32": _rounded(best.vector_flops)}
    else:
        del sources["vector_flops"]
    with tempfile.TemporaryDirectory(prefix="msmodeling-") as scratch:
        draft = Path(scratch, "draft.yaml")
        draft.write_text(json.dumps(document), encoding="utf-8")
        return load_device_file(draft)[0]


def _fit_class(
    start: DeviceProfile, device: DeviceProfile, key: str, rows: Sequence[Rows], directory: Path
) -> tuple[DeviceProfile, ClassFit]:
    """``device`` with the cost of ``key`` fitted, errors before those of ``start``."""
    kind = _class_of(key)
    cost = device.kernels.get(key) or device.kernels[kind]

    def solve() -> DeviceProfile:
        return replace(device, kernels={**device.kernels, key: _solve(device, key, cost, rows)})

    found, fit, words = _fit(start, device, key, rows, solve, f"rows of {directory}")
    if fit.kept:
        return device, fit
    sources = dict(device.sources)
    for field in fields(KernelCost):
        path = f"kernels.{key}.{field.name}"
        if getattr(found.kernels[key], field.name) != getattr(cost, field.name):
            sources[path] = words
        elif path not in sources:
            sources[path] = f"assumed: as {kind}"
    return replace(found, sources=sources), fit


def _fit_collective(device: DeviceProfile, rows: Sequence[Rows], directory: Path) -> tuple[DeviceProfile, ClassFit]:
    """``device`` with the costs of collectives fitted, on the same terms as a kernel class."""

    def solve() -> DeviceProfile:
        return replace(device, collective=solve_collective(device, rows))

    found, fit, words = _fit(device, device, "collective", rows, solve, f"collectives of {directory}")
    if fit.kept:
        return device, fit
    changed = [
        field.name
        for field in fields(CollectiveCost)
        if getattr(found.collective, field.name) != getattr(device.collective, field.name)
    ]
    return replace(found, sources={**device.sources, **{f"collective.{name}": words for name in changed}}), fit


def _fit(
    start: DeviceProfile,
    device: DeviceProfile,
    key: str,
    rows: Sequence[Rows],
    solve: Callable[[], DeviceProfile],
    what: str,
) -> tuple[DeviceProfile, ClassFit, str]:
    """What ``solve`` finds and its source in words; ``device`` if rows are few or the other half is predicted worse."""
    fitted = np.concatenate([part.fitted for part in rows])
    counts = (int(fitted.sum()), int((~fitted).sum()))
    before = _log_errors(start, rows)[~fitted]

    def kept(why: str) -> tuple[DeviceProfile, ClassFit, str]:
        now = _log_errors(device, rows)[~fitted]
        return device, ClassFit(key, *counts, _residuals(before), _residuals(now), why), ""

    if counts[0] < FEWEST_ROWS or not counts[1]:
        return kept("too few rows")
    found = solve()
    errors = _log_errors(found, rows)
    train, others = errors[fitted], errors[~fitted]
    if np.mean(np.abs(others)) > np.mean(np.abs(before)):
        return kept("other rows worse")
    return found, ClassFit(key, *counts, _residuals(before), _residuals(others)), _words(counts, train, others, what)


def _words(counts: tuple[int, int], train: FloatArray, others: FloatArray, what: str) -> str:
    after = _residuals(others)
    return (
        f"fit of {counts[0]} {what}, median error {_residuals(train).median:.1%}; "
        f"other half n={counts[1]}, median {after.median:.1%}, p90 {after.p90:.1%}"
    )


def _solve(device: DeviceProfile, key: str, cost: KernelCost, rows: Sequence[Rows]) -> KernelCost:
    """The cost that predicts the fitted rows best; figures that they do not tell stay as they are."""
    fitted = np.concatenate([part.fitted for part in rows])
    seconds = float(np.median(np.concatenate([part.seconds for part in rows])))
    kind = _class_of(key)
    names: tuple[str, ...] = _VECTOR
    tiles = [cost.tiles]
    if kind != "vector":
        names = _ATTENTION if kind.startswith("attention") else _MATMUL
        tiles += [(block,) for block in BLOCKS] if kind.startswith("attention") else [MATMUL_TILES]
    # No wave, step or core costs more than the usual kernel takes.
    bounds = [
        _EFFICIENCY
        if name.endswith("efficiency")
        else Bound(0.0, 1.0, 1.0)
        if name == "overlap"
        else Bound(0.0, seconds)
        for name in names
    ]

    def loss(candidate: KernelCost) -> float:
        changed = replace(device, kernels={**device.kernels, key: candidate})
        return float(np.mean(np.abs(_log_errors(changed, rows)[fitted])))

    best, least = cost, loss(cost)
    for shape in dict.fromkeys(tiles):
        shaped = replace(cost, tiles=shape)

        def loss_of(figures: Sequence[float], shaped: KernelCost = shaped) -> float:
            return loss(replace(shaped, **dict(zip(names, figures, strict=True))))  # type: ignore[arg-type]

        figures, found = minimise(loss_of, bounds, [getattr(cost, name) for name in names])
        if found < least * (1.0 - _NOTICED):
            rounded = {name: _rounded(figure) for name, figure in zip(names, figures, strict=True)}
            best = replace(shaped, **rounded)  # type: ignore[arg-type]
            least = loss(best)
    for name, figure in asdict(cost).items():
        without = replace(best, **{name: figure})
        if loss(without) <= least * (1.0 + _NOTICED):
            best = without
    return best


def _class_of(key: str) -> KernelClass:
    return next(kind for kind in KERNEL_CLASSES if key == kind or key.startswith(f"{kind}_"))


def _log_errors(device: DeviceProfile, rows: Sequence[Rows]) -> FloatArray:
    return np.concatenate([part.log_errors(device) for part in rows])


def _residuals(logarithms: FloatArray) -> Residuals:
    if not logarithms.size:
        return Residuals(float("nan"), float("nan"), float("nan"))
    errors = np.abs(np.expm1(logarithms))
    factor = np.exp(np.mean(np.abs(logarithms)))
    return Residuals(float(np.median(errors)), float(np.quantile(errors, 0.9)), float(factor))


def _inherited(base: str, source: str) -> str:
    assumed = "assumed: " if source.startswith("assumed: ") else ""
    return f"{assumed}as {base}: {source.removeprefix('assumed: ')}"


def _best_seen(directory: Path) -> str:
    return f"best rate seen in the rows of {directory}, which the device's peak is not below"


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
