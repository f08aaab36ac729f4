"""Measured time of kernels where a database has it, the analytic model's elsewhere, and which of them it was."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.errors import ModelingError
from tensor_cast.ops import Collective, Op
from tensor_cast.performance_model.analytic import analytic_time
from tensor_cast.performance_model.collective_times import collective_source
from tensor_cast.performance_model.profiling_database.communication import COMMUNICATION_FILES
from tensor_cast.performance_model.profiling_database.coverage import REPLAYED_KERNELS
from tensor_cast.performance_model.profiling_database.interpolation import FloatArray
from tensor_cast.performance_model.profiling_database.kernel_table import forms
from tensor_cast.performance_model.profiling_database.kernels import Form
from tensor_cast.performance_model.profiling_database.lookup import LaunchTime, Lookup, expected_errors
from tensor_cast.performance_model.profiling_database.paths import DATA_DIRECTORY, newest
from tensor_cast.performance_model.profiling_database.store import Database
from tensor_cast.performance_model.roofline import KernelTime
from tensor_cast.performance_model.timing import ANALYTIC, MEASURED, Codes, Timing


def packaged_database(device: str) -> Path:
    """The database of ``device`` that comes with the package, the newest where there are several.

    Raises:
        ModelingError: there is none.
    """
    folder = DATA_DIRECTORY / device / "vllm_ascend"
    directory = newest(path for path in folder.glob("*") if path.is_dir())
    if directory is None:
        known = sorted(path.parents[1].name for path in DATA_DIRECTORY.glob("*/vllm_ascend/*/"))
        raise ModelingError(
            f"No measured times of {device} come with the package (they do for {', '.join(dict.fromkeys(known))}): "
            "give a database of your own (--profiling-database-path), or use the analytic model."
        )
    return directory


class EmpiricalTimer:
    """Times ops on ``device`` from the database in ``directory``; ``None``: the one that comes with the package.

    Without ``interpolate`` only rows of exactly the same sizes count as measured.

    Raises:
        ModelingError: the directory holds no database.
    """

    def __init__(self, device: DeviceProfile, directory: Path | None = None, *, interpolate: bool = True) -> None:
        directory = directory or packaged_database(device.name)
        self.device = device
        self.directory = directory
        self._lookup = Lookup(Database(directory), lambda op: analytic_time(op, device).total_s, interpolate)
        self._collectives = collective_source(device, directory)
        self._interpolate = interpolate

    def __call__(self, op: Op) -> Timing:
        """Time of one launch of ``op``."""
        if isinstance(op, Collective):
            return self._collective(op)
        analytic = analytic_time(op, self.device)
        ways = forms(op)
        shape = np.shape(analytic.total_s)
        answer = _best([_in_sequence([self._lookup.time(launch) for launch in form]) for form in ways], shape)
        codes = np.broadcast_to(answer.codes, np.broadcast_shapes(answer.codes.shape, shape))
        seconds = np.where(codes == ANALYTIC, analytic.total_s, answer.seconds)
        error = np.broadcast_to(answer.error, codes.shape)
        return Timing(_scaled(analytic, seconds), codes, error, _kernel_types(ways))

    def _collective(self, op: Collective) -> Timing:
        """By bytes, group and tier; a fit of other sizes and groups counts as extrapolation."""
        files = (Path(COMMUNICATION_FILES[op.kind]).stem,) if op.kind in COMMUNICATION_FILES else ()
        analytic = analytic_time(op, self.device)
        if self._collectives is None:
            return Timing(analytic, kernel_types=files)
        known = self._collectives.time(op)
        codes = np.asarray(known.codes)
        if not self._interpolate:
            codes = np.where(codes == MEASURED, MEASURED, ANALYTIC)
        seconds = np.where(codes == ANALYTIC, analytic.total_s, known.time.total_s)
        return Timing(_scaled(analytic, seconds), codes, expected_errors(codes), files)


def _in_sequence(parts: Sequence[LaunchTime]) -> LaunchTime:
    """Kernels one after another: as well known as the least known of them; errors of the parts are taken as adding."""
    seconds: FloatArray = sum((part.seconds for part in parts), start=np.zeros(()))
    codes: Codes = parts[0].codes
    for part in parts[1:]:
        codes = np.maximum(codes, part.codes)
    known = codes != ANALYTIC
    errors: FloatArray = sum((part.seconds * part.error for part in parts), start=np.zeros(()))
    return LaunchTime(seconds, codes, np.where(known, errors / np.where(known, seconds, 1.0), expected_errors(codes)))


def _best(ways: Iterable[LaunchTime], shape: tuple[int, ...]) -> LaunchTime:
    unknown = np.full(shape, ANALYTIC)
    best = LaunchTime(np.full(shape, np.nan), unknown, expected_errors(unknown))
    for way in ways:
        best = best.better(way)
    return best


def _scaled(time: KernelTime, seconds: FloatArray) -> KernelTime:
    """The analytic parts in proportion, so that they make ``seconds``: what a measured kernel is bound by stays a guess
    of the model.
    """
    ratio = seconds / time.total_s
    parts = {part.name: getattr(time, part.name) * ratio for part in fields(time) if part.name.endswith("_s")}
    return replace(time, **parts)


def _kernel_types(ways: Sequence[Form]) -> tuple[str, ...]:
    """Kernels to measure for an op: those of the likeliest form that replay can run, else of the likeliest form."""
    if not ways:
        return ()
    replayed = (form for form in ways if all(launch.kernel.name in REPLAYED_KERNELS for launch in form))
    return tuple(dict.fromkeys(launch.kernel.name for launch in next(replayed, ways[0])))
