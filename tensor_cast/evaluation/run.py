"""A recorded evaluation from request to results directory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from tensor_cast.devices.registry import DeviceRegistry
from tensor_cast.evaluation.advice import advise
from tensor_cast.evaluation.findings import find
from tensor_cast.evaluation.naming import results_name
from tensor_cast.evaluation.record import config_record
from tensor_cast.evaluation.report import write_report
from tensor_cast.evaluation.request import EvaluationRequest
from tensor_cast.evaluation.results import (
    CONFIG,
    SUMMARY,
    Results,
    log_name,
    put_in_place,
    staging_directory,
    write_json,
)
from tensor_cast.evaluation.simulator_process import Simulation, simulate_in_process
from tensor_cast.evaluation.summary import summarise


class Progress(Protocol):
    """Told what is being done."""

    def step(self, text: str) -> None:
        """A new piece of work begins."""

    def line(self, text: str) -> None:
        """The simulator said a line."""


class Quiet:
    """Tells nobody."""

    def step(self, text: str) -> None:
        pass

    def line(self, text: str) -> None:
        pass


@dataclass(frozen=True)
class Options:
    """How an evaluation is run and where it goes."""

    root: Path
    iterations: int = 2
    overwrite: bool = False
    language: str = "en"
    with_advice: bool = True


def evaluate(request: EvaluationRequest, options: Options, progress: Progress | None = None) -> Results:
    """Run every iteration in a process of its own, record what came out, and put the results in their place.

    Raises:
        ModelingError: the device is not known, the simulator refuses, or results cannot be written; nothing is left
            behind then.
    """
    progress = progress or Quiet()
    started = datetime.now().astimezone()
    registry = DeviceRegistry(request.device_files)
    device = registry[registry.resolve(request.device)]
    with staging_directory(options.root) as staged:
        simulations = [
            _iterate(request, staged, number, options.iterations, progress)
            for number in range(1, options.iterations + 1)
        ]
        document = simulations[0].document
        summary = summarise(simulations)
        findings = find(document, request, device)
        summary["findings"] = [
            {"rule": finding.rule, "level": finding.level, "values": finding.values} for finding in findings
        ]
        summary["advice"] = (
            advise(findings, request, document, lambda change: progress.step(f"variant {change}"))
            if options.with_advice
            else []
        )
        name = results_name(
            request.model.model, request.model.spec, device.name, _parallel(document), is_text=request.is_text
        )
        config = config_record(request, device, name, iterations=options.iterations, started=started)
        write_json(staged / CONFIG, config)
        write_json(staged / SUMMARY, summary)
        write_report(Results(staged, config, summary), options.language, title_name=str(name))
        placed = put_in_place(staged, options.root, name, overwrite=options.overwrite)
    return Results(placed, config, summary)


def _iterate(request: EvaluationRequest, staged: Path, number: int, iterations: int, progress: Progress) -> Simulation:
    progress.step(f"iteration {number} of {iterations}")
    arguments = [*request.arguments(), "--log-level", "INFO"]
    return simulate_in_process(arguments, log=staged / log_name(number), with_kernels=True, on_line=progress.line)


def _parallel(document: dict[str, Any]) -> dict[str, int]:
    parallel: dict[str, int] = document["deployment"]["parallel"]
    return parallel
