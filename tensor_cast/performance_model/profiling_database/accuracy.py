"""How well rows of a database predict each other: each row in turn from all others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tensor_cast.performance_model.profiling_database.kernel_table import KERNELS
from tensor_cast.performance_model.profiling_database.kernels import Kernel, Launch
from tensor_cast.performance_model.profiling_database.lookup import predict
from tensor_cast.performance_model.profiling_database.measurements import (
    Measurements,
    SecondsOf,
    read_measurements,
)
from tensor_cast.performance_model.profiling_database.store import Database
from tensor_cast.performance_model.timing import SOURCES, Source

DEFAULT_SAMPLES = 200
"""Rows of a kernel that are left out in turn; of larger files evenly spread ones."""


@dataclass(frozen=True)
class LeftOut:
    """A row predicted from all others; ``predicted_us`` is ``None`` where no other row reaches it."""

    kernel_type: str
    shapes: str
    measured_us: float
    predicted_us: float | None
    analytic_us: float
    source: Source

    @property
    def error(self) -> float:
        """Relative error of the prediction, of the analytic model where there is none."""
        predicted = self.analytic_us if self.predicted_us is None else self.predicted_us
        return abs(predicted / self.measured_us - 1.0)

    @property
    def analytic_error(self) -> float:
        """Relative error of the analytic model."""
        return abs(self.analytic_us / self.measured_us - 1.0)


@dataclass(frozen=True)
class KernelAccuracy:
    """Rows of one kernel type that were left out in turn, and rows whose layout is not understood."""

    kernel_type: str
    rows: tuple[LeftOut, ...]
    unknown: int

    def of(self, *wanted: Source) -> list[LeftOut]:
        """Rows predicted from these sources."""
        return [row for row in self.rows if row.source in wanted]


def accuracy(directory: Path, analytic: SecondsOf, *, samples: int = DEFAULT_SAMPLES) -> list[KernelAccuracy]:
    """Leave-one-out predictions of each kernel type of a database, sorted by type.

    Args:
        directory: the database.
        analytic: seconds of an op by the analytic model of the device that was measured.
        samples: at most so many rows a kernel are left out; 0: all of them.

    Raises:
        ModelingError: the directory or a file in it cannot be read.
    """
    database = Database(directory)
    found: dict[str, list[LeftOut]] = {kernel_type: [] for kernel_type in database.kernel_types}
    understood: dict[str, set[int]] = {kernel_type: set() for kernel_type in database.kernel_types}
    for kernel in KERNELS:
        tables = read_measurements(database, kernel, analytic)
        for table in tables:
            for kernel_type, position in table.lines:
                understood[kernel_type].add(position)
            for row in _left_out(kernel, table, database, samples):
                found[row.kernel_type].append(row)
    return [
        KernelAccuracy(kernel_type, tuple(rows), len(database.rows(kernel_type).index) - len(understood[kernel_type]))
        for kernel_type, rows in found.items()
    ]


def quantile(errors: list[float], share: float) -> float:
    """A quantile of relative errors, NaN of none."""
    return float(np.quantile(errors, share)) if errors else float("nan")


def _left_out(kernel: Kernel, table: Measurements, database: Database, samples: int) -> Iterator[LeftOut]:
    """Rows of one layout are predicted from that layout alone: another format is another kernel."""
    count = len(table.seconds)
    chosen = range(count) if not 0 < samples < count else np.linspace(0, count - 1, samples).astype(int).tolist()
    for row in chosen:
        sizes = {name: values[row : row + 1] for name, values in table.sizes.items()}
        launch = Launch(kernel, sizes, table.dtypes)
        answer = predict(launch, [table.without(row)] if count > 1 else [])
        kernel_type, position = table.lines[row]
        source = SOURCES[int(answer.codes[0])]
        measured = float(table.seconds[row])
        yield LeftOut(
            kernel_type=kernel_type,
            shapes=database.rows(kernel_type).keys[position][0],
            measured_us=measured * 1e6,
            predicted_us=None if source == "analytic" else float(answer.seconds[0]) * 1e6,
            analytic_us=measured / float(np.exp(table.logarithms[row])) * 1e6,
            source=source,
        )
