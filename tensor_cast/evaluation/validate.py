"""Checking a results directory: its name, its files, and that they agree with each other."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tensor_cast.errors import ModelingError
from tensor_cast.evaluation.naming import ResultsName, device_slug, parse_results_name, slug
from tensor_cast.evaluation.results import CONFIG, REPORT, SUMMARY, read_json
from tensor_cast.ops import CATEGORIES

NUMBER = (int, float)
_CONFIG_FIELDS: dict[str, tuple[type, ...]] = {
    "schema_version": (int,),
    "kind": (str,),
    "name": (str,),
    "time": (str,),
    "model.model": (str,),
    "model.spec": (str,),
    "model.reference": (str,),
    "device.name": (str,),
    "device.figures": (list,),
    "parameters": (dict,),
    "given": (list,),
    "accepted": (list,),
    "defaulted": (list,),
    "parallel.world": (int,),
    "strategy.chosen_by": (str,),
    "strategy.kind": (str,),
    "iterations": (int,),
    "command": (str,),
    "simulator_command": (str,),
    "versions": (dict,),
}
_SUMMARY_FIELDS: dict[str, tuple[type, ...]] = {
    "schema_version": (int,),
    "status": (str,),
    "errors": (list,),
    "iterations": (list,),
    "metrics.execution_time_s": NUMBER,
    "metrics.fits": (bool,),
    "metrics.memory_used_bytes": NUMBER,
    "operators.categories": (dict,),
    "operators.bounds": (dict,),
    "operators.top_kernels": (list,),
    "collectives": (list,),
    "memory.device_bytes": NUMBER,
    "memory.available_bytes": NUMBER,
    "memory.fits": (bool,),
    "kernels": (list,),
    "findings": (list,),
    "advice": (list,),
    "estimate.total_time_s": NUMBER,
    "estimate.ops": (list,),
}
_TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
_LOG_TIME = re.compile(r"^\s+(?:execution time|whole generation)\s+([\d,.]+) (s|ms|us)(?: \(.*\))?$", re.MULTILINE)
_LOG_STATUS = re.compile(r"^exit status (-?\d+)$", re.MULTILINE)
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_LOG_DIGITS = 1e-3
"""A log shows four digits of a time."""
_LOG_PARTS = ("Configuration", "Kernels", "Categories", "Memory")


@dataclass(frozen=True)
class Fault:
    """What is wrong, in which file and field; an empty ``field`` means the file, or the directory, itself."""

    file: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {f'{self.field}: ' if self.field else ''}{self.message}"


def validate_results(directory: Path) -> list[Fault]:
    """Every fault of a results directory, none for a good one.

    Raises:
        ModelingError: there is no such directory.
    """
    if not directory.is_dir():
        raise ModelingError(f"There is no results directory {directory}.")
    faults: list[Fault] = []
    name = directory.resolve().name
    parsed = parse_results_name(name)
    if parsed is None:
        expected = "<model>_<spec>_<device>_w<N>_u<N>_cfg<N>, …_w<N>_tp<N>_dp<N>_ep<N>, or the older …_d<N>_u<N>_cfg<N>"
        faults.append(Fault(name, "", f"the directory's name is not {expected}"))
    config = _read(directory / CONFIG, faults)
    summary = _read(directory / SUMMARY, faults)
    if config is not None:
        faults += _fields(CONFIG, config, _CONFIG_FIELDS)
        faults += _config_values(config)
        if parsed is not None:
            faults += _name_faults(parsed, config)
    if summary is not None:
        faults += _fields(SUMMARY, summary, _SUMMARY_FIELDS)
        faults += _summary_values(summary)
        faults += _logs(directory, config, summary)
    faults += _reports(directory)
    return faults


def results_within(directory: Path) -> list[Path]:
    """The results directories that ``directory`` stands for: itself, or all within where it only holds others.

    Comparisons beside them (``compare/``) are none of them.
    """
    if any((directory / name).exists() for name in (CONFIG, SUMMARY)) or not directory.is_dir():
        return [directory]
    within = sorted(path for path in directory.iterdir() if path.is_dir() and path.name != "compare")
    return [path for path in within if not path.name.startswith(".")] or [directory]


def require_valid(directory: Path) -> None:
    """Refuse to read what is not a sound results directory.

    Raises:
        ModelingError: names the first fault.
    """
    read_json(directory / CONFIG)
    fields = [fault for fault in validate_results(directory) if fault.file in (CONFIG, SUMMARY)]
    if fields:
        more = f" (and {len(fields) - 1} more)" if len(fields) > 1 else ""
        raise ModelingError(f"{directory / str(fields[0])}{more}; evaluate again, or give other results.")


def _read(path: Path, faults: list[Fault]) -> dict[str, Any] | None:
    try:
        return read_json(path)
    except ModelingError as error:
        message = "is missing" if not path.exists() else str(error).removeprefix(f"{path}").lstrip(": ").rstrip(".")
        faults.append(Fault(path.name, "", message))
        return None


def _fields(file: str, document: Mapping[str, Any], expected: Mapping[str, tuple[type, ...]]) -> Iterator[Fault]:
    for path, kinds in expected.items():
        value: Any = document
        for key in path.split("."):
            value = value.get(key, _ABSENT) if isinstance(value, dict) else _ABSENT
        if value is _ABSENT:
            yield Fault(file, path, "is missing")
        elif not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            yield Fault(file, path, f"expected {_TYPE_NAMES[kinds[-1]]}, got {_described(value)}")


_ABSENT = object()


def _described(value: Any) -> str:
    if value is None:
        return "null"
    text = repr(value)
    return text if len(text) <= 40 else f"{_TYPE_NAMES.get(type(value), type(value).__name__)}"


def _config_values(config: Mapping[str, Any]) -> Iterator[Fault]:
    if config.get("kind") not in ("text", "video", "image", None):
        yield Fault(CONFIG, "kind", f"expected text, video or image, got {config['kind']!r}")
    if isinstance(time := config.get("time"), str):
        try:
            datetime.fromisoformat(time)
        except ValueError:
            yield Fault(CONFIG, "time", f"expected a time such as 2025-01-31T12:00:00+00:00, got {time!r}")
    if isinstance(parameters := config.get("parameters"), dict):
        for group in ("given", "accepted", "defaulted"):
            for name in config.get(group) or ():
                if name not in parameters:
                    yield Fault(CONFIG, f"{group}", f"names {name}, which is not in parameters")


def _name_faults(name: ResultsName, config: Mapping[str, Any]) -> Iterator[Fault]:
    """The directory's name must say what the configuration does."""
    model, device, parallel = (_object(config, key) for key in ("model", "device", "parallel"))
    stated: list[tuple[str, Any, Any]] = []
    for key in ("model", "spec"):
        if isinstance(model.get(key), str):
            stated.append((f"model.{key}", getattr(name, key), slug(model[key])))
    if isinstance(device.get("name"), str):
        stated.append(("device.name", name.device, device_slug(device["name"])))
    stated.append(("parallel.world", name.world, parallel.get("world", name.world)))
    stated += [(f"parallel.{key}", size, parallel.get(key, size)) for key, size in name.sizes.items()]
    for field, named, recorded in stated:
        if named != recorded:
            yield Fault(CONFIG, field, f"is {recorded}, but the directory's name says {named}")


