"""The flags by which every measuring tool is told its database."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from tensor_cast.command_line import given_path
from tensor_cast.performance_model.profiling_database.paths import (
    DEFAULT_DEVICE,
    DEVICES,
    database_directory,
    version_text,
)


def add_database_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--database-path``, ``--device`` and the three versions."""
    group = parser.add_argument_group(
        "database", "the directory itself, or the device and versions that name it below the packaged data"
    )
    group.add_argument(
        "--database-path",
        type=given_path,
        metavar="DIR",
        help="the database directory (default: from device and versions)",
    )
    group.add_argument("--device", choices=DEVICES, default=DEFAULT_DEVICE, help="device (default: %(default)s)")
    version = _version_type()
    group.add_argument(
        "--vllm-version",
        type=version,
        metavar="V",
        help="version of vLLM-Ascend, or the whole directory name vllm…_torch…_cann… (default: detected)",
    )
    group.add_argument("--torch-version", type=version, metavar="V", help="version of PyTorch (default: detected)")
    group.add_argument("--cann-version", type=version, metavar="V", help="version of CANN (default: detected)")


def add_wait_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--no-wait``, for tools that change files of the database."""
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="give up when another run is changing the database (default: wait for it)",
    )


def database_path(arguments: argparse.Namespace) -> Path:
    """The database directory that the arguments name.

    Raises:
        ModelingError: a version is neither given nor found on this machine.
    """
    if arguments.database_path is not None:
        return Path(arguments.database_path)
    return database_directory(arguments.device, arguments.vllm_version, arguments.torch_version, arguments.cann_version)


def _version_type() -> Callable[[str], str]:
    def parse(text: str) -> str:
        try:
            return version_text(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse
