"""``msmodeling devices add``: describe a device that has no profile, and check that it can be simulated."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from cli.evaluation_questions import ask
from tensor_cast.command_line import UsageError, choice, given_path, number, whole_number
from tensor_cast.devices.profile import Topology
from tensor_cast.devices.registry import PATH_VARIABLE

if TYPE_CHECKING:
    from tensor_cast.evaluation.new_device import FigureKind, GivenFigure, Reference

_EXAMPLES = """\
examples:
  msmodeling devices add MY_CARD --bf16-tflops 320 --memory-gib 64 --memory-bandwidth-gbps 1600
  msmodeling devices add MY_A100 --like A100_SXM_80GB --memory-gib 96
"""


def add_parser(subparsers: Any) -> None:
    """Add ``add`` to the commands of ``devices``."""
    from tensor_cast.evaluation.new_device import FIGURES

    parser = subparsers.add_parser(
        "add",
        help="describe a device of your own, and check it",
        description="Describe a device that has no profile: its figures are written as a device file, the file is\n"
        "checked, and one estimate is run on it. What is left out follows from stated rules (docs/devices.md).",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("new_name", nargs="?", metavar="NAME", help="letters, digits, _ and -")
    figures = parser.add_argument_group("figures", "Dense rates, of one device.")
    for kind in FIGURES:
        text = f"{kind.unit}{'; required' if kind.required else ''}"
        figures.add_argument(kind.flag, type=_figure_type(kind), metavar="N", help=text)
    figures.add_argument(
        "--like",
        metavar="DEVICE",
        help="take what is not given from this well-known device: public figures, links, family",
    )
    figures.add_argument("--source", metavar="TEXT", help="where the given figures come from")
    links = parser.add_argument_group("links", "Needed for more than one device, with --link-bandwidth-gbps.")
    links.add_argument("--devices-per-server", type=whole_number(2), metavar="N", help="devices joined (default: 8)")
    links.add_argument(
        "--topology",
        type=choice(get_args(Topology)),
        metavar="{switched,full_mesh}",
        help="a switch gives any group all bandwidth, a mesh only its own links (default: switched)",
    )
    links.add_argument("--link-latency-us", type=number(0.0, 1e9), metavar="US", help="of one message (default: 1)")
    words = parser.add_argument_group("words")
    words.add_argument("--family", metavar="NAME", help="packaged family whose kernels' costs it takes over")
    words.add_argument("--vendor", metavar="TEXT", help="who makes it")
    words.add_argument("--description", default="", metavar="TEXT", help="what it is")
    parser.add_argument(
        "--output",
        type=given_path,
        metavar="FILE",
        help=f"file to write (default: NAME.yaml, in {PATH_VARIABLE} if set)",
    )
    parser.add_argument("--list-references", action="store_true", help="list devices with public figures, and end")


def run(arguments: argparse.Namespace) -> int:
    """Write the device file; 0 when done.

    Raises:
        ModelingError: a figure is missing or wrong, the name is taken, or the file is there already.
    """
    from tensor_cast.evaluation.new_device import Link, NewDevice, add_device
    from tensor_cast.units import duration

    if arguments.list_references:
        _list_references()
        return 0
    figures, like = _figures(arguments)
    _check_links(arguments, figures)
    base = like.link or Link()
    latency_us = arguments.link_latency_us
    device = NewDevice(
        name=arguments.new_name,
        figures=figures,
        link=Link(
            size=arguments.devices_per_server or base.size,
            topology=arguments.topology or base.topology,
            latency_s=base.latency_s if latency_us is None else latency_us / 1e6,
        ),
        family=arguments.family or like.family,
        vendor=arguments.vendor,
        description=arguments.description,
    )
    added = add_device(device, arguments.output or _directory() / f"{device.name}.yaml")
    print(f"{added.path}: {added.profile.name}, written and checked")
    for name, figure in figures.items():
        print(f"  {name} {figure.value:g}  ({figure.source})")
    fits = "" if added.fits else ", which does not fit into its memory"
    print(f"one estimate: text-generate {added.check} takes {duration(added.time_s)}{fits}")
    if not _is_found(added.path):
        print(f"To use it: --device {added.profile.name} --device-file {added.path}, or {PATH_VARIABLE}={added.path}")
    return 0


def _figures(arguments: argparse.Namespace) -> tuple[dict[str, GivenFigure], Reference]:
    """Given figures, then the reference's, then what a person answers; and the reference, empty without one.

    Raises:
        UsageError: nobody can be asked; names all that is missing.
    """
    from tensor_cast.evaluation.new_device import FIGURES, GivenFigure, Reference, reference, suggested_reference

    on_terminal = sys.stdin.isatty()
    given = {kind.name: getattr(arguments, kind.name) for kind in FIGURES}
    source = arguments.source or GivenFigure(0.0).source
    figures = {name: GivenFigure(value, source) for name, value in given.items() if value is not None}
    if arguments.new_name is None and on_terminal:
        arguments.new_name = ask("NAME", hint="of the device")
    like = arguments.like
    if like is None and on_terminal and (near := suggested_reference(arguments.new_name)):
        answer = ask("--like", (near, "none"), "public figures to start from")
        like = None if answer == "none" else answer
    taken = reference(like) if like is not None else Reference({})
    offered = taken.figures
    missing = [kind for kind in FIGURES if kind.required and kind.name not in {**offered, **figures}]
    if not on_terminal and (missing or arguments.new_name is None):
        names = [*(["NAME"] if arguments.new_name is None else []), *(kind.flag for kind in missing)]
        width = max(map(len, names))
        lines = [f"  {kind.flag.ljust(width)}  {kind.unit}" for kind in missing]
        near = suggested_reference(arguments.new_name) if arguments.new_name and like is None else None
        hint = [f"Public figures are known of {near}: --like {near}."] if near else []
        raise UsageError("\n".join([f"Missing and without a default: {', '.join(names)}.", *lines, *hint]))
    for kind in FIGURES:
        if kind.name in figures:
            continue
        offer = offered.get(kind.name)
        if on_terminal and (kind.required or kind.name == "link_bandwidth_gbps") and offer is None:
            value = _ask_number(kind)
            if value is not None:
                figures[kind.name] = GivenFigure(value, source)
        elif offer is not None:
            figures[kind.name] = offer
    return {kind.name: figures[kind.name] for kind in FIGURES if kind.name in figures}, taken


def _figure_type(kind: FigureKind) -> Callable[[str], float]:
    """What a figure may be: a count of cores is whole, and only a cache may be absent."""
    if kind.path.endswith("_cores"):
        return whole_number(1)
    return number(0.0, 1e9, above=kind.path != "cache_bytes")


def _check_links(arguments: argparse.Namespace, figures: dict[str, GivenFigure]) -> None:
    """Refuse what describes links that the device does not have.

    Raises:
        UsageError: there is one, and no bandwidth.
    """
    given = {
        "--devices-per-server": arguments.devices_per_server,
        "--topology": arguments.topology,
        "--link-latency-us": arguments.link_latency_us,
    }
    useless = [flag for flag, value in given.items() if value is not None]
    if useless and "link_bandwidth_gbps" not in figures:
        raise UsageError(f"{useless[0]} describes links between devices: add --link-bandwidth-gbps, or leave it out.")


def _ask_number(kind: FigureKind) -> float | None:
    while True:
        answer = ask(kind.flag, hint=kind.unit if kind.required else f"{kind.unit}; - to leave it out")
        if answer == "-" and not kind.required:
            return None
        try:
            return _figure_type(kind)(answer)
        except argparse.ArgumentTypeError as error:
            print(f"{kind.flag} {error}.")


def _list_references() -> None:
    from tensor_cast.evaluation.new_device import reference, reference_names

    for name in reference_names():
        figures = reference(name).figures
        print(f"{name}: {', '.join(f'{key} {figure.value:g}' for key, figure in figures.items())}")


def _directory() -> Path:
    """Where a device is found without being named: the first directory of the search path, else the current one."""
    entries = [Path(entry) for entry in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if entry]
    return next((entry for entry in entries if entry.is_dir()), Path())


def _is_found(path: Path) -> bool:
    entries = [Path(entry) for entry in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if entry]
    return any(entry in (path, path.parent) for entry in entries)
