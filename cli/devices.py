"""``msmodeling devices``: the accelerators that can be simulated, and where each of their figures comes from."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from cli import devices_add
from tensor_cast.command_line import given_path
from tensor_cast.devices import DeviceProfile, DeviceRegistry

if TYPE_CHECKING:
    from tensor_cast.devices.figures import Figure

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_EXAMPLES = """examples:
  msmodeling devices
  msmodeling devices show ATLAS_800_A3_752T_128G_DIE --json > my_device.yaml
  msmodeling devices add MY_CARD --bf16-tflops 320 --memory-gib 64 --memory-bandwidth-gbps 1600
"""
_LIST_COLUMNS = ("name", "vendor", "bf16", "int8", "fp8", "memory", "bandwidth", "links")
_LIST_UNITS = (
    "bf16, int8, fp8: dense matrix TFLOP/s. memory: GiB. bandwidth: GB/s. "
    "links: devices at each level, outermost first, and GB/s that one device sends there."
)
_ASSUMED_NOTE = "~ assumed: no source of its own; the text says what it was derived from."


def add_parser(subparsers: Subparsers) -> None:
    """Add ``devices``, ``devices show`` and ``devices add`` to the command line."""
    parser = subparsers.add_parser(
        "devices",
        help="list the devices, or show every figure of one with its source",
        description="List the devices that can be simulated, or show every figure of one with its source.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_device_file(parser, "device_files")
    commands = parser.add_subparsers(dest="devices_command", metavar="{show,add}")
    show = commands.add_parser("show", help="every figure of one device, its unit and its source")
    show.add_argument("name", metavar="NAME", help="name or alias of the device, in any case")
    show.add_argument("--json", action="store_true", help="print the device as a device file, exact and complete")
    _add_device_file(show, "show_device_files")
    devices_add.add_parser(commands)


def run(arguments: argparse.Namespace) -> int:
    """Print what was asked for; 0 when done.

    Raises:
        ModelingError: there is no such device, or a device file is wrong.
    """
    if arguments.devices_command == "add":
        return devices_add.run(arguments)
    registry = DeviceRegistry([*arguments.device_files, *getattr(arguments, "show_device_files", [])])
    if arguments.devices_command == "show":
        _show(registry[registry.resolve(arguments.name)], as_json=arguments.json)
    else:
        _list(registry)
    return 0


def _add_device_file(parser: argparse.ArgumentParser, destination: str) -> None:
    parser.add_argument(
        "--device-file",
        dest=destination,
        type=given_path,
        action="append",
        default=[],
        metavar="FILE",
        help="YAML file with devices of your own; may be given several times",
    )


def _list(registry: DeviceRegistry) -> None:
    rows = [_summary(profile) for profile in registry.values()]
    if not sys.stdout.isatty():
        _print_aligned([_LIST_COLUMNS, *rows])
        print(f"\n{_LIST_UNITS}")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for index, column in enumerate(_LIST_COLUMNS):
        table.add_column(column, justify="right" if 2 <= index <= 6 else "left", no_wrap=index == 0)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    print(f"\n{_LIST_UNITS}")


def _summary(profile: DeviceProfile) -> tuple[str, ...]:
    def rate(dtype: str) -> str:
        return f"{profile.matrix_flops[dtype] / 1e12:g}" if dtype in profile.matrix_flops else "-"

    levels = profile.interconnect.levels if profile.interconnect.device_count > 1 else ()
    sizes = "x".join(str(level.size) for level in levels)
    bandwidths = "/".join(f"{level.bandwidth / 1e9:g}" for level in levels)
    return (
        profile.name,
        profile.vendor,
        rate("bfloat16"),
        rate("int8"),
        rate("fp8"),
        f"{profile.memory_bytes / 2**30:g}",
        f"{profile.memory_bandwidth / 1e9:g}",
        f"{sizes} at {bandwidths}" if levels else "none",
    )


def _show(profile: DeviceProfile, *, as_json: bool) -> None:
    from tensor_cast.devices.figures import as_document, list_figures

    if as_json:
        print(json.dumps(as_document(profile), indent=2, ensure_ascii=False, allow_nan=False))
        return
    figures = list_figures(profile)
    print(f"{profile.name}: {profile.description or 'no description'}")
    topologies = ", ".join(f"{level.name} {level.topology}" for level in profile.interconnect.levels)
    print(f"vendor {profile.vendor}, family {profile.family}, links {topologies}\n")
    if not sys.stdout.isatty():
        _print_aligned([(_mark(figure), figure.path, _readable(figure), figure.source) for figure in figures])
        print(f"\n{_ASSUMED_NOTE}")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for figure in figures:
        style = "yellow" if figure.assumed else ""
        # Text, not markup: a source may hold brackets.
        table.add_row(_mark(figure), figure.path, _readable(figure), Text(figure.source, style=style))
    Console().print(table)
    print(f"\n{_ASSUMED_NOTE}")


def _mark(figure: Figure) -> str:
    return "~" if figure.assumed else ""


def _readable(figure: Figure) -> str:
    """A figure in the unit that people say it in."""
    value = figure.value
    if isinstance(value, str):
        return f"{value} {figure.unit}"
    match figure.unit:
        case "FLOP/s":
            return f"{value / 1e12:g} TFLOP/s"
        case "bytes/s":
            return f"{value / 1e9:g} GB/s"
        case "bytes":
            return f"{value / 2**30:g} GiB" if value >= 2**30 else f"{value / 2**20:g} MiB"
        case "s":
            return f"{value * 1e6:g} us"
    return f"{value:g} {figure.unit}"


def _print_aligned(rows: list[tuple[str, ...]]) -> None:
    """Columns as wide as their widest text and never cut: what a pipe or a file gets."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    for row in rows:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=False))
        print("  ".join([*cells, row[-1]]).rstrip())
