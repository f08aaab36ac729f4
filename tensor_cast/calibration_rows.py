"""Measured rows of a performance database by kernel class: what the analytic model asks of each, and its seconds."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tensor_cast.devices.profile import KERNEL_CLASSES, DeviceProfile
from tensor_cast.errors import ModelingError
from tensor_cast.ops import Attention, Elementwise, GroupedMatMul, MatMul, Op, Tensor
from tensor_cast.performance_model.analytic import analytic_time
from tensor_cast.performance_model.profiling_database.kernel_table import KERNELS
from tensor_cast.performance_model.profiling_database.kernels_moe import DISPATCH_FFN_COMBINE
from tensor_cast.performance_model.profiling_database.measurements import Measurements, read_measurements
from tensor_cast.performance_model.profiling_database.store import Database
from tensor_cast.performance_model.roofline import cost_variants, kernel_class
from tensor_cast.quantity import Quantity

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
_TILED = (MatMul, GroupedMatMul, Attention)
_SIZES = {kind: [f.name for f in fields(kind) if f.type in ("Quantity", "int")] for kind in _TILED}


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one kernel class and matrix dtype, or of one collective and group, as one op of arrays.

    ``fitted`` marks those that a fit may see.
    """

    op: Op
    seconds: FloatArray
    fitted: BoolArray

    def log_errors(self, device: DeviceProfile) -> FloatArray:
        """Logarithm of predicted over measured time, a row."""
        predicted = np.asarray(analytic_time(self.op, device).total_s, dtype=np.float64)
        return np.log(predicted / self.seconds)


@dataclass(frozen=True)
class RowsByClass:
    """Rows by key of a profile's ``kernels`` (``matmul``, ``matmul_int8``); ``unused`` rows have no known layout."""

    rows: dict[str, list[Rows]]
    unused: int


def read_rows(directory: Path) -> RowsByClass:
    """The rows of a database that costs can be fitted to.

    Rows of a kernel that communicates are left out: their time is not a compute kernel's alone.

    Raises:
        ModelingError: the database cannot be read, no row has a duration, or the layout of none is known.
    """
    database = Database(directory)
    timed = sum(len(database.rows(kernel_type).keys) for kernel_type in database.kernel_types)
    if not timed:
        raise ModelingError(
            f"No row of {directory} has a valid duration: measure the rows, or parse a profile into it."
        )
    parts: dict[tuple[str, str, type[Op]], list[tuple[Op, Measurements]]] = {}
    taken: set[tuple[str, int]] = set()
    for kernel in KERNELS:
        if kernel is DISPATCH_FFN_COMBINE:
            continue
        for table in map(partial(_without, taken=taken), read_measurements(database, kernel, lambda op: 0.0)):
            if not table.lines:
                continue
            taken.update(table.lines)
            op = kernel.op_at(table.layout, table.sizes, table.dtypes)
            kind: type[Op] = type(op) if isinstance(op, _TILED) else Elementwise
            parts.setdefault((_key(op), op.matrix_dtype, kind), []).append((op, table))
    found: dict[str, list[Rows]] = {}
    used = 0
    for (key, _, kind), tables in sorted(parts.items(), key=lambda item: _order(item[0][0])):
        seconds = np.concatenate([table.seconds for _, table in tables])
        fitted = np.concatenate([_fitted(database, table) for _, table in tables])
        op = _joined(kind, [op for op, _ in tables], [len(table.seconds) for _, table in tables])
        found.setdefault(key, []).append(Rows(op, seconds, fitted))
        used += len(seconds)
    if not found:
        raise ModelingError(f"The layout of no row of {directory} is known: `msmodeling perf-db` shows what it holds.")
    return RowsByClass(found, timed - used)


@dataclass(frozen=True)
class BestRates:
    """The best rates that rows reached: lower bounds of a device's peaks. FLOP/s by dtype, FLOP/s, bytes/s, bytes."""

    matrix_flops: dict[str, float]
    vector_flops: float
    memory_bandwidth: float
    largest_kernel_bytes: float


