"""How well collectives are predicted that were left out of the fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.performance_model.collective_measurements import FloatArray, TierRows
from tensor_cast.performance_model.collective_times import analytic_seconds, fit_with_links, fitted_seconds


@dataclass(frozen=True)
class CollectiveErrors:
    """Relative errors |predicted / measured - 1| of the same rows by each way of predicting them.

    ``fitted`` is the fit alone; ``predicted`` what ``CollectiveTimes`` answers; ``interpolated`` a straight line
    between the neighbours in log(bytes), log(time), and only of rows that have a neighbour on both sides, where
    ``has_neighbours`` is true; ``analytic`` the model without measurements.
    """

    fitted: FloatArray
    predicted: FloatArray
    interpolated: FloatArray
    analytic: FloatArray
    has_neighbours: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.fitted)


def leave_one_size_out(measured: Iterable[TierRows], device: DeviceProfile) -> CollectiveErrors:
    """Errors of every row, predicted from the rows of its kind and tier that have another size.

    A row is left out where nothing else of its kind and tier remains.
    """
    fitted, predicted, interpolated, analytic, inside = [], [], [], [], []
    for rows in measured:
        for size in np.unique(rows.message_bytes):
            others = rows.select(rows.message_bytes != size)
            fit = fit_with_links(others, device)
            if fit is None:
                continue
            left_out = rows.select(rows.message_bytes == size)
            for group, seconds in zip(left_out.group_size.tolist(), left_out.duration_s, strict=True):
                neighbours = others.of_group(group)
                fitted.append(float(fit.time(size, group)) / seconds)
                predicted.append(float(fitted_seconds(fit, neighbours, size, group)) / seconds)
                analytic.append(analytic_seconds(rows.kind, size, group, device) / seconds)
                known = neighbours.message_bytes
                inside.append(bool(len(known) and known[0] < size < known[-1]))
                if inside[-1]:
                    line = np.interp(np.log(size), np.log(known), np.log(neighbours.duration_s))
                    interpolated.append(np.exp(line) / seconds)
    return CollectiveErrors(
        _errors(fitted), _errors(predicted), _errors(interpolated), _errors(analytic), np.array(inside, dtype=np.bool_)
    )


def _errors(ratios: list[float]) -> FloatArray:
    return np.abs(np.array(ratios, dtype=np.float64) - 1.0)
