"""Fit kernels' costs to measurements: python benchmarks/fit_costs.py --measured DIRECTORY [--update]

Prints the YAML of each family's kernel classes with the number of rows and the errors; ``--update`` writes them into
the packaged profiles. Rows with an even CRC-32 of their key are fitted, the others only checked. Needs the extra
``fit``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import measured_a3
from benchmarks.measured_kernels import PLAIN, SET_ASIDE, SYSTEMS, is_fitted, is_one_token, ops_of_table, row_key
from tensor_cast.devices import CollectiveCost, DeviceProfile, KernelCost, get_device
from tensor_cast.devices.loader import PROFILES
from tensor_cast.ops import Elementwise, Op
from tensor_cast.performance_model.analytic import analytic_time

FloatArray = np.ndarray[Any, np.dtype[np.float64]]
NVIDIA_SOURCE = "fit of half of the public kernel tables of aiconfigurator-core 0.12.0"
A3_COLLECTIVE_SOURCE = "fit of half of the public times of HCCL collectives of 8 and 16 dies inside a model"
# The traces hold no INT8 product large enough to show the rate that it tends to.
A3_INT8 = 0.827
A3_INT8_SOURCE = (
    "fit of half of the public device times on one 910C die in vLLM serving traces, with at most the 82.7 % of the "
    "peak that large INT8 products reach (CloudMatrix384, arXiv 2506.12708)"
)
A3_SOURCE = "fit of half of the public device times on one 910C die in vLLM serving traces"

# Output tiles that kernel libraries are built with (CUTLASS and cuBLAS on NVIDIA; the cube's L0 allows as much).
MATMUL_TILES = ((64, 64), (128, 64), (128, 128), (256, 128), (128, 256))
BLOCKS = ((64, 64), (128, 128))
MATMUL = ("matrix_efficiency", "memory_efficiency", "fixed_s", "wave_s", "step_s", "overlap")
# Tables of expert layers hold decode-sized batches, which never reach the matrix rate: that is the plain product's.
DECODE_SIZED = ("memory_efficiency", "fixed_s", "wave_s", "step_s", "overlap")
COLLECTIVE = ("link_efficiency", "fixed_s", "peer_s", "one_shot_s")
HCCL = (*COLLECTIVE[:3], "schedule_s")
VECTOR = ("memory_efficiency", "fixed_s", "start_s")
BOUNDS = {
    "link_efficiency": (0.2, 1.0),
    "peer_s": (0.0, 4e-6),
    "one_shot_s": (1e-6, 20e-6),
    "matrix_efficiency": (0.2, 1.0),
    "memory_efficiency": (0.1, 1.0),
    "fixed_s": (0.5e-6, 20e-6),
    "wave_s": (0.0, 8e-6),
    "step_s": (0.0, 1e-6),
    "start_s": (0.0, 1e-6),
    "share_bytes": (512.0, 65536.0),
    "schedule_s": (0.0, 400e-6),
    "overlap": (0.0, 1.0),
}


@dataclass(frozen=True)
class Fit:
    """One row of costs in a family's file (``matmul_fp8``: a class with a dtype), fitted on rows of these systems.

    With ``quantizes`` half of the rows run two vector kernels before the product, which tells ``fixed_s`` of those.
    """

    family: str
    key: str
    systems: tuple[str, ...]
    kernel: str
    dtypes: tuple[str, ...]
    figures: tuple[str, ...] = MATMUL
    tiles: tuple[tuple[tuple[int, int], ...], ...] = (MATMUL_TILES,)
    source: str = NVIDIA_SOURCE
    largest_efficiency: float = 1.0
    quantizes: bool = False


AMPERE, HOPPER, BLACKWELL, ADA = ("a100_sxm",), ("h100_sxm", "h200_sxm"), ("b200_sxm", "gb200"), ("l40s",)
_SYSTEMS = {"nvidia_ampere": AMPERE, "nvidia_hopper": HOPPER, "nvidia_blackwell": BLACKWELL, "nvidia_ada": ADA}
_ATTENTION = tuple((block,) for block in BLOCKS)
_KINDS: tuple[tuple[str, str, tuple[str, ...], tuple[tuple[tuple[int, int], ...], ...]], ...] = (
    ("matmul", "gemm", ("bfloat16",), (MATMUL_TILES,)),
    ("matmul_fp8", "gemm", ("fp8", "fp8_block"), (MATMUL_TILES,)),
    ("matmul_fp4", "gemm", ("nvfp4",), (MATMUL_TILES,)),
    ("grouped_matmul", "moe", ("bfloat16",), ()),
    ("grouped_matmul_fp8", "moe", ("fp8", "fp8_block"), ()),
    ("grouped_matmul_fp4", "moe", ("nvfp4",), ()),
    ("attention_prefill", "context_attention", ("bfloat16",), _ATTENTION),
    ("attention_prefill_fp8", "context_attention", ("fp8",), _ATTENTION),
    ("attention_decode", "generation_attention", ("bfloat16",), _ATTENTION),
)
FITS = (
    *(
        Fit(
            *(family, key, systems, kernel, dtypes, *(() if tiles else (DECODE_SIZED,))),
            tiles=tiles,
            quantizes=key == "matmul_fp8",
        )
        for family, systems in _SYSTEMS.items()
        for key, kernel, dtypes, tiles in _KINDS
    ),
    *(
        Fit(family, "collective", systems, "nccl custom_allreduce", (), figures, ())
        for family, systems, figures in (
            ("nvidia_ampere", AMPERE, COLLECTIVE[:3]),
            ("nvidia_hopper", HOPPER, COLLECTIVE),
            ("nvidia_blackwell", BLACKWELL, COLLECTIVE),
        )
    ),
    Fit("ascend_a3", "matmul", ("a3",), "matmul", ("bfloat16",), source=A3_SOURCE),
    Fit("ascend_a3", "matmul_int8", ("a3",), "matmul", ("int8",), source=A3_INT8_SOURCE, largest_efficiency=A3_INT8),
    Fit("ascend_a3", "collective", ("a3",), "collective", (), HCCL, (), A3_COLLECTIVE_SOURCE),
    Fit("ascend_a3", "vector", ("a3",), "vector", (), VECTOR, (), A3_SOURCE),
    Fit("ascend_a3", "vector_flat", ("a3",), "vector", (), (*VECTOR, "share_bytes"), (), A3_SOURCE),
)

HEIRS = {
    "ascend_a3": dict.fromkeys(("ascend_a2", "ascend_350"), "ATLAS_800_A3_752T_128G_DIE"),
    "nvidia_hopper": {"amd_instinct": "H100 and H200"},
}
"""Families without measurements, which take over the rows of another."""


@dataclass(frozen=True)
class Table:
    """Rows that one call prices: their ops, their measured seconds, which of them may be fitted.

    ``two_pass`` rows were measured with NCCL, which has no all-reduce at one go as engines do.
    """

    device: DeviceProfile
    ops: tuple[Op, ...]
    seconds: FloatArray
    fitted: np.ndarray[Any, np.dtype[np.bool_]]
    two_pass: bool = False


@dataclass(frozen=True)
class Result:
    """The figures found, and signed relative errors of both halves."""

    figures: dict[str, float]
    tiles: tuple[tuple[int, int], ...]
    train: FloatArray
    held_out: FloatArray
    vector: dict[str, float]

    @property
    def row(self) -> dict[str, Any]:
        """The figures as a profile has them; the tiles of a vector kernel mean nothing."""
        return {**self.figures, "tiles": self.tiles} if "matrix_efficiency" in self.figures else self.figures

    @property
    def words(self) -> str:
        """Rows and errors of both halves, as a source states them."""
        train, held_out = np.abs(self.train), np.abs(self.held_out)
        return (
            f"n={len(train)}, median error {np.median(train):.0%}; "
            f"other half n={len(held_out)}, {np.median(held_out):.0%} (mean {held_out.mean():.0%})"
        )


def main() -> None:
    """Fit what the arguments ask for, print it, and write it where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path, required=True, help="directory of the measured tables")
    parser.add_argument("--only", default="", help="fit only keys that contain this, such as ascend_a3/vector")
    parser.add_argument("--update", action="store_true", help="write the constants into the packaged profiles")
    arguments = parser.parse_args()
    rows: dict[tuple[str, str], Mapping[str, Any]] = {}
    for fit in FITS:
        if arguments.only not in f"{fit.family}/{fit.key}":
            continue
        tables = load_tables(fit, arguments.measured)
        if sum(int(table.fitted.sum()) for table in tables) < 8:
            continue
        tables = [_with_vector(table, rows.get((fit.family, "vector"), {})) for table in tables]
        base = cost_of(fit, tables[0].device, rows)
        result = solve(fit, tables, base)
        rows[fit.family, fit.key] = result.row
        print(f"{fit.family}  {fit.key}: {yaml_of(result.row)}  # {result.words}", flush=True)
        if result.vector:
            rows[fit.family, "vector"] = result.vector
            print(f"{fit.family}  vector: {yaml_of(result.vector)}", flush=True)
        if arguments.update:
            update_profiles(fit, result)


