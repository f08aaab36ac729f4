"""A device that has no profile: figures that a user gives or takes from a reference, written as a device file."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.devices.registry import DeviceRegistry
from tensor_cast.errors import ModelingError, closest, did_you_mean
from tensor_cast.evaluation.simulator_process import simulate_in_process

_REFERENCES = Path(__file__).with_name("reference_devices.yaml")
_GIVEN = "given by the user"
_CHECK = ("Qwen/Qwen3-8B", "--num-queries", "1", "--query-length", "1024", "--quantize-linear-action", "DISABLED")


@dataclass(frozen=True)
class FigureKind:
    """A figure that a new device may have: its name, unit, size in the file's unit, and place in the file."""

    name: str
    unit: str
    scale: float
    path: str
    required: bool = False

    @property
    def flag(self) -> str:
        """As it is typed."""
        return f"--{self.name.replace('_', '-')}"


FIGURES = (
    FigureKind("bf16_tflops", "dense BF16 matrix rate, TFLOP/s", 1e12, "matrix_flops.bfloat16", required=True),
    FigureKind("memory_gib", "memory, GiB", 2.0**30, "memory_bytes", required=True),
    FigureKind("memory_bandwidth_gbps", "memory bandwidth, GB/s", 1e9, "memory_bandwidth", required=True),
    FigureKind(
        "link_bandwidth_gbps", "bandwidth of one device to all others, one direction, GB/s", 1e9, "interconnect"
    ),
    FigureKind("fp16_tflops", "dense FP16 matrix rate, TFLOP/s", 1e12, "matrix_flops.float16"),
    FigureKind("int8_tops", "dense INT8 matrix rate, TOP/s", 1e12, "matrix_flops.int8"),
    FigureKind("fp8_tflops", "dense FP8 matrix rate, TFLOP/s", 1e12, "matrix_flops.fp8"),
    FigureKind("vector_tflops", "FP32 vector rate, TFLOP/s", 1e12, "vector_flops.float32"),
    FigureKind("matrix_cores", "cores with a matrix unit", 1.0, "matrix_cores"),
    FigureKind("vector_cores", "vector cores", 1.0, "vector_cores"),
    FigureKind("cache_mib", "last-level cache, MiB", 2.0**20, "cache_bytes"),
)
"""In the order in which they are asked for."""


@dataclass(frozen=True)
class GivenFigure:
    """A value in the unit of its kind, and where it comes from."""

    value: float
    source: str = _GIVEN


@dataclass(frozen=True, kw_only=True)
class Link:
    """How devices are joined: ``size`` of them, and the level's topology and latency."""

    size: int = 8
    topology: str = "switched"
    latency_s: float = 1e-6


@dataclass(frozen=True, kw_only=True)
class NewDevice:
    """What a user knows of a device. ``family`` names a packaged family whose kernels' costs it takes over."""

    name: str
    figures: Mapping[str, GivenFigure]
    link: Link = Link()
    family: str | None = None
    vendor: str | None = None
    description: str = ""


def reference_names() -> list[str]:
    """Devices whose public figures can be taken: every profiled one, then those of the list."""
    return [*DeviceRegistry(), *_listed_references()]


@dataclass(frozen=True)
class Reference:
    """Public figures of a well-known device by kind; of a profiled one also its links and its family."""

    figures: Mapping[str, GivenFigure]
    link: Link | None = None
    family: str | None = None


def reference(name: str) -> Reference:
    """Public figures of a well-known device, with their source.

    Raises:
        ModelingError: there is no such device.
    """
    listed = _listed_references()
    by_folded = {known.casefold(): known for known in listed}
    if (known := by_folded.get(name.casefold())) is not None:
        entry = listed[known]
        source = f"{known}: {entry['source']}"
        given = ((kind.name, entry.get(kind.name)) for kind in FIGURES)
        return Reference({key: GivenFigure(float(value), source) for key, value in given if value is not None})
    registry = DeviceRegistry()
    try:
        profile = registry[registry.resolve(name)]
        level = profile.interconnect.levels[-1]
        link = Link(size=level.size, topology=level.topology, latency_s=level.latency_s)
        return Reference(_profiled_figures(profile), link, profile.family)
    except ModelingError:
        raise ModelingError(
            f"There are no reference figures of {name!r}.{did_you_mean(name, reference_names())} "
            "`msmodeling devices add --list-references` lists all."
        ) from None


def suggested_reference(name: str) -> str | None:
    """A reference whose name is like that of a new device."""
    names = reference_names()
    words = [word for word in re.split(r"[^0-9a-z]+", name.casefold()) if len(word) > 2 and not word.isalpha()]
    containing = [known for known in names if any(word in known.casefold().split("_") for word in words)]
    found = containing or closest(name, names, limit=1)
    return found[0] if found else None


