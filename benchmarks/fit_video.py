"""Fit costs that only whole generations show: python benchmarks/fit_video.py --measured DIRECTORY

Prints, for each kernel class below, the constants that fit best and the errors of both halves. Rows with an even CRC-32
of their key are fitted, the others only checked. The profiles name this program as the source of what it found. Needs
the extra ``fit``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.measured_kernels import is_fitted
from benchmarks.video_rows import Request, priced, requests
from tensor_cast.devices import DeviceProfile, get_device

BOUNDS = {"matrix_efficiency": (0.1, 1.0), "step_s": (0.0, 2e-6)}


@dataclass(frozen=True)
class Unknown:
    """``field`` of a kernel class, fitted together with the others of its ``Fit``."""

    kernel: str
    field: str


@dataclass(frozen=True)
class Fit:
    """Constants of the profiles in ``devices``, from the rows that ``rows`` picks."""

    devices: tuple[str, ...]
    unknowns: tuple[Unknown, ...]
    rows: Callable[[Request], bool]


FITS = (
    Fit(
        ("H20_96GB", "H800_SXM_80GB", "H100_SXM_80GB"),
        (
            Unknown("matmul_conv", "matrix_efficiency"),
            Unknown("attention_prefill_fa2", "matrix_efficiency"),
            Unknown("attention_prefill_fa2", "step_s"),
        ),
        lambda row: "eager" not in row.how,
    ),
    Fit(
        ("L20_48GB",),
        (Unknown("attention_prefill_full", "matrix_efficiency"),),
        lambda row: True,
    ),
)


def changed(profile: DeviceProfile, unknowns: Sequence[Unknown], values: Sequence[float]) -> DeviceProfile:
    """``profile`` with other constants."""
    kernels = dict(profile.kernels)
    for unknown, value in zip(unknowns, values, strict=True):
        fields: dict[str, Any] = {unknown.field: float(value)}
        kernels[unknown.kernel] = replace(kernels[unknown.kernel], **fields)
    return replace(profile, kernels=kernels)


def fitted(fit: Fit, rows: Sequence[Request]) -> tuple[list[float], list[float], list[float]]:
    """The constants, and the relative errors of the fitted rows and of the others."""
    from scipy.optimize import minimize

    profiles = {name: get_device(name) for name in fit.devices}
    scale = [BOUNDS[unknown.field][1] for unknown in fit.unknowns]

    def errors(values: Sequence[float], chosen: Sequence[Request]) -> list[float]:
        devices = {name: changed(profile, fit.unknowns, values) for name, profile in profiles.items()}
        return [priced(row, devices[str(row.profile)])[0] / row.measured_s - 1.0 for row in chosen]

    def loss(scaled: np.ndarray[Any, np.dtype[np.float64]]) -> float:
        return float(np.mean(np.log1p(errors(list(scaled * scale), half)) ** 2))

    half = [row for row in rows if is_fitted(row.key)]
    start = [getattr(next(iter(profiles.values())).kernels[u.kernel], u.field) for u in fit.unknowns]
    limits = [(BOUNDS[u.field][0] / s, 1.0) for u, s in zip(fit.unknowns, scale, strict=True)]
    found = minimize(loss, np.divide(start, scale), method="Nelder-Mead", bounds=limits, options={"xatol": 2e-3})
    values = list(found.x * scale)
    return values, errors(values, half), errors(values, [row for row in rows if row not in half])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, metavar="DIRECTORY")
    rows = [row for row in requests(parser.parse_args().measured) if not row.apart]
    for fit in FITS:
        values, half, other = fitted(fit, [row for row in rows if row.profile in fit.devices and fit.rows(row)])
        names = (f"{unknown.kernel}.{unknown.field}" for unknown in fit.unknowns)
        constants = ", ".join(f"{name} {value:.3g}" for name, value in zip(names, values, strict=True))
        shares = [f"n={len(group)}, mean error {np.mean(np.abs(group)):.1%}" for group in (half, other)]
        print(f"{', '.join(fit.devices)}: {constants}; {shares[0]}; other half {shares[1]}")


if __name__ == "__main__":
    main()
