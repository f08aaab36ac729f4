"""``msmodeling perf-db plot``: measured collectives against the model that is fitted to them."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cli.perf_db_device import measured_device
from cli.text_scatter import Series, log_scatter
from tensor_cast.command_line import UsageError, given_path
from tensor_cast.errors import ModelingError

if TYPE_CHECKING:
    import numpy.typing as npt

    from tensor_cast.devices.profile import DeviceProfile
    from tensor_cast.ops import CollectiveKind
    from tensor_cast.performance_model.collective_fit import CollectiveFit
    from tensor_cast.performance_model.collective_measurements import TierRows

    FloatArray = npt.NDArray[np.float64]
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_MARKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DEFAULT_PNG = Path("collectives.png")
_KINDS: tuple[CollectiveKind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


@dataclass(frozen=True)
class Chart:
    """What was measured of a kind over a tier, and its fit."""

    kind: CollectiveKind
    tier: int
    rows: TierRows
    fit: CollectiveFit
    device: DeviceProfile

    @property
    def title(self) -> str:
        """Kind and links."""
        levels = self.device.interconnect.levels
        link = f" ({levels[self.tier].name})" if self.tier < len(levels) else ""
        return f"{self.kind}, tier {self.tier}{link}"

    @property
    def groups(self) -> list[int]:
        """Measured group sizes."""
        return [int(group) for group in np.unique(self.rows.group_size)]

    def seconds(self, message_bytes: FloatArray, group: int) -> FloatArray:
        """What a simulation takes."""
        from tensor_cast.performance_model.collective_times import fitted_seconds

        times = fitted_seconds(self.fit, self.rows.of_group(group), message_bytes, group)
        return np.asarray(times, dtype=np.float64)


def add_plot_parser(commands: Subparsers) -> None:
    """Add ``plot`` to the commands of ``perf-db``."""
    parser = commands.add_parser(
        "plot",
        help="measured collectives against the model fitted to them",
        description=(
            "Draw measured collectives (hcom_*.csv) against the model fitted to them: in characters on stdout and as a "
            "PNG. DIR is a directory of hcom_*.csv files, or a database whose collectives lie beside it."
        ),
    )
    parser.add_argument("directory", type=given_path, metavar="DIR", help="database directory")
    parser.add_argument(
        "--device", metavar="NAME", help="device whose links they were measured on (default: told by the path)"
    )
    parser.add_argument(
        "--output",
        type=given_path,
        default=_DEFAULT_PNG,
        metavar="FILE",
        help="PNG file to write (default: %(default)s)",
    )
    parser.add_argument("--text-only", action="store_true", help="write no PNG; needs no matplotlib")


def _check_png(path: Path) -> None:
    """Refuse a name that says another format."""
    if path.suffix.casefold() != ".png":
        raise UsageError(f"--output {path} is no PNG file: give a name that ends in .png.")


def run_plot(arguments: argparse.Namespace) -> int:
    """Draw the collectives of a directory; returns the exit status.

    Raises:
        ModelingError: there are none, the device is not known, or the PNG cannot be written.
    """
    from tensor_cast.performance_model.collective_times import communication_directory
    from tensor_cast.performance_model.profiling_database.store import csv_files

    if not arguments.text_only:
        _check_png(arguments.output)
        _require_matplotlib()
    csv_files(arguments.directory)
    directory = communication_directory(arguments.directory)
    if directory is None:
        raise ModelingError(
            f"{arguments.directory} has no hcom_*.csv files, nor a database whose collectives lie beside it; "
            "tools/perf_data_collection/comm_bench measures them."
        )
    device = measured_device(directory, arguments.device)
    charts = list(_charts(directory, device))
    if not charts:
        raise ModelingError(f"The hcom_*.csv files of {directory} have no rows with a duration.")
    for chart in charts:
        print("\n".join(_text(chart)))
    print("\n".join(_accuracy_lines(charts, device)))
    if not arguments.text_only:
        _write_png(charts, arguments.output)
        print(f"Written: {arguments.output}")
    return 0


def _charts(directory: Path, device: DeviceProfile) -> Iterator[Chart]:
    from tensor_cast.performance_model.collective_times import CollectiveTimes

    times = CollectiveTimes(device, directory)
    for kind in _KINDS:
        for tier, rows in sorted(times.rows(kind).items()):
            fit = times.fit(kind, tier)
            if fit is not None:
                yield Chart(kind, tier, rows, fit, device)


def _text(chart: Chart) -> list[str]:
    def series(mark: str, group: int) -> Series:
        rows = chart.rows.of_group(group)
        return Series(mark, rows.message_bytes, rows.duration_s * 1e6, lambda x: chart.seconds(x, group) * 1e6)

    marks = [_MARKS[index % len(_MARKS)] for index in range(len(chart.groups))]
    legend = ", ".join(f"{mark} {group} devices" for mark, group in zip(marks, chart.groups, strict=True))
    drawn = [series(mark, group) for mark, group in zip(marks, chart.groups, strict=True)]
    lines = [f"{chart.title}: {legend}; · model", *log_scatter(drawn, _size, lambda us: f"{us:,.0f} us")]
    for protocol, following in zip(chart.fit.protocols, (*chart.fit.protocols[1:], None), strict=True):
        until = "" if following is None else f" to {_size(following.from_bytes)}"
        per_peer = f" + {protocol.peer_latency_s * 1e6:.2f} us a peer" if protocol.peer_latency_s else ""
        speed = f", {1e-9 / protocol.seconds_per_byte:,.1f} GB/s sent" if protocol.seconds_per_byte else ""
        lines.append(f"  from {_size(protocol.from_bytes)}{until}: {protocol.latency_s * 1e6:.2f} us{per_peer}{speed}")
    return [*lines, ""]


def _accuracy_lines(charts: list[Chart], device: DeviceProfile) -> list[str]:
    """Errors of the sizes predicted from the other sizes."""
    from tensor_cast.performance_model.collective_accuracy import leave_one_size_out

    errors = leave_one_size_out([chart.rows for chart in charts], device)
    if not len(errors):
        return ["Too few sizes to tell how well others are predicted."]
    ways = (
        ("model, through the points", errors.predicted),
        ("model alone", errors.fitted),
        ("line between neighbours", errors.interpolated),
        ("analytic, from the links", errors.analytic),
    )
    lines = [
        f"Each size predicted from the others ({len(errors)} rows):",
        f"  {'':<26}{'rows':>6}{'median':>9}{'90 %':>9}",
    ]
    for name, values in ways:
        if len(values):
            lines.append(f"  {name:<26}{len(values):>6}{np.median(values):>9.1%}{np.quantile(values, 0.9):>9.1%}")
    return lines


def _require_matplotlib() -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ModelingError("A PNG needs matplotlib: pip install 'msmodeling[report]', or give --text-only.")


def _write_png(charts: list[Chart], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from tensor_cast.performance_model.profiling_database.atomic import make_directory, replace_files

    columns = min(len(charts), 2)
    rows = -(-len(charts) // columns)
    figure = Figure(figsize=(6.4 * columns, 4.4 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for chart, axis in zip(charts, axes, strict=False):
        _draw(chart, axis)
    for axis in axes[len(charts) :]:
        axis.set_axis_off()
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    make_directory(path.resolve().parent)
    replace_files({path: content.getvalue()})


def _draw(chart: Chart, axis: Any) -> None:
    from tensor_cast.performance_model.collective_times import analytic_seconds

    measured = chart.rows.message_bytes
    sizes = np.geomspace(measured.min() / 4.0, measured.max() * 4.0, 400)
    for number, group in enumerate(chart.groups):
        colour = f"C{number}"
        rows = chart.rows.of_group(group)
        axis.plot(rows.message_bytes, rows.duration_s * 1e6, "o", color=colour, label=f"{group} devices, measured")
        axis.plot(sizes, chart.seconds(sizes, group) * 1e6, "-", color=colour, label="model")
        if group <= chart.device.interconnect.device_count:
            analytic = np.asarray(analytic_seconds(chart.kind, sizes, group, chart.device)) * 1e6
            axis.plot(sizes, analytic, ":", color=colour, label="analytic")
    axis.set(xscale="log", yscale="log", title=chart.title, xlabel="message bytes", ylabel="us")
    axis.grid(visible=True, which="major", alpha=0.3)
    axis.legend(fontsize="small")


def _size(number: float) -> str:
    """Bytes in binary units, as messages are measured: ``64 KiB``."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024.0:
            return f"{number:.3g} {unit}"
        number /= 1024.0
    return f"{number:.3g} GiB"
