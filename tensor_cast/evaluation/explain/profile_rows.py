"""Kernels of a profiler's CSV with their times, whatever generation its header is of."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path

from tensor_cast.errors import ModelingError
from tensor_cast.evaluation.explain.kernel_families import family
from tensor_cast.evaluation.kernel_rows import Shape
from tensor_cast.ops import Category

_NAMES = {
    "Op Name": "Name",
    "OP Type": "Type",
    "Task Type": "Accelerator Core",
    "Task Start Time(us)": "Start Time(us)",
    "Task Duration(us)": "Duration(us)",
    "Step ID": "Step Id",
    "Device_id": "Device",
}
_REQUIRED = ("Name", "Start Time(us)", "Duration(us)")
_MISSING = frozenset({"", "N/A", "NA"})
_TENSOR = re.compile(r"\d+(,\d+)*")
_AIV_COPY = "aivkernel"


@dataclass(frozen=True)
class MeasuredKernel:
    """One launch. ``start_us`` counts from the profile's first kernel; ``step`` is empty outside of steps."""

    name: str
    type: str
    family: str
    category: Category
    start_us: float
    duration_us: float
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    step: str
    rank: str

    @property
    def end_us(self) -> float:
        """When it ends."""
        return self.start_us + self.duration_us


@dataclass(frozen=True)
class Profile:
    """Kernels in order of start, and how many lines were left out because they do not fit their header."""

    kernels: list[MeasuredKernel]
    malformed: int


def read_profile(paths: list[Path]) -> Profile:
    """Every kernel of all files; a file's rank is its ``Device_id``, or else the file.

    A collective that ran on vector cores stands twice in a profile, as the collective and as its device task; the task
    is left out.

    Raises:
        ModelingError: a file is no profile of kernels, or none of its rows can be read.
    """
    every = [(path, row) for path in paths for row in _rows(path)]
    rows = [(path, row) for path, row in every if row is not None]
    starts = [_start(path, row) for path, row in rows]
    first = min(starts, default=Decimal(0))
    several = len(paths) > 1
    kernels = [
        _kernel(path, row, float(start - first), several) for (path, row), start in zip(rows, starts, strict=True)
    ]
    if not kernels:
        raise ModelingError(f"No kernel is in {', '.join(str(path) for path in paths)}.")
    collectives = {(kernel.start_us, kernel.duration_us) for kernel in kernels if kernel.type.startswith("hcom_")}
    kept = [
        kernel
        for kernel in kernels
        if not (_AIV_COPY in kernel.name.lower() and (kernel.start_us, kernel.duration_us) in collectives)
    ]
    return Profile(sorted(kept, key=lambda kernel: kernel.start_us), len(every) - len(rows))


def profile_paths(path: Path) -> list[Path]:
    """The kernel tables under ``path``: a file as it is, of a directory every kernel_details, or else op_summary.

    Raises:
        ModelingError: there are none.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ModelingError(f"The profile {path} does not exist.")
    tables = sorted(file for file in path.rglob("*.csv") if file.is_file())
    details = [file for file in tables if "kernel_details" in file.stem.lower()]
    summaries = [file for file in tables if file.stem.lower().startswith("op_summary")]
    if not details and not summaries:
        raise ModelingError(
            f"{path} holds no kernel_details*.csv or op_summary_*.csv: give the directory that the profiler wrote, "
            "after its analysis has finished."
        )
    # torch_npu's kernel_details is a copy of the op_summary of the same run.
    return details or summaries


def _rows(path: Path) -> Iterator[dict[str, str] | None]:
    """Rows by the names of today's header; None for a line with fewer cells, such as a last one that was cut off."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            header = [_NAMES.get(name.strip(), name.strip()) for name in next(reader, [])]
            missing = [name for name in _REQUIRED if name not in header]
            if missing:
                raise ModelingError(
                    f"{path} is not a profile of kernels: it has no column {', '.join(missing)}; give a "
                    "kernel_details.csv or an op_summary_*.csv."
                )
            for cells in reader:
                if cells:
                    yield dict(zip(header, cells, strict=False)) if len(cells) >= len(header) else None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ModelingError(f"Cannot read {path} as a profile: {error}.", exit_status=1) from None


def _start(path: Path, row: Mapping[str, str]) -> Decimal:
    """Microseconds since 1970 to the nanosecond: more digits than a float keeps."""
    text = row["Start Time(us)"].strip()
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ModelingError(f"{path}: Start Time(us) of {row['Name']} is {text!r}, not a number.") from None


def _kernel(path: Path, row: Mapping[str, str], start_us: float, several: bool) -> MeasuredKernel:
    kind = row.get("Type", "").strip()
    core = row.get("Accelerator Core", "").strip()
    name = row["Name"].strip()
    if kind.upper() in _MISSING or kind.isdigit():
        kind = _type_in_name(name)
    known, category = family(kind, core)
    try:
        duration_us = float(row["Duration(us)"])
    except ValueError:
        raise ModelingError(f"{path}: Duration(us) of {name} is {row['Duration(us)']!r}, not a number.") from None
    step = row.get("Step Id", "").strip()
    device = row.get("Device", "").strip()
    return MeasuredKernel(
        name=name,
        type=kind,
        family=known,
        category=category,
        start_us=start_us,
        duration_us=duration_us,
        inputs=_shapes(row.get("Input Shapes", "")),
        outputs=_shapes(row.get("Output Shapes", "")),
        step="" if step.upper() in _MISSING else step,
        rank=f"{path}: device {device}" if several else f"device {device}" if device else "the device",
    )


def _type_in_name(name: str) -> str:
    """``aclnnMatmul_MatMulV3Common_MatMulV3`` -> ``MatMulV3``: a profile of the lowest level has no types."""
    pieces = [piece for piece in name.split("_") if piece and not piece.isdigit()]
    return pieces[-1] if pieces else name


@cache
def _shapes(cell: str) -> tuple[Shape, ...]:
    """Shapes of a cell; scalars and absent operands are ``()``, at the end they are left out."""
    bare = cell.strip().strip('"').replace(" ", "")
    if bare.upper() in _MISSING:
        return ()
    shapes = [tuple(map(int, entry.split(","))) if _TENSOR.fullmatch(entry) else () for entry in bare.split(";")]
    while shapes and not shapes[-1]:
        shapes.pop()
    return tuple(shapes)