def load_tables(fit: Fit, directory: Path) -> list[Table]:
    """The rows of a fit, a table a device, dtype and engine."""
    import polars as pl

    if fit.systems == ("a3",):
        return _a3_tables(fit, directory)
    frame = pl.read_csv(directory / "kernels_nvidia.csv", infer_schema_length=None).filter(
        pl.col("system").is_in(fit.systems)
        & pl.col("kernel").is_in(fit.kernel.split(" "))
        & (pl.col("dtype").is_in(fit.dtypes) if fit.dtypes else pl.lit(True))
        & ~pl.col("kernel_source").is_in(list(SET_ASIDE))
    )
    frame = frame.with_columns(
        fitted=pl.Series([is_fitted(row_key(row)) for row in frame.iter_rows(named=True)], dtype=pl.Boolean)
    )
    tables = []
    for (system, *_), part in frame.group_by(*PLAIN, pl.col("seq_q") == 1, maintain_order=True):
        columns: dict[str, Any] = {
            name: part[name].cast(pl.Float64).to_numpy() if part[name].dtype.is_numeric() else part[name].to_list()
            for name in part.columns
        }
        columns |= {name: part[name][0] for name in PLAIN}
        if columns["kernel"] == "context_attention" and is_one_token(columns):
            continue
        seconds = columns["latency_us"] * 1e-6
        tables.append(
            Table(
                get_device(SYSTEMS[str(system)]),
                ops_of_table(columns),
                seconds,
                part["fitted"].to_numpy(),
                columns["kernel"] == "nccl",
            )
        )
    return tables