def device_file_text(device: NewDevice) -> str:
    """The device file, each figure with its source.

    Raises:
        ModelingError: a figure that every device needs is missing; all are named.
    """
    missing = [kind for kind in FIGURES if kind.required and kind.name not in device.figures]
    if missing:
        width = max(len(kind.flag) for kind in missing)
        lines = [f"  {kind.flag.ljust(width)}  {kind.unit}" for kind in missing]
        raise ModelingError("\n".join([f"Missing: {', '.join(kind.flag for kind in missing)}.", *lines]))
    rates: dict[str, dict[str, str]] = {"matrix_flops": {}, "vector_flops": {}}
    lines = [f"name: {device.name}"]
    for key, text in (("family", device.family), ("vendor", device.vendor), ("description", device.description)):
        if text:
            lines.append(f"{key}: {_quoted(text)}")
    sources: list[str] = []
    plain: list[str] = []
    for kind in FIGURES:
        figure = device.figures.get(kind.name)
        if figure is None:
            continue
        value = _number(figure.value * kind.scale)
        group, _, dtype = kind.path.partition(".")
        if dtype:
            rates[group][dtype] = _tera(figure.value)
        elif group != "interconnect":
            unit = f"  # {figure.value:g} {kind.unit.rpartition(', ')[2]}" if kind.scale != 1.0 else ""
            plain.append(f"{group}: {value}{unit}")
        sources.append(f"  {kind.path}: {_quoted(figure.source)}")
    for group, values in rates.items():
        if values:
            lines.append(f"{group}: {{{', '.join(f'{dtype}: {value}' for dtype, value in values.items())}}}")
    lines += plain
    if (link := device.figures.get("link_bandwidth_gbps")) is not None:
        lines += [
            "interconnect:",
            f"  - {{name: server, size: {device.link.size}, topology: {device.link.topology}, "
            f"bandwidth: {_number(link.value * 1e9)}, latency_s: {_number(device.link.latency_s)}}}",
        ]
    return "\n".join([*lines, "sources:", *sources, ""])


@dataclass(frozen=True)
class AddedDevice:
    """A device that was written, and what it takes for the estimate that checked it."""

    profile: DeviceProfile
    path: Path
    check: str
    time_s: float
    fits: bool


def add_device(device: NewDevice, path: Path) -> AddedDevice:
    """Write the device file, after it loaded, its name proved free, and one estimate on it was run.

    Raises:
        ModelingError: the file is there already, a figure is missing or out of range, or the name is taken.
    """
    from tensor_cast.reporting.output_file import check_writable, write_whole

    if path.exists():
        raise ModelingError(f"{path} is there already; give another --output.")
    check_writable(path, "--output")
    text = device_file_text(device)
    with tempfile.TemporaryDirectory(prefix="msmodeling-") as scratch:
        draft = Path(scratch, path.name)
        draft.write_text(text, encoding="utf-8")
        try:
            profile = DeviceRegistry([draft])[device.name]
        except ModelingError as error:
            raise ModelingError(re.sub(rf"^{re.escape(str(draft))}(:\d+)?: ", "", str(error))) from None
        arguments = ["text-generate", *_CHECK, "--device", device.name, "--device-file", str(draft)]
        document = simulate_in_process(arguments).document
    write_whole(path, text)
    return AddedDevice(profile, path, " ".join(_CHECK), document["total_time_s"], document["memory"]["fits"])


def _listed_references() -> dict[str, dict[str, Any]]:
    import yaml

    found: dict[str, dict[str, Any]] = yaml.safe_load(_REFERENCES.read_text(encoding="utf-8"))
    return found


def _profiled_figures(profile: DeviceProfile) -> dict[str, GivenFigure]:
    def of(path: str, value: float, scale: float) -> GivenFigure:
        return GivenFigure(value / scale, f"{profile.name}: {profile.sources.get(path, 'its profile')}")

    found: dict[str, GivenFigure] = {}
    for kind in FIGURES:
        group, _, dtype = kind.path.partition(".")
        if group == "interconnect":
            if profile.interconnect.device_count > 1:
                level = profile.interconnect.levels[-1]
                found[kind.name] = of(f"interconnect.{level.name}.bandwidth", level.bandwidth, kind.scale)
        elif not dtype:
            found[kind.name] = of(kind.path, float(getattr(profile, group)), kind.scale)
        elif dtype in getattr(profile, group):
            found[kind.name] = of(kind.path, getattr(profile, group)[dtype], kind.scale)
    return {name: figure for name, figure in found.items() if ": assumed" not in figure.source and figure.value > 0.0}


def _tera(value: float) -> str:
    """``320e12``; what itself has an exponent is written out."""
    text = f"{value:.10g}"
    return f"{value * 1e12:.10g}" if "e" in text else f"{text}e12"


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.10g}"


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)
