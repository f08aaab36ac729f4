"""How much of a run's time is measured, what is not, and how to measure it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

from tensor_cast.performance_model.profiling_database.schema import FUSED_ATTENTION
from tensor_cast.reporting.layout import Column, Facts, Section, Sentence, Table
from tensor_cast.units import column_unit
from tensor_cast.unmeasured import UnmeasuredKernel, collectives_to_measure, kernels_to_measure, unmeasured_kernels

if TYPE_CHECKING:
    # The tables of language models do without what diffusion pipelines are made of, and the other way round.
    from tensor_cast.estimate import Estimate
    from tensor_cast.video_estimate import VideoEstimate

_HEAVIEST = 8
_SHARE = "share of kernels"
_LENGTHS = (
    "A profile does not record the lengths of an attention's sequences, and rows without them answer for no "
    "simulation: generate_shape_grid.py adds rows that have them."
)


def measured_sections(
    estimate: Estimate | VideoEstimate, *, database: Path | None = None, model: str = ""
) -> list[Section]:
    """Where times come from, the heaviest kernels that are not measured, and the commands that measure them.

    Nothing for the analytic model.

    Args:
        estimate: of scalar quantities.
        database: where measured times came from; by default the packaged directory of the device.
        model: a language model whose sizes ``generate_shape_grid.py`` can make, as it is named there.
    """
    if estimate.performance_model == "analytic":
        return []
    heaviest = unmeasured_kernels(estimate.kernels)[:_HEAVIEST]
    sections: list[Section] = [_sources(estimate)]
    if heaviest:
        sections.append(_unmeasured(heaviest))
    rows = _commands(estimate, heaviest, database, model)
    if rows:
        sections.append(Facts("Next to measure, in this order (tools/perf_data_collection)", rows))
    if any(FUSED_ATTENTION in row.kernel_types for row in heaviest):
        sections.append(Sentence(_LENGTHS))
    return sections


def _commands(
    estimate: Estimate | VideoEstimate, heaviest: Sequence[UnmeasuredKernel], database: Path | None, model: str
) -> tuple[tuple[str, str], ...]:
    """What adds rows, what measures them, and what measures collectives; a replay measures only rows that are there."""
    where = _database_flags(estimate.device.name, database)
    rows = []
    if kernels := kernels_to_measure(heaviest):
        models = ["--target-models", model] if model else []
        grid = ["generate_shape_grid.py", *where, *models, "--ops", *kernels]
        replay = ["start_microbench.py", *where, "--update-mode", "missing-only", "--ops", *kernels]
        rows += [("rows to measure", join(grid)), ("their times", join(replay))]
    kinds, groups = collectives_to_measure(estimate.kernels, heaviest)
    if kinds:
        directory = _collectives_directory(estimate.device.name) if database is None else database
        tool = ["comm_bench/generate_comm_microbench.py", "--database-path", str(directory), "--ops", *kinds]
        tool += ["--num-devices", *map(str, groups)]
        rows.append(("collectives", join(["torchrun", f"--nproc_per_node={groups[0]}", *tool])))
    return tuple(rows)


def _database_flags(device: str, database: Path | None) -> list[str]:
    """How the tools are told the directory: by its path, or the packaged one by its name."""
    if database is not None:
        return ["--database-path", str(database)]
    from tensor_cast.performance_model.empirical import packaged_database

    return ["--device", device, "--vllm-version", packaged_database(device).name]


def _collectives_directory(device: str) -> Path:
    from tensor_cast.performance_model.empirical import packaged_database
    from tensor_cast.performance_model.profiling_database.paths import communication_directories

    packaged = packaged_database(device)
    return next(iter(communication_directories(packaged)), packaged)


def _sources(estimate: Estimate | VideoEstimate) -> Table:
    seconds = {source: float(value) for source, value in estimate.sources_s.items()}
    total = sum(seconds.values())
    size, unit = column_unit(list(seconds.values()))
    return Table(
        "Where times come from",
        (Column("source"), Column(f"total {unit}", right=True), Column(_SHARE, right=True)),
        tuple((source, f"{value / size:,.3f}", f"{value / total:.1%}") for source, value in seconds.items()),
    )


def _unmeasured(rows: list[UnmeasuredKernel]) -> Table:
    columns = (
        Column("kernel", breakable=True),
        Column("part", breakable=True),
        Column("of the device", breakable=True),
        Column(_SHARE, right=True),
        Column("source"),
    )
    return Table(
        "Heaviest kernels that are not measured",
        columns,
        tuple((row.name, row.part, ", ".join(row.kernel_types) or "?", f"{row.share:.1%}", row.source) for row in rows),
    )
