"""Writing measured runs as msprof would: ``PROF_*/mindstudio_profiler_output/op_summary_*.csv``."""

from __future__ import annotations

import contextlib
import csv
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from tensor_cast.performance_model.profiling_database.atomic import write_failure
from tensor_cast.performance_model.profiling_database.schema import COUNTERS, KEY_COLUMNS
from tensor_cast.performance_model.profiling_database.shapes import quoted_shapes
from tools.perf_data_collection.op_replay.rows import ReplayRow

OUTPUT_DIRECTORY = "mindstudio_profiler_output"
_HEADER = (
    *("Device_id", "Model ID", "Task ID", "Stream ID", "Op Name", "OP Type", "OP State", "Task Type"),
    *("Task Start Time(us)", "Task Duration(us)", "Task Wait Time(us)", "Block Num", "Mix Block Num"),
    *("HF32 Eligible", *KEY_COLUMNS, "Context ID", *COUNTERS),
)
_NO_MODEL = "4294967295"


class OpSummaryWriter:
    """One process's file; it is created with the first row and each row is on disk before the next one runs."""

    def __init__(self, output: Path, rank: int = 0) -> None:
        self._output = output
        self._rank = rank
        self._stream: TextIO | None = None
        self._tasks = 0

    def add(self, row: ReplayRow, core: str, durations_us: Iterable[float]) -> None:
        """Append the runs of a row; operands are written as the row spells them.

        Raises:
            ModelingError: the file cannot be written.
        """
        try:
            self._append(row, core, durations_us)
        except OSError as error:
            raise write_failure(self._output, error) from None

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._stream is not None:
            # What it still held back was refused by `add` already, and said.
            with contextlib.suppress(OSError):
                self._stream.close()

    def _append(self, row: ReplayRow, core: str, durations_us: Iterable[float]) -> None:
        stream = self._stream or self._open()
        writer = csv.writer(stream, lineterminator="\n")
        cells = [row.cells.get(name, "") for name in KEY_COLUMNS]
        cells[0], cells[3] = quoted_shapes(cells[0]), quoted_shapes(cells[3])
        for duration in durations_us:
            self._tasks += 1
            start = f"{time.time_ns() / 1e3:.3f}\t"
            task = (self._rank, _NO_MODEL, self._tasks, 0, f"replay_{row.kernel_type}_{row.line}", row.kernel_type)
            timing = ("static", core, start, f"{duration:.3f}", "0.000", "N/A", "N/A", "NO")
            writer.writerow([*task, *timing, *cells, "N/A", *["N/A"] * len(COUNTERS)])
        stream.flush()

    def _open(self) -> TextIO:
        stamp = time.strftime("%Y%m%d%H%M%S")
        directory = self._output / f"PROF_{self._rank:06d}_{stamp}_{os.getpid():x}{time.time_ns():x}" / OUTPUT_DIRECTORY
        directory.mkdir(parents=True)
        stream = (directory / f"op_summary_{stamp}.csv").open("w", encoding="utf-8", newline="")
        csv.writer(stream, lineterminator="\n").writerow(_HEADER)
        self._stream = stream
        return stream