def _a3_tables(fit: Fit, directory: Path) -> list[Table]:
    import polars as pl

    device = get_device(measured_a3.DEVICE)
    tables = []
    if fit.kernel == "collective":
        for row in pl.read_csv(directory / "comm_a3.csv", infer_schema_length=None).iter_rows(named=True):
            ops = measured_a3.collective_of_row(row)
            if not isinstance(ops, str):
                fitted = is_fitted(measured_a3.collective_key(row))
                tables.append(Table(device, ops, np.array([row["duration_us"] * 1e-6]), np.array([fitted])))
        return tables
    frame = pl.read_csv(directory / "kernels_a3.csv", infer_schema_length=None)
    for row in frame.iter_rows(named=True):
        ops = measured_a3.ops_of_row(row)
        if isinstance(ops, str) or (ops[0].category == "MatMul") != (fit.kernel == "matmul"):
            continue
        if fit.dtypes and ops[0].matrix_dtype not in fit.dtypes:
            continue
        if isinstance(ops[0], Elementwise) and ops[0].flat != (fit.key == "vector_flat"):
            continue
        fitted = is_fitted(measured_a3.row_key(row))
        tables.append(Table(device, ops, np.array([row["mean_us"] * 1e-6]), np.array([fitted])))
    return tables


def cost_of(
    fit: Fit, device: DeviceProfile, found: Mapping[tuple[str, str], Mapping[str, Any]] = MappingProxyType({})
) -> KernelCost | CollectiveCost:
    """What figures that are not fitted stay at: the class's, with the matrix rate of the dtype's plain product."""
    if fit.key == "collective":
        return device.collective
    kind, dtype = fit.key.removesuffix("_flat"), ""
    for suffix in ("_fp8", "_fp4", "_int8"):
        if kind.endswith(suffix):
            kind, dtype = kind.removesuffix(suffix), suffix
    cost = replace(device.kernels[kind], **found.get((fit.family, kind), {}))
    if kind == "grouped_matmul":
        product = f"matmul{dtype}"
        plain = replace(device.kernels.get(product, device.kernels["matmul"]), **found.get((fit.family, product), {}))
        cost = replace(cost, matrix_efficiency=plain.matrix_efficiency, tiles=plain.tiles)
    return cost


