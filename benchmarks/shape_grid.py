"""Shape grids: how fast the unlimited grid of all operators is, and what the choice of rows is worth.

    python benchmarks/shape_grid.py [--skip-speed]

The choice is tried on a made-up device whose kernel times are known: products run in whole waves of tiles on 24 cores,
small transfers do not reach the memory's bandwidth, and every kernel starts at a cost. Of all products of the general
axes, 2,000 are "measured" there; the lookup predicts the others from them, with the analytic model of another device.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tensor_cast.devices import get_device
from tensor_cast.ops import Op
from tensor_cast.performance_model.analytic import analytic_time
from tensor_cast.performance_model.profiling_database.coverage import REPLAYED_KERNELS
from tensor_cast.performance_model.profiling_database.kernels import Kernel, Launch
from tensor_cast.performance_model.profiling_database.kernels_matmul import MATMUL
from tensor_cast.performance_model.profiling_database.kernels_vector import SWIGLU
from tensor_cast.performance_model.profiling_database.lookup import predict
from tensor_cast.performance_model.profiling_database.measurements import Measurements
from tensor_cast.performance_model.timing import SOURCES
from tools.perf_data_collection.grid_generator.candidates import FloatArray, axis_points
from tools.perf_data_collection.grid_generator.general import general_structures
from tools.perf_data_collection.grid_generator.sampling import measuring_order

ROOT = Path(__file__).parents[1]
ROWS = 2000
SECONDS = 60.0
"""What the unlimited grid may take."""
DTYPES = {"x": "bfloat16", "y": "bfloat16"}
_CORES, _TILE_M, _TILE_N = 24.0, 128.0, 256.0
_RATE, _BANDWIDTH, _KNEE_BYTES, _START_S = 280e12, 1.4e12, 2e6, 7e-6


def made_up_time(op: Op) -> FloatArray:
    """Whole waves of tiles; bandwidth that half is reached of at ``_KNEE_BYTES``; a start."""
    flops = np.asarray(op.matrix_flops, dtype=np.float64)
    size = np.asarray(op.bytes, dtype=np.float64)
    memory = (size + _KNEE_BYTES) / _BANDWIDTH
    if not hasattr(op, "m"):
        return _START_S + memory
    tiles = np.ceil(op.m / _TILE_M) * np.ceil(op.n / _TILE_N)  # type: ignore[attr-defined]
    waves = np.ceil(tiles / _CORES)
    matrix = np.where(flops > 0.0, waves * 2.0 * _TILE_M * _TILE_N * op.k * _CORES / _RATE, 0.0)  # type: ignore[attr-defined]
    return _START_S + np.maximum(matrix, memory)


def prediction_errors(kernel: Kernel, chosen: np.ndarray, widths: FloatArray, points: FloatArray) -> FloatArray:
    """Relative errors of all candidates that are not among the ``chosen``."""
    device = get_device("ATLAS_800_A3_752T_128G_DIE")
    layout = kernel.layouts[-2] if len(kernel.layouts) > 2 else kernel.layouts[0]
    of_structure, of_point = np.divmod(chosen, len(points))
    sizes = dict(zip(kernel.sizes, np.concatenate([widths[of_structure], points[of_point]], axis=1).T, strict=True))
    measured = Measurements(
        kernel,
        layout,
        DTYPES,
        sizes,
        made_up_time(kernel.op_at(layout, sizes, DTYPES)),
        np.full(len(chosen), np.nan),
        [(kernel.name, index) for index in range(len(chosen))],
        lambda op: analytic_time(op, device).total_s,
    )
    left = np.ones((len(widths), len(points)), dtype=bool)
    left[of_structure, of_point] = False
    errors = []
    for structure in np.flatnonzero(left.any(axis=1)):
        query = points[left[structure]]
        named = {name: query[:, axis] for axis, name in enumerate(kernel.axes)}
        named |= dict(zip(kernel.widths, widths[structure], strict=True))
        answer = predict(Launch(kernel, named, DTYPES), [measured])
        expected = analytic_time(kernel.op_at(layout, named, DTYPES), device).total_s
        seconds = np.where(SOURCES.index("analytic") == answer.codes, expected, answer.seconds)
        errors.append(np.abs(seconds / made_up_time(kernel.op_at(layout, named, DTYPES)) - 1.0))
    return np.concatenate(errors)


def compare(kernel: Kernel, rows: int, seeds: int) -> None:
    widths = np.array([structure.widths for structure in general_structures(kernel)])
    points = axis_points(kernel)
    total = len(widths) * len(points)
    print(f"{kernel.name}: {rows} of {total} rows measured, the other {total - rows} predicted")
    for name in ("chosen", "random"):
        medians, tails = [], []
        for seed in range(seeds):
            generator = np.random.default_rng(seed)
            order = (
                measuring_order(widths, points, rows, generator) if name == "chosen" else generator.permutation(total)
            )
            errors = prediction_errors(kernel, order[:rows], widths, points)
            medians.append(float(np.median(errors)))
            tails.append(float(np.quantile(errors, 0.9)))
        spread = f"{min(medians):.2%} to {max(medians):.2%} over {seeds} seeds"
        print(f"  {name}: median error {np.mean(medians):.2%} ({spread}), p90 {np.mean(tails):.2%}")


def unlimited_grid() -> bool:
    """Generate everything into an empty database."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, str(ROOT / "tools/perf_data_collection/generate_shape_grid.py")]
        command += ["--database-path", directory, "--rows", "0", "--max-hbm-gb", "0", "--ops", *REPLAYED_KERNELS]
        started = time.perf_counter()
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    added = next(line for line in printed.splitlines() if "added to" in line)
    print(f"Unlimited grid: {added} {seconds:.1f} s of {SECONDS:.0f} s, {peak:.2f} GiB")
    return seconds < SECONDS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skip-speed", action="store_true", help="only compare the choice of rows")
    parser.add_argument("--seeds", type=int, default=3, help="random choices to average (default: %(default)s)")
    arguments = parser.parse_args()
    fast = arguments.skip_speed or unlimited_grid()
    compare(MATMUL, ROWS, arguments.seeds)
    compare(SWIGLU, 100, arguments.seeds)
    return 0 if fast else 1


if __name__ == "__main__":
    sys.exit(main())