def _object(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _summary_values(summary: Mapping[str, Any]) -> Iterator[Fault]:
    status, errors = summary.get("status"), summary.get("errors")
    if status not in ("ok", "error", None):
        yield Fault(SUMMARY, "status", f"expected ok or error, got {status!r}")
    if isinstance(errors, list) and status in ("ok", "error") and bool(errors) != (status == "error"):
        yield Fault(SUMMARY, "status", f"is {status}, but there are {len(errors)} errors")
    metrics = summary.get("metrics")
    if isinstance(metrics, dict):
        for key, value in metrics.items():
            least = -1 if key.startswith("error_") else 0  # a relative error of -1 is a time of 0
            is_number = isinstance(value, NUMBER) and not isinstance(value, bool)
            if is_number and not (math.isfinite(value) and value >= least):
                yield Fault(SUMMARY, f"metrics.{key}", f"expected a number of at least {least}, got {value}")
        estimate = summary.get("estimate")
        total = estimate.get("total_time_s") if isinstance(estimate, dict) else None
        if total is not None and total != metrics.get("execution_time_s", total):
            yield Fault(SUMMARY, "metrics.execution_time_s", f"is not estimate.total_time_s, {total}")
    operators = summary.get("operators")
    categories = operators.get("categories") if isinstance(operators, dict) else None
    if isinstance(categories, dict):
        for name in CATEGORIES:
            one = categories.get(name)
            if not isinstance(one, dict) or not isinstance(one.get("total_s"), NUMBER):
                yield Fault(SUMMARY, f"operators.categories.{name}.total_s", "expected a number, got none")


def _logs(directory: Path, config: Mapping[str, Any] | None, summary: Mapping[str, Any]) -> Iterator[Fault]:
    iterations = summary.get("iterations")
    if not isinstance(iterations, list):
        return
    expected = config.get("iterations") if config is not None else None
    if isinstance(expected, int) and expected != len(iterations):
        yield Fault(SUMMARY, "iterations", f"has {len(iterations)}, but {CONFIG} says {expected}")
    known = set()
    for index, one in enumerate(iterations):
        field = f"iterations[{index}]"
        if not isinstance(one, dict) or not isinstance(one.get("log"), str):
            yield Fault(SUMMARY, f"{field}.log", "is missing")
            continue
        if not isinstance(one.get("execution_time_s"), NUMBER):
            yield Fault(SUMMARY, f"{field}.execution_time_s", "expected a number, got none")
            continue
        known.add(one["log"])
        yield from _log(directory, one["log"], field, float(one["execution_time_s"]))
    for path in sorted(directory.glob("iteration_*.log")):
        if path.name not in known:
            yield Fault(path.name, "", f"is not in {SUMMARY}")


def _log(directory: Path, name: str, field: str, time_s: float) -> Iterator[Fault]:
    path = directory / name
    if Path(name).name != name or not path.is_file():
        yield Fault(SUMMARY, f"{field}.log", f"names {name}, which is not there")
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    for part in _LOG_PARTS:
        if not re.search(rf"^{part}\b", text, re.MULTILINE):
            yield Fault(name, "", f"has no part {part}")
    status = _LOG_STATUS.search(text)
    if status is None or status[1] != "0":
        yield Fault(name, "exit status", "is missing: the log is cut off" if status is None else f"is {status[1]}")
    times = _LOG_TIME.findall(text)
    if not times:
        yield Fault(name, "execution time", "is missing")
        return
    logged = float(times[-1][0].replace(",", "")) * _UNITS[times[-1][1]]
    if abs(logged - time_s) > _LOG_DIGITS * max(abs(logged), abs(time_s)):
        yield Fault(name, "execution time", f"is {logged:g} s, but {SUMMARY} has {time_s:g} s in {field}")


def _reports(directory: Path) -> Iterator[Fault]:
    """The report lies in the directory, or beside it."""
    found = next((path for path in (directory / REPORT, directory.parent / REPORT) if path.is_file()), None)
    if found is None:
        yield Fault(REPORT, "", "is missing")
    elif not found.read_text(encoding="utf-8", errors="replace").strip():
        yield Fault(REPORT, "", "is empty")
