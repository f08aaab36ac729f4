"""Measured collectives: ``hcom_*.csv``, one file an operation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.schema import LATENCY_COLUMNS, misspelling_hint
from tensor_cast.performance_model.profiling_database.statistics import latency_us
from tensor_cast.performance_model.profiling_database.table import read_table

COMMUNICATION_FILES = {
    "all_reduce": "hcom_allReduce_.csv",
    "all_gather": "hcom_allGather_.csv",
    "reduce_scatter": "hcom_reduceScatter_.csv",
    "all_to_all": "hcom_alltoallv_.csv",
}
"""File of each operation in a directory of collectives."""

_REQUIRED = ("message_bytes", "num_devices")


@dataclass(frozen=True)
class CollectiveRows:
    """Measured times of one operation; rows without a valid duration are left out.

    ``message_bytes`` is the tensor of an all-reduce, the input of one rank of an all-gather, the output of one rank of
    a reduce-scatter, the whole buffer of one rank of an all-to-all. ``topology_tier`` is the outermost level of the
    interconnect that the group spans, counted from 0, NaN where the file does not say.
    """

    message_bytes: npt.NDArray[np.float64]
    num_devices: npt.NDArray[np.float64]
    topology_tier: npt.NDArray[np.float64]
    duration_us: npt.NDArray[np.float64]


def read_collectives(path: Path) -> CollectiveRows:
    """The measured rows of one operation.

    Raises:
        ModelingError: the file cannot be read, a column is missing, or a size or tier is not a whole number.
    """
    table = read_table(path)
    for name in _REQUIRED:
        if name not in table.columns:
            raise ModelingError(f"{path} has no column {name!r}{misspelling_hint(name, table.columns)}.")
    if not any(name in table.columns for name in LATENCY_COLUMNS):
        raise ModelingError(f"{path} has none of the columns {', '.join(map(repr, LATENCY_COLUMNS))}.")
    rows: list[tuple[float, float, float, float]] = []
    for line, row in enumerate(table.rows, start=2):
        cells = table.cells(row)
        duration = latency_us(cells)
        if duration is None:
            continue
        size, devices = (_whole_number(cells[name], f"{path}, line {line}: {name}") for name in _REQUIRED)
        tier = cells.get("topology_tier", "").strip()
        place = _whole_number(tier, f"{path}, line {line}: topology_tier") if tier else math.nan
        rows.append((size, devices, place, duration))
    columns = np.array(rows, dtype=np.float64).reshape(len(rows), 4).T
    return CollectiveRows(*columns)


def _whole_number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value.is_integer() or value < 0.0:
        raise ModelingError(f"{where} is {text!r}, not a whole number: correct the line or take it out.")
    return value
