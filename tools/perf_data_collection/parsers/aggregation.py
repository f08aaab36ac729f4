"""From kernel rows to one measured row a kernel type, shapes, dtypes and formats."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from tensor_cast.performance_model.profiling_database.merge import ProfiledRow
from tensor_cast.performance_model.profiling_database.schema import (
    CORE_COLUMN,
    COUNTERS,
    FUSED_ATTENTION,
    KEY_COLUMNS,
    STATE_COLUMN,
    kernel_type_name,
)
from tensor_cast.performance_model.profiling_database.shapes import RowKey, quoted_shapes, row_key
from tensor_cast.performance_model.profiling_database.statistics import MAX_DURATION_US
from tools.perf_data_collection.parsers.kernel_file import DURATION, TYPE

if TYPE_CHECKING:
    import polars as pl

COLLECTIVE = "collectives"
NO_SHAPES = "kernels without shapes (launched raw, or profiled at Level0)"
NO_TYPE = "rows without a kernel type"
SEPARATED = "durations with a thousands separator"
NOT_A_NUMBER = "durations that are not a number"
NOT_POSITIVE = "durations of zero or less"
ABSURD = f"durations above {MAX_DURATION_US / 60e6:.0f} minutes"
NEEDS_LEVEL1 = (NO_SHAPES, NO_TYPE)
SKIP_REASONS = (COLLECTIVE, NO_SHAPES, NO_TYPE, SEPARATED, NOT_A_NUMBER, NOT_POSITIVE, ABSURD)
INVALID_DURATIONS = (SEPARATED, NOT_A_NUMBER, NOT_POSITIVE, ABSURD)

_Raw: TypeAlias = tuple[str, ...]
"""Type and the six key cells as a profile spells them."""


@dataclass
class _Group:
    kernel_type: str
    state: str
    core: str
    cells: tuple[str, ...]


@dataclass
class Aggregation:
    """Kernel rows of any number of frames, grouped; memory grows by 12 bytes a row beside the groups themselves.

    Every duration is kept until the end, because a median needs them all.
    """

    rows_read: int = 0
    rows_used: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    _groups: list[_Group] = field(default_factory=list)
    _number_of_raw: dict[_Raw, int] = field(default_factory=dict)
    _number_of_key: dict[tuple[str, RowKey], int] = field(default_factory=dict)
    _numbers: list[npt.NDArray[np.int32]] = field(default_factory=list)
    _durations: list[npt.NDArray[np.float64]] = field(default_factory=list)
    _counter_sums: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, len(COUNTERS))))
    _counter_counts: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, len(COUNTERS))))

    def add(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Take in the rows of a frame; returns the keys of its attention rows, in order."""
        import polars as pl

        marked = frame.with_columns(_skip_reason().alias("reason"), _duration().alias("us"))
        reasons = marked["reason"].value_counts()
        for reason, count in zip(reasons["reason"], reasons["count"], strict=True):
            if reason is not None:
                self.skipped[reason] += count
        used = marked.filter(pl.col("reason").is_null()).with_columns(pl.col(*KEY_COLUMNS).fill_null(""))
        self.rows_read += frame.height
        self.rows_used += used.height
        if used.height:
            self._take(used)
        return used.filter(pl.col(TYPE).str.strip_chars() == FUSED_ATTENTION).select(KEY_COLUMNS)

    def _take(self, used: pl.DataFrame) -> None:
        import polars as pl

        groups = used.group_by(TYPE, *KEY_COLUMNS, maintain_order=True).agg(
            _first_text(STATE_COLUMN),
            _first_text(CORE_COLUMN),
            pl.col("us"),
            *(pl.col(counter).sum().alias(f"sum {counter}") for counter in COUNTERS),
            *(pl.col(counter).count().alias(f"count {counter}") for counter in COUNTERS),
        )
        raws = groups.select(TYPE, *KEY_COLUMNS, STATE_COLUMN, CORE_COLUMN).iter_rows()
        numbers = np.fromiter((self._number(*raw) for raw in raws), dtype=np.int32, count=groups.height)
        self._numbers.append(np.repeat(numbers, groups["us"].list.len().to_numpy()))
        self._durations.append(groups["us"].explode().to_numpy())
        self._grow()
        sums = groups.select(f"sum {counter}" for counter in COUNTERS).to_numpy()
        counts = groups.select(f"count {counter}" for counter in COUNTERS).to_numpy()
        np.add.at(self._counter_sums, numbers, sums)
        np.add.at(self._counter_counts, numbers, counts)

    def _number(self, reported_type: str, *rest: str) -> int:
        cells, state, core = rest[:-2], rest[-2], rest[-1]
        raw = (reported_type, *cells)
        number = self._number_of_raw.get(raw)
        if number is None:
            kernel_type = kernel_type_name(reported_type)
            number = self._number_of_key.setdefault((kernel_type, row_key(*cells)), len(self._groups))
            self._number_of_raw[raw] = number
            if number == len(self._groups):
                self._groups.append(_Group(kernel_type, "", "", cells))
        group = self._groups[number]
        group.state = group.state or state
        group.core = group.core or core
        return number

    def _grow(self) -> None:
        missing = len(self._groups) - len(self._counter_sums)
        if missing > 0:
            room = np.zeros((missing + len(self._groups) // 2, len(COUNTERS)))
            self._counter_sums = np.concatenate([self._counter_sums, room])
            self._counter_counts = np.concatenate([self._counter_counts, room])

    def measured_rows(self) -> dict[str, list[ProfiledRow]]:
        """The measured rows of each kernel type, both in order of first appearance.

        Mean, median (midpoint of the middle two for an even count) and population standard deviation of the
        durations; the mean of each counter over the rows that have one, 0 when none has.
        """
        import polars as pl

        if not self._groups:
            return {}
        statistics = (
            pl.DataFrame({"number": np.concatenate(self._numbers), "us": np.concatenate(self._durations)})
            .group_by("number")
            .agg(
                pl.col("us").mean().alias("mean"),
                pl.col("us").median().alias("median"),
                pl.col("us").std(ddof=0).alias("std"),
                pl.len().alias("count"),
            )
            .sort("number")
        )
        size = len(self._groups)
        counters = self._counter_sums[:size] / np.maximum(self._counter_counts[:size], 1.0)
        rows: dict[str, list[ProfiledRow]] = {}
        for group, (_, mean, median, std, count), averages in zip(
            self._groups, statistics.iter_rows(), counters.tolist(), strict=True
        ):
            inputs, input_dtypes, input_formats, outputs, output_dtypes, output_formats = group.cells
            base = (
                group.state,
                group.core,
                quoted_shapes(inputs),
                input_dtypes,
                input_formats,
                quoted_shapes(outputs),
                output_dtypes,
                output_formats,
            )
            profile = (*(f"{value:.6f}" for value in (mean, median, std, *averages)), str(count))
            rows.setdefault(group.kernel_type, []).append(ProfiledRow(base, profile))
        return rows


def _first_text(column: str) -> pl.Expr:
    import polars as pl

    text = pl.col(column).str.strip_chars()
    return text.filter(text.is_not_null() & (text != "") & (text != "N/A")).first().fill_null("").alias(column)


def _duration() -> pl.Expr:
    import polars as pl

    return pl.col(DURATION).str.strip_chars().cast(pl.Float64, strict=False)


def _skip_reason() -> pl.Expr:
    """Why a row cannot be used, null when it can; a row counts for the first reason that applies."""
    import polars as pl

    kernel_type = pl.col(TYPE).fill_null("").str.strip_chars()
    core = pl.col(CORE_COLUMN).fill_null("").str.strip_chars()
    is_collective = kernel_type.str.contains(r"(?i)^hcom_|^Hcom[A-Z]") | core.is_in(["COMMUNICATION", "HCCL"])
    duration = _duration()
    return (
        pl.when(is_collective)
        .then(pl.lit(COLLECTIVE))
        .when(_is_missing(KEY_COLUMNS[0]) | _is_missing(KEY_COLUMNS[3]))
        .then(pl.lit(NO_SHAPES))
        .when(kernel_type.str.to_uppercase().is_in(["", "N/A", "NA"]))
        .then(pl.lit(NO_TYPE))
        .when(pl.col(DURATION).str.contains(",", literal=True))
        .then(pl.lit(SEPARATED))
        .when(duration.is_null() | duration.is_nan())
        .then(pl.lit(NOT_A_NUMBER))
        .when(duration <= 0.0)
        .then(pl.lit(NOT_POSITIVE))
        .when(duration > MAX_DURATION_US)
        .then(pl.lit(ABSURD))
        .otherwise(pl.lit(None, dtype=pl.String))
    )


def _is_missing(column: str) -> pl.Expr:
    import polars as pl

    return pl.col(column).fill_null("").str.contains(r'(?i)^[\s"]*n/?a[\s"]*$')