def solve(fit: Fit, tables: Sequence[Table], base: KernelCost | CollectiveCost) -> Result:
    """The figures that minimise the mean absolute logarithm of predicted over measured time on the fitted rows."""
    from scipy.optimize import differential_evolution

    fitted = np.concatenate([table.fitted for table in tables])
    best: tuple[float, Result] | None = None
    for tiles in fit.tiles or (base.tiles if isinstance(base, KernelCost) else (),):

        def errors(values: FloatArray, tiles: tuple[tuple[int, int], ...] = tiles) -> FloatArray:
            figures = dict(zip(fit.figures, values[: len(fit.figures)], strict=True))
            if isinstance(base, KernelCost):
                priced = [_with_vector(table, {"fixed_s": values[-1]}) for table in tables] if fit.quantizes else tables
                return _log_errors(fit.key, priced, replace(base, tiles=tiles, **figures))  # type: ignore[arg-type]
            return _log_errors(fit.key, tables, replace(base, **figures))

        def loss(values: FloatArray, errors: Callable[[FloatArray], FloatArray] = errors) -> float:
            return float(np.mean(np.abs(errors(values)[fitted])))

        limits = {**BOUNDS, "matrix_efficiency": (BOUNDS["matrix_efficiency"][0], fit.largest_efficiency)}
        bounds = [limits[name] for name in (*fit.figures, *(("fixed_s",) if fit.quantizes else ()))]
        found = differential_evolution(loss, bounds, maxiter=120, popsize=10, seed=1, tol=1e-6, polish=False)
        values = np.array([float(f"{value:.3g}") for value in found.x])
        relative = np.expm1(errors(values))
        figures = {name: float(value) for name, value in zip(fit.figures, values, strict=False)}
        vector = {"fixed_s": float(values[-1])} if fit.quantizes else {}
        if "wave_s" in figures and isinstance(base, KernelCost):
            figures["matrix_efficiency"] = figures.get("matrix_efficiency", base.matrix_efficiency)
        result = Result(figures, tiles, relative[fitted], relative[~fitted], vector)
        if best is None or found.fun < best[0]:
            best = (float(found.fun), result)
    assert best is not None
    return best[1]


def _with_vector(table: Table, figures: Mapping[str, Any]) -> Table:
    """``table`` on a device with these figures of vector kernels."""
    kernels = table.device.kernels
    cost = replace(kernels["vector"], **figures)
    return replace(table, device=replace(table.device, kernels={**kernels, "vector": cost}))


def _log_errors(key: str, tables: Sequence[Table], cost: KernelCost | CollectiveCost) -> FloatArray:
    parts = []
    for table in tables:
        if isinstance(cost, KernelCost):
            device = replace(table.device, kernels={**table.device.kernels, key: cost})
        else:
            device = replace(table.device, collective=replace(cost, one_shot_s=0.0) if table.two_pass else cost)
        total = sum(analytic_time(op, device).total_s for op in table.ops)
        parts.append(np.log(np.broadcast_to(total, table.seconds.shape) / table.seconds))
    return np.concatenate(parts)


