"""Every generated row that is measured answers for its own sizes, with its own time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensor_cast.devices import get_device
from tensor_cast.performance_model.analytic import analytic_time
from tensor_cast.performance_model.profiling_database.coverage import REPLAYED_KERNELS
from tensor_cast.performance_model.profiling_database.kernel_table import KERNELS
from tensor_cast.performance_model.profiling_database.kernels import Launch
from tensor_cast.performance_model.profiling_database.lookup import Lookup
from tensor_cast.performance_model.profiling_database.schema import REPLAY_DURATION
from tensor_cast.performance_model.profiling_database.store import Database
from tensor_cast.performance_model.profiling_database.table import Table, read_table, table_bytes
from tensor_cast.performance_model.timing import MEASURED
from tools.perf_data_collection.generate_shape_grid import main
from tools.perf_data_collection.op_replay.rows import read_rows

DEVICE = get_device("TEST_DEVICE")
# Products of one size are one kernel, whichever of the three the library launches.
KERNEL_TYPES = sorted({*REPLAYED_KERNELS} - {"MatMulV3", "MatMulCommon"})
MODELS = ("--target-models", "deepseek-ai/DeepSeek-V3.2,Qwen/Qwen3-32B")


@pytest.fixture(params=[(), MODELS], ids=["axes", "models"])
def measured(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A grid in which no two rows took equally long."""
    assert main(["--database-path", str(tmp_path), *request.param, "--rows", "25", "--ops", *KERNEL_TYPES]) == 0
    for path in tmp_path.glob("*.csv"):
        table = read_table(path)
        rows = [[*row, f"{100 + 7 * index}.000000"] for index, row in enumerate(table.rows)]
        path.write_bytes(table_bytes(Table([*table.columns, REPLAY_DURATION], rows)))
    return tmp_path


def test_each_row_is_found(measured: Path) -> None:
    database = Database(measured)
    lookup = Lookup(database, lambda op: analytic_time(op, DEVICE).total_s, interpolate=False)
    found: dict[str, set[int]] = {kernel_type: set() for kernel_type in database.kernel_types}
    for kernel in KERNELS:
        for rows in lookup.measurements(kernel):
            for index, (kernel_type, position) in enumerate(rows.lines):
                sizes = {name: rows.sizes[name][index] for name in kernel.sizes}
                answer = lookup.time(Launch(kernel, sizes, rows.dtypes))
                assert answer.codes == MEASURED, (kernel_type, sizes)
                assert np.isclose(answer.seconds, rows.seconds[index]), (kernel_type, sizes)
                found[kernel_type].add(position)
    for kernel_type, positions in found.items():
        assert positions == set(range(len(database.rows(kernel_type).keys))), kernel_type


def test_outputs_are_those_of_the_recorded_layout(measured: Path) -> None:
    """Replay refuses a row whose output is not what its layout gives."""
    layouts = set()
    for row in read_rows(measured / "FusedInferAttentionScore.csv"):
        layout = row.cells["Runtime input_layout"]
        layouts.add(layout)
        query, output = row.input(0, "query").shape, row.output(0, "attention_out").shape
        assert output[:2] == (query[1::-1] if layout == "BNSD_NBSD" else query[:2])
    assert "TND" in layouts
    assert "BNSD_NBSD" in layouts
