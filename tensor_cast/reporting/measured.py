"""How much of a run's time is measured, and what is not."""

from __future__ import annotations

from tensor_cast.estimate import Estimate
from tensor_cast.reporting.layout import Column, Section, Sentence, Table
from tensor_cast.reporting.units import column_unit
from tensor_cast.unmeasured import UnmeasuredKernel, kernels_to_measure, unmeasured_kernels
from tensor_cast.video_estimate import VideoEstimate

_HEAVIEST = 8


def measured_sections(estimate: Estimate | VideoEstimate) -> list[Section]:
    """Where times come from and the heaviest kernels that are not measured; nothing for the analytic model."""
    if estimate.performance_model == "analytic":
        return []
    heaviest = unmeasured_kernels(estimate.kernels)[:_HEAVIEST]
    sections: list[Section] = [_sources(estimate)]
    if heaviest:
        sections.append(_unmeasured(heaviest))
    kernels = kernels_to_measure(heaviest)
    if kernels:
        sections.append(Sentence(f"Next to measure: start_microbench.py --ops {' '.join(kernels)}"))
    return sections


def _sources(estimate: Estimate | VideoEstimate) -> Table:
    seconds = {source: float(value) for source, value in estimate.sources_s.items()}
    total = sum(seconds.values())
    size, unit = column_unit(list(seconds.values()))
    return Table(
        "Where times come from",
        (Column("source"), Column(f"total {unit}", right=True), Column("share", right=True)),
        tuple((source, f"{value / size:,.3f}", f"{value / total:.1%}") for source, value in seconds.items()),
    )


def _unmeasured(rows: list[UnmeasuredKernel]) -> Table:
    columns = (
        Column("kernel", breakable=True),
        Column("part", breakable=True),
        Column("of the device", breakable=True),
        Column("share", right=True),
        Column("source"),
    )
    return Table(
        "Heaviest kernels that are not measured",
        columns,
        tuple((row.name, row.part, ", ".join(row.kernel_types) or "?", f"{row.share:.1%}", row.source) for row in rows),
    )