def log_errors_of(tables: Sequence[Table]) -> tuple[FloatArray, FloatArray]:
    """Logarithms of predicted over measured time with the packaged costs, and the predicted seconds."""
    errors, seconds = [], []
    for table in tables:
        collective = table.device.collective
        if table.two_pass:
            collective = replace(collective, one_shot_s=0.0)
        device = replace(table.device, collective=collective)
        total = sum(analytic_time(op, device).total_s for op in table.ops)
        seconds.append(np.broadcast_to(total, table.seconds.shape))
        errors.append(np.log(seconds[-1] / table.seconds))
    return np.concatenate(errors), np.concatenate(seconds)


def yaml_of(figures: Mapping[str, Any]) -> str:
    """Figures as a YAML flow mapping, as the packaged files have it."""

    def text(value: Any) -> str:
        if isinstance(value, list | tuple):
            return f"[{', '.join(text(item) for item in value)}]"
        return str(value) if isinstance(value, int) else f"{value:.3g}"

    return f"{{{', '.join(f'{name}: {text(value)}' for name, value in figures.items())}}}"


def update_profiles(fit: Fit, result: Result) -> None:
    """Put a row of costs and its source into the ``defaults`` of its family's file and of those that take it over."""
    source = f"{fit.source}; {result.words}"
    write(fit.family, fit.key, result.row, source)
    if fit.family == "ascend_a3" and fit.kernel == "matmul":
        write(fit.family, f"grouped_{fit.key}", result.row, "assumed: as matmul; no grouped product is measured alone")
    beside = f"{fit.source}, from the FP8 products that quantise first; {result.words}"
    if result.vector:
        write(fit.family, "vector", result.vector, beside, of=".fixed_s")
    for family, likeness in HEIRS.get(fit.family, {}).items():
        if result.vector:
            write(family, "vector", result.vector, f"assumed: as {likeness}; {beside}", of=".fixed_s")
        # How large a collective one kernel still takes is HCCL's choice on the A3 alone.
        inherited = {name: figure for name, figure in result.row.items() if name != "schedule_s"}
        write(family, fit.key, inherited, f"assumed: as {likeness}; {source}")
        if fit.family == "ascend_a3" and fit.kernel == "matmul":
            write(family, f"grouped_{fit.key}", result.row, f"assumed: as {likeness}, as matmul; {source}")


def write(family: str, key: str, figures: Mapping[str, Any], source: str, *, of: str = "") -> None:
    """Put one row and its source into one file; figures that the fit does not have stay as they are.

    The source is that of the row, or of one figure: ``of`` is a dot and its name.
    """
    import yaml

    path = PROFILES / f"{family}.yaml"
    lines = path.read_text(encoding="utf-8").splitlines()
    kernels = key != "collective"
    row = f"    {key}: " if kernels else f"  {key}: "
    path_of = f"kernels.{key}" if kernels else key
    old = next((line for line in lines if line.startswith(row)), row + "{}")
    kept = {name: float(v) if isinstance(v, str) else v for name, v in yaml.safe_load(old)[key].items()}
    lines = _put(lines, "  collective:", row, row + yaml_of({**kept, **figures}))
    lines = [line for line in lines if not any(line.startswith(f"    {path_of}.{figure}:") for figure in figures)]
    lines = _put(lines, "devices:", f"    {path_of}{of}: ", f'    {path_of}{of}: "{source}"')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _put(lines: list[str], end: str, start: str, line: str) -> list[str]:
    """``lines`` with the one that begins with ``start`` replaced, or with ``line`` before the first at ``end``."""
    for index, old in enumerate(lines):
        if old.startswith(start):
            return [*lines[:index], line, *lines[index + 1 :]]
    index = next(i for i, old in enumerate(lines) if old.startswith(end))
    index -= lines[index - 1] == ""
    return [*lines[:index], line, *lines[index:]]


if __name__ == "__main__":
    main()
