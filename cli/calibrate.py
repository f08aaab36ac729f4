"""``msmodeling calibrate``: a device profile whose kernels' costs are fitted to a performance database."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from tensor_cast.command_line import given_path, number

if TYPE_CHECKING:
    from tensor_cast.calibration import Calibration, ClassFit, Residuals
    from tensor_cast.devices.profile import DeviceProfile
    from tensor_cast.reporting.layout import Section

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_DESCRIPTION = """\
Fit what kernels of each class reach of a device's peaks, and collectives of its links, to the measured rows of a
performance database, and write a device file with every figure and its source. Rows whose text has an even CRC-32 are
fitted, errors are those of the other rows. Peaks and links come from the base profile; without one, rates are the best
that rows reached.
"""
_EXAMPLES = """examples:
  msmodeling calibrate my_database --name MY_CPU --memory-gib 64
  msmodeling calibrate my_database --name MY_A3 --device ATLAS_800_A3_752T_128G_DIE --output my_a3.yaml
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add ``calibrate`` to the command line."""
    parser = subparsers.add_parser(
        "calibrate",
        help="fit a device profile to the measured rows of a performance database",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("database", type=given_path, metavar="DATABASE", help="directory of the database's CSV files")
    parser.add_argument("--name", required=True, metavar="NAME", help="name of the calibrated device")
    parser.add_argument(
        "--device", metavar="NAME", help="base profile: peaks, links, and costs of classes without rows"
    )
    parser.add_argument("--device-file", type=given_path, metavar="FILE", help="YAML file of the base profile")
    parser.add_argument(
        "--memory-gib",
        type=number(0.001, 1e9),
        metavar="N",
        help="memory of the device, which rows do not tell (default: the base profile's)",
    )
    parser.add_argument("--output", type=given_path, metavar="FILE", help="file to write (default: NAME.yaml)")


def run(arguments: argparse.Namespace) -> int:
    """Write the device file and print the errors; 0 when done.

    Raises:
        ModelingError: the database or the base profile cannot be used, the name is taken, or the file cannot be
            written.
    """
    from cli.console import show
    from cli.evaluation_progress import ConsoleProgress
    from tensor_cast.calibration import calibrate
    from tensor_cast.calibration_file import check_request, device_text
    from tensor_cast.reporting.output_file import write_whole

    path = arguments.output or Path(f"{arguments.name}.yaml")
    check_request(arguments.name, path)
    base = _base(arguments.device, arguments.device_file, arguments.name)
    memory_bytes = None if arguments.memory_gib is None else arguments.memory_gib * 2.0**30
    with ConsoleProgress() as progress:
        found = calibrate(arguments.database, arguments.name, base, memory_bytes=memory_bytes, on_class=progress.step)
    write_whole(path, device_text(found.profile))
    show(_sections(found, base, path))
    return 0


def _base(name: str | None, file: Path | None, new_name: str) -> DeviceProfile | None:
    """The base profile, of a file the only device unless one is named.

    Raises:
        ModelingError: there is no such device, the file is wrong or has several, or the new name is one of its names.
    """
    from tensor_cast.devices import DeviceRegistry, load_device_file
    from tensor_cast.errors import ModelingError

    registry = DeviceRegistry([] if file is None else [file])
    if new_name.casefold() in {known.casefold() for known in (*registry, *registry.aliases)}:
        raise ModelingError(f"The name {new_name} is already taken; give the calibrated device another --name.")
    if name is not None:
        return registry[registry.resolve(name)]
    if file is None:
        return None
    profiles = load_device_file(file)
    if len(profiles) > 1:
        raise ModelingError(f"{file} has {', '.join(p.name for p in profiles)}: name the base with --device.")
    return profiles[0]


def _sections(found: Calibration, base: DeviceProfile | None, path: Path) -> list[Section]:
    from tensor_cast.performance_model.error import FEWEST_ROWS
    from tensor_cast.reporting.layout import Column, Sentence, Table

    measures = ("factor", "median", "p90")
    titles = (
        *("kernel class", "fitted rows", "other rows"),
        *(f"{measure} {when}" for when in ("before", "after") for measure in measures),
    )
    columns = (*(Column(title, right=index > 0) for index, title in enumerate(titles)), Column("", breakable=True))
    before = f"the costs of {base.name}" if base else "the rules' costs"
    note = f"On the rows that were not fitted; before: with {before}. Factor: by which times are off on average, up or "
    note += f"down; median and p90: of relative errors. A fit needs {FEWEST_ROWS} rows, and may not raise the factor."
    if found.unused_rows:
        note += f" Rows not used, their layout being unknown: {found.unused_rows}."
    sections: list[Section] = [Table("Calibration", columns, tuple(map(_row, found.classes)), note=note)]
    if (source := found.profile.sources["memory_bytes"]).startswith("assumed") and base is None:
        sections.append(Sentence(f"memory_bytes is {source}.", "warning"))
    sections.append(
        Sentence(
            f"{path}: {found.profile.name}, written. Classes without enough rows and the host's launches are not "
            f"fitted. To use it: --device {found.profile.name} --device-file {path}"
        )
    )
    return sections


def _row(fit: ClassFit) -> tuple[str, ...]:
    outcome = f"kept: {fit.kept}" if fit.kept else "fitted"
    return fit.key, str(fit.fitted_rows), str(fit.other_rows), *_cells(fit.before), *_cells(fit.after), outcome


def _cells(residuals: Residuals) -> tuple[str, str, str]:
    if math.isnan(residuals.factor):
        return "-", "-", "-"
    return f"{residuals.factor:.2f}", f"{residuals.median:.1%}", f"{residuals.p90:.1%}"
