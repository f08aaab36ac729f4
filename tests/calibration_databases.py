"""Performance databases whose durations are the analytic model's own, of a device of known constants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tensor_cast.devices import DeviceProfile
from tensor_cast.performance_model.analytic import analytic_time
from tensor_cast.performance_model.profiling_database.kernel_table import KERNELS
from tensor_cast.performance_model.profiling_database.measurements import read_measurements
from tensor_cast.performance_model.profiling_database.schema import BASE_COLUMNS, PROFILE_DURATION
from tensor_cast.performance_model.profiling_database.store import Database
from tensor_cast.performance_model.profiling_database.table import Table, table_bytes

Operand = tuple[tuple[int, ...], str] | None
TOKENS = (1, 3, 8, 16, 40, 64, 128, 300, 512, 1024, 2048, 4096)
BF16 = "DT_BF16"


def write_database(directory: Path, device: DeviceProfile) -> Path:
    """Rows of products in two dtypes, vector kernels and prefill attention, timed by the model of ``device``."""
    directory.mkdir(exist_ok=True)
    widths = ((1024, 1024), (4096, 1024), (1024, 4096), (8192, 7168))
    products = [([((m, k), BF16), ((n, k), BF16)], [((m, n), BF16)]) for k, n in widths for m in TOKENS]
    quantised = [
        ([((m, k), "INT8"), ((n, k), "INT8"), ((n,), "FLOAT"), ((m,), "FLOAT")], [((m, n), BF16)])
        for k, n in widths
        for m in TOKENS
    ]
    gated = [([((m, 2 * n), BF16)], [((m, n), BF16)]) for n in (1024, 3072, 8192) for m in TOKENS]
    added = [([((m, n), BF16), ((m, n), BF16)], [((m, n), BF16)]) for n in (1024, 5120) for m in TOKENS]
    joined = [([((m, n), BF16), ((m, n), BF16)], [((m, 2 * n), BF16)]) for n in (1024, 5120) for m in TOKENS]
    prompts = [_prompt(tokens, heads) for heads in (8, 16, 32) for tokens in range(128, 4097, 331)]
    for kernel, rows in (
        ("MatMulV2", products),
        ("QuantBatchMatmulV3", quantised),
        ("SwiGlu", gated),
        ("Add", added),
        ("ConcatD", joined),
        ("FusedInferAttentionScore", prompts),
    ):
        write_kernel(directory, kernel, rows)
    time_rows(directory, device)
    return directory


def write_kernel(
    directory: Path, kernel: str, rows: Sequence[tuple[Sequence[Operand], Sequence[Operand]]], duration: str = "1"
) -> None:
    """A kernel's file, every row with the same duration in microseconds."""
    directory.mkdir(exist_ok=True)
    lines = [["dynamic", "", *_side(inputs), *_side(outputs), duration] for inputs, outputs in rows]
    content = table_bytes(Table([*BASE_COLUMNS, PROFILE_DURATION], lines))
    (directory / f"{kernel}.csv").write_bytes(content)


def time_rows(directory: Path, device: DeviceProfile) -> None:
    """Replace every duration by the analytic model's."""
    database = Database(directory)
    tables = {kernel_type: database.table(kernel_type) for kernel_type in database.kernel_types}
    for kernel in KERNELS:
        for rows in read_measurements(database, kernel, lambda op: analytic_time(op, device).total_s):
            seconds = rows.analytic(kernel.op_at(rows.layout, rows.sizes, rows.dtypes))
            for (kernel_type, position), value in zip(rows.lines, seconds, strict=True):
                tables[kernel_type].rows[position][-1] = repr(float(value) * 1e6)
    for kernel_type, table in tables.items():
        (directory / f"{kernel_type}.csv").write_bytes(table_bytes(table))


def _prompt(tokens: int, heads: int) -> tuple[list[Operand], list[Operand]]:
    operands: list[Operand] = [None] * 31
    operands[:3] = [((tokens, heads, 128), BF16), ((tokens, 8, 128), BF16), ((tokens, 8, 128), BF16)]
    operands[4:7] = [((2048, 2048), "INT8"), ((1,), "INT64"), ((1,), "INT64")]
    return operands, [((tokens, heads, 128), BF16)]


def _side(operands: Sequence[Operand]) -> tuple[str, str, str]:
    shapes = ";".join("" if operand is None else ",".join(map(str, operand[0])) for operand in operands)
    dtypes = ";".join("DT_UNDEFINED" if operand is None else operand[1] for operand in operands)
    formats = ";".join("NULL" if operand is None else "ND" for operand in operands)
    return f'"{shapes}"', dtypes, formats
