"""The databases that come with the package."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from tensor_cast.devices import get_device
from tensor_cast.performance_model.analytic import analytic_time
from tensor_cast.performance_model.error import SOURCE_BANDS
from tensor_cast.performance_model.profiling_database.accuracy import accuracy
from tensor_cast.performance_model.profiling_database.paths import (
    DATA_DIRECTORY,
    DEFAULT_DEVICE,
    communication_directories,
    database_directory,
)
from tensor_cast.performance_model.profiling_database.shapes import row_key
from tensor_cast.performance_model.profiling_database.store import Database
from tensor_cast.performance_model.profiling_database.validation import validate
from tensor_cast.performance_model.timing import SOURCES

A3 = database_directory(DEFAULT_DEVICE, "0.15.0", "2.9.0", "8.5")
DIRECTORIES = sorted({path.parent for path in DATA_DIRECTORY.rglob("*.csv")})


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: "/".join(path.parts[-3:]))
def test_every_directory_keeps_the_format_and_names_its_source(directory: object) -> None:
    assert validate(directory) == []  # type: ignore[arg-type]
    assert (directory / "README.md").is_file()  # type: ignore[operator]


def test_a3_has_the_published_figures() -> None:
    assert A3 in DIRECTORIES
    database = Database(A3)
    kernels = {name: database.rows(name) for name in database.kernel_types}
    assert sum(len(rows.keys) for rows in kernels.values()) == 218
    # DeepSeek-V3's router in eager mode: mean of 3770 launches as published.
    router = row_key("1,7168;256,7168", "DT_BF16;DT_BF16", "ND;ND", "1,256", "DT_BF16", "ND")
    matmul = kernels["MatMulV2"]
    assert matmul.duration_us[matmul.index[router]] == 11.1071
    # Qwen3-32B's gate and up projection at TP16: N = 16 x 200 of the NZ weight.
    gate_up = row_key("16,5120;320,200,16,16", "DT_BF16;DT_BF16", "ND;FRACTAL_NZ", "16,3200", "DT_BF16", "ND")
    assert matmul.duration_us[matmul.index[gate_up]] == 31.3731
    assert not any(rows.replayed.any() for rows in kernels.values())


def test_a3_matrix_products_stay_below_the_peak() -> None:
    # Ascend 910C, one die: 376 dense BF16 TFLOP/s, 752 INT8 TOP/s.
    for kernel, peak in (("MatMulV2", 376e12), ("MatMulV3", 376e12), ("QuantBatchMatmulV3", 752e12)):
        rows = Database(A3).rows(kernel)
        for key, duration in zip(rows.keys, rows.duration_us, strict=True):
            (m, k), (_, n) = (tuple(map(int, shape.split(",")[:2])) for shape in (key[0].split(";")[0], key[3]))
            assert 2.0 * m * n * k / (duration * 1e-6) < peak, key


def test_bands_are_those_of_rows_left_out() -> None:
    device = get_device(DEFAULT_DEVICE)
    ratios: dict[str, list[float]] = {}
    for kernel in accuracy(A3, lambda op: analytic_time(op, device).total_s, samples=0):
        for row in kernel.rows:
            if row.predicted_us is not None:
                ratios.setdefault(row.source, []).append(row.measured_us / row.predicted_us - 1.0)
    for source, band in zip(SOURCES[1:], SOURCE_BANDS[1:], strict=False):
        assert np.quantile(ratios[source], [0.1, 0.9]) == pytest.approx(band, abs=0.02), source


def test_a3_collectives_lie_beside_and_add_up() -> None:
    (directory,) = communication_directories(A3)
    for path in directory.glob("hcom_*.csv"):
        with path.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                bandwidth = float(row["message_bytes"]) / float(row["Duration(us)"]) * 1e6 / 1e9
                assert float(row["bandwidth_gbps"]) == pytest.approx(bandwidth, abs=0.005)
