"""A kernel's time, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.ops import Op
from tensor_cast.performance_model.analytic import analytic_time
from tensor_cast.performance_model.roofline import KernelTime
from tensor_cast.quantity import Quantity

Source: TypeAlias = Literal["measured", "interpolated", "extrapolated", "analytic"]
SOURCES: tuple[Source, ...] = ("measured", "interpolated", "extrapolated", "analytic")
"""Where a time comes from, the best first; the position is the code in ``Timing.codes``."""
MEASURED, INTERPOLATED, EXTRAPOLATED, ANALYTIC = (np.int8(code) for code in range(len(SOURCES)))
Codes: TypeAlias = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Timing:
    """Time of one launch of an op.

    ``codes`` say where each point's time comes from, as positions in ``SOURCES``. ``expected_error`` is relative, NaN
    where nothing is known of it; in four cases of five the true time lies between ``error_low`` and ``error_high``,
    relative to it (``tensor_cast.performance_model.error``). ``kernel_types`` are the device's kernels for the op, as
    databases name them.
    """

    time: KernelTime
    codes: Codes | np.int8 = ANALYTIC
    expected_error: Quantity = float("nan")
    kernel_types: tuple[str, ...] = ()
    error_low: Quantity = float("nan")
    error_high: Quantity = float("nan")

    @property
    def source(self) -> str:
        """Where the points' times come from, the best source first."""
        return source_names(self.codes)


def source_names(codes: Codes | np.int8) -> str:
    """The different sources of ``codes``, the best first."""
    return " + ".join(name for code, name in enumerate(SOURCES) if np.any(np.equal(codes, code)))


Timer: TypeAlias = Callable[[Op], Timing]
"""A performance model: the time of one launch of any op on one device."""


def analytic_timer(device: DeviceProfile) -> Timer:
    """The analytic model of ``device``."""
    return lambda op: Timing(analytic_time(op, device))