def best_rates(rows: Iterable[Rows]) -> BestRates:
    """What the rows together reached; a rate of 0 where none has such work."""
    matrix: dict[str, float] = {}
    vector = bandwidth = largest = 0.0
    for part in rows:
        if (rate := float(np.max(part.op.matrix_flops / part.seconds))) > 0.0:
            matrix[part.op.matrix_dtype] = max(matrix.get(part.op.matrix_dtype, 0.0), rate)
        vector = max(vector, float(np.max(part.op.vector_flops / part.seconds)))
        bandwidth = max(bandwidth, float(np.max(part.op.bytes / part.seconds)))
        largest = max(largest, float(np.max(part.op.bytes)))
    return BestRates(matrix, vector, bandwidth, largest)


def _key(op: Op) -> str:
    from tensor_cast.devices.schema import Kernels

    kind = kernel_class(op)
    apart = (f"{kind}_{variant}" for variant in cost_variants(op))
    return next((key for key in apart if key in Kernels.__struct_fields__), kind)


def _is_flat(op: Op) -> bool:
    return isinstance(op, Elementwise) and op.flat


def _order(key: str) -> tuple[bool, str]:
    """Classes before their dtypes, which start from what was found for the class."""
    return key not in KERNEL_CLASSES, key


def _without(table: Measurements, taken: set[tuple[str, int]]) -> Measurements:
    """The rows that no kernel before has taken: operands of a square product may be read in two ways."""
    kept = np.array([line not in taken for line in table.lines], dtype=np.bool_)
    return replace(
        table,
        sizes={name: values[kept] for name, values in table.sizes.items()},
        seconds=table.seconds[kept],
        spread=table.spread[kept],
        lines=[line for line in table.lines if line not in taken],
    )


def _fitted(database: Database, table: Measurements) -> BoolArray:
    """Rows whose text has an even CRC-32; attention rows of equal shapes differ in their lengths."""
    names = sorted(table.sizes)
    sizes = np.stack([table.sizes[name] for name in names], axis=1) if names else np.zeros((len(table.lines), 0))
    texts = (
        "|".join((kernel_type, *database.rows(kernel_type).keys[position], *(f"{value:g}" for value in values)))
        for (kernel_type, position), values in zip(table.lines, sizes, strict=True)
    )
    return np.array([zlib.crc32(text.encode()) % 2 == 0 for text in texts], dtype=np.bool_)


def _joined(kind: type[Op], ops: Sequence[Op], counts: Sequence[int]) -> Op:
    """One op that costs at each point what one of the rows of ``ops`` does: the model sees sizes and bytes alone."""

    def column(values: Iterable[Quantity]) -> FloatArray:
        return np.concatenate([np.broadcast_to(value, (count,)) for value, count in zip(values, counts, strict=True)])

    # The first operand's rows count the cores that start; the bytes of all operands are those of the second.
    traffic = column(op.bytes for op in ops)
    starting = column(prod(op.inputs[0].shape[:-1], start=1.0) if op.inputs else 0.0 for op in ops)
    inputs = (Tensor((starting, 0.0), "int8"), Tensor((traffic,), "int8"))
    if kind is Elementwise:
        flops = column(op.vector_flops for op in ops)
        return Elementwise(name="rows", part="", inputs=inputs, outputs=(), flops=flops, flat=_is_flat(ops[0]))
    sizes = {name: column(getattr(op, name) for op in ops) for name in _SIZES[kind]}  # type: ignore[index]
    if kind is Attention:
        sizes["cache_bytes"] = traffic
        return replace(ops[0], inputs=inputs[:1], outputs=(), **sizes)  # type: ignore[arg-type]
    return replace(ops[0], inputs=inputs, outputs=(), **sizes)  # type: ignore[arg-type]
