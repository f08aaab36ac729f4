"""The device: which, and what of its memory is taken."""

from __future__ import annotations

import argparse

from tensor_cast.command_line import CommandParser, given_path, number
from tensor_cast.devices.profile import DeviceProfile

GB = 1e9


def add_device_arguments(parser: CommandParser) -> None:
    """The device, and what of its memory is taken."""
    group = parser.add_argument_group("device")
    group.add_argument("--device", metavar="NAME", help="device by name or alias; `msmodeling devices` lists them")
    group.add_argument(
        "--device-file",
        dest="device_files",
        type=given_path,
        action="append",
        default=[],
        metavar="FILE",
        help="YAML file with devices of your own; may be given several times",
    )
    group.add_argument(
        "--reserved-memory-gb",
        type=number(0.0, 1e9),
        default=0.0,
        metavar="GB",
        help="memory of each device that something else keeps, in GB of 1e9 bytes (default: 0)",
    )


def device_profile(arguments: argparse.Namespace) -> DeviceProfile:
    """The profile that ``--device`` names."""
    from tensor_cast.devices.registry import get_device

    return get_device(arguments.device, arguments.device_files)
