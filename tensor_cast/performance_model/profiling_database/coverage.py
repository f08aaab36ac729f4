"""What a database directory has: rows by where their time comes from, duplicates, suspicious rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tensor_cast.performance_model.profiling_database.schema import (
    FUSED_ATTENTION,
    PROFILE_COUNT,
    PROFILE_DURATION,
    PROFILE_MEDIAN,
    PROFILE_STD,
    REPLAY_DURATION,
    RUNTIME_LENGTHS,
    is_communication_file,
)
from tensor_cast.performance_model.profiling_database.shapes import RowKey, key_of
from tensor_cast.performance_model.profiling_database.statistics import RowState, duration_us, latency_us, row_state
from tensor_cast.performance_model.profiling_database.store import database_files
from tensor_cast.performance_model.profiling_database.table import read_table

REPLAYED_KERNELS = (
    "Add",
    "AddRmsNormBias",
    "ArgMaxV2",
    "AscendQuantV2",
    "BatchMatMulV2",
    "DispatchFFNCombine",
    "DynamicQuant",
    "FusedInferAttentionScore",
    "GatherV2",
    "GroupedMatmul",
    "GroupedMatmulSwigluQuant",
    "Index",
    "InterleaveRope",
    "KvRmsNormRopeCache",
    "LightningIndexer",
    "MaskedFill",
    "MatMulCommon",
    "MatMulV2",
    "MatMulV3",
    "MoeTokenPermute",
    "MoeTokenUnpermute",
    "PadV3",
    "QuantBatchMatmulV3",
    "RINGMLAPrefillBF16Kernel",
    "ReshapeAndCacheNdKernel",
    "RmsNorm",
    "ScatterNdUpdate",
    "Slice",
    "SoftmaxV2",
    "Sort",
    "SparseFlashAttention",
    "SwiGlu",
    "TensorMove",
    "Transpose",
    "TransposeBatchMatMul",
    "split_qkv_rmsnorm_rope_kernel",
)
"""Kernels that the replay tools can measure again."""

LARGE_GAP = 2.0
"""A replay and a profile of one row that differ by more than this factor are worth a look."""
UNSTEADY = 1.0
"""A standard deviation above this share of the mean comes from a tail: waiting, a first call, a clock."""


@dataclass(frozen=True)
class Outlier:
    """A row whose numbers do not fit together."""

    kernel_type: str
    line: int
    shapes: str
    reason: str


@dataclass(frozen=True)
class KernelCoverage:
    """Counts of one kernel type's file; ``invocations`` are profiled kernel launches behind its rows."""

    kernel_type: str
    states: Mapping[RowState, int]
    duplicates: int
    invocations: int
    outliers: tuple[Outlier, ...]

    @property
    def rows(self) -> int:
        """All rows of the file."""
        return sum(self.states.values())

    @property
    def timed(self) -> int:
        """Rows with a duration."""
        return self.rows - self.states["empty"]


@dataclass(frozen=True)
class Coverage:
    """Counts of a database directory; ``collectives`` are the timed rows of each ``hcom_*.csv`` in it."""

    directory: Path
    kernels: tuple[KernelCoverage, ...]
    collectives: Mapping[str, int]

    @property
    def missing_kernels(self) -> tuple[str, ...]:
        """Kernels that can be replayed and have no file."""
        present = {kernel.kernel_type for kernel in self.kernels}
        return tuple(name for name in REPLAYED_KERNELS if name not in present)

    def total(self, state: RowState) -> int:
        """Rows in a state over all files."""
        return sum(kernel.states[state] for kernel in self.kernels)


def coverage(directory: Path) -> Coverage:
    """Count the rows of every file of a database directory.

    Raises:
        ModelingError: the directory or a file cannot be read.
    """
    files = database_files(directory)
    return Coverage(
        directory,
        tuple(_kernel_coverage(name, path) for name, path in files.items() if not is_communication_file(name)),
        {name: _timed_rows(path) for name, path in files.items() if is_communication_file(name)},
    )


def row_identity(kernel_type: str, cells: Mapping[str, str]) -> tuple[RowKey, tuple[str, ...]]:
    """What no two rows of a file may share: the key, and of attention rows the lengths."""
    lengths = RUNTIME_LENGTHS if kernel_type == FUSED_ATTENTION else ()
    extra = (*lengths, "EP Size") if kernel_type == "DispatchFFNCombine" else lengths
    return key_of(cells), tuple(cells.get(name, "").strip() for name in extra)


def _timed_rows(path: Path) -> int:
    table = read_table(path)
    return sum(latency_us(table.cells(row)) is not None for row in table.rows)


def _kernel_coverage(kernel_type: str, path: Path) -> KernelCoverage:
    table = read_table(path)
    states: Counter[RowState] = Counter()
    identities = set()
    outliers: list[Outlier] = []
    invocations = 0
    for line, row in enumerate(table.rows, start=2):
        cells = table.cells(row)
        states[row_state(cells)] += 1
        identities.add(row_identity(kernel_type, cells))
        count = cells.get(PROFILE_COUNT, "")
        invocations += int(count) if count.isdecimal() else 0
        outliers += (Outlier(kernel_type, line, cells.get("Input Shapes", ""), reason) for reason in _suspicions(cells))
    return KernelCoverage(kernel_type, states, len(table.rows) - len(identities), invocations, tuple(outliers))


def _suspicions(cells: Mapping[str, str]) -> Iterable[str]:
    replay, mean, median, std = (
        duration_us(cells.get(column, ""))
        for column in (REPLAY_DURATION, PROFILE_DURATION, PROFILE_MEDIAN, PROFILE_STD)
    )
    if mean and std and std > UNSTEADY * mean:
        yield f"the profile's deviation {std:g} us exceeds its mean {mean:g} us"
    if mean and median and not median / LARGE_GAP <= mean <= median * LARGE_GAP:
        yield f"the profile's mean {mean:g} us is far from its median {median:g} us"
    if replay and mean and not mean / LARGE_GAP <= replay <= mean * LARGE_GAP:
        yield f"the replay's {replay:g} us is far from the profile's {mean:g} us"
