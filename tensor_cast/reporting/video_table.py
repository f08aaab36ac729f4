"""A VideoEstimate as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tensor_cast.reporting import table
from tensor_cast.reporting.kernel_tables import kernel_sections
from tensor_cast.reporting.layout import Column, Facts, Section, Sentence, Table
from tensor_cast.reporting.measured import measured_sections
from tensor_cast.units import byte_size, column_unit, count, duration, error_band, percent, plural
from tensor_cast.video_advice import VideoRemedy
from tensor_cast.video_estimate import VideoEstimate, VideoMemory

GB, GIB = 1e9, 2.0**30
_TRIED = "offloading, nor 8-bit weights, nor Ulysses over 8 devices alone"
_STAGE_NAMES = {"text": "text encoder", "denoise": "denoising", "vae": "VAE"}


def report(
    estimate: VideoEstimate,
    *,
    remedies: Sequence[VideoRemedy] = (),
    input_shapes: bool = False,
    op_bounds: bool = False,
    all_kernels: bool = False,
    database: Path | None = None,
) -> list[Section]:
    """All sections of the report of one point, what does not fit first.

    Args:
        estimate: of scalar quantities.
        remedies: what would make it fit, where it does not.
        input_shapes: a row for each shape, with the shapes below it.
        op_bounds: another table with the time of every row by each bound alone.
        all_kernels: a row for each kernel, however small.
        database: where measured times came from, if not from the packaged directory.
    """
    sections: list[Section] = []
    if not estimate.fits:
        sections.append(Sentence(table.verdict(estimate.memory, remedies, tried=_TRIED), "bad"))
    sections.append(configuration(estimate))
    sections += kernel_sections(
        estimate,
        estimate.collectives,
        input_shapes=input_shapes,
        op_bounds=op_bounds,
        all_kernels=all_kernels,
    )
    sections += measured_sections(estimate, database=database)
    sections += [stages(estimate), times(estimate), memory(estimate.memory)]
    sections += [Sentence(f"Warning: {warning}", "warning") for warning in estimate.warnings]
    return sections


def configuration(estimate: VideoEstimate) -> Facts:
    """What was asked for, as it was understood."""
    pipeline, deployment = estimate.pipeline, estimate.deployment
    rows = [
        ("model", f"{pipeline.name}: {pipeline.kind or 'pipeline'}, {_denoisers(estimate)}, {deployment.dtype}"),
        ("config", pipeline.origin),
        ("parameters", ", ".join(f"{name} {n:,} ({count(n)})" for name, n in estimate.parameters.items())),
        ("workload", _workload(estimate)),
        ("tokens", _tokens(estimate)),
        ("parallel", _parallel(estimate)),
        ("quantised", f"linear layers {deployment.quantize_linear}, attention {deployment.quantize_attention}"),
        ("attention", _attention(estimate)),
        ("step cache", _step_cache(estimate)),
        ("kernels", table.fusion(deployment.compile)),
        ("device", table.device_line(estimate.device, estimate)),
        ("links", table.links_line(estimate.device)),
    ]
    return Facts("Configuration", tuple((name, value) for name, value in rows if value))


def _denoisers(estimate: VideoEstimate) -> str:
    denoisers = estimate.pipeline.denoisers
    blocks = plural(estimate.pipeline.denoiser.blocks, "block")
    return blocks if len(denoisers) == 1 else f"{len(denoisers)} denoisers of {blocks}"


def _workload(estimate: VideoEstimate) -> str:
    workload = estimate.workload
    size = f"{float(workload.height):,.0f} x {float(workload.width):,.0f}"
    frames = f" x {plural(float(workload.frame_num), 'frame')}" if estimate.pipeline.makes_video else ""
    guidance = ", classifier-free guidance" if workload.use_cfg else ""
    batch = float(workload.batch_size)
    samples = "" if batch == 1 else f"{batch:,.0f} x "
    return f"{samples}{size}{frames}, {plural(float(workload.sample_step), 'step')}{guidance}"


def _tokens(estimate: VideoEstimate) -> str:
    tokens = estimate.tokens
    text = f"{float(tokens.video):,.0f} of {'video' if estimate.pipeline.makes_video else 'image'}"
    given = float(estimate.pipeline.reference_tokens(estimate.workload))
    text += f", {given:,.0f} of given images" if given else ""
    text += f", {float(tokens.text):,.0f} of text and other conditions"
    if estimate.parallel.ulysses > 1:
        text += f"; {float(tokens.per_rank):,.0f} on each rank"
    return text


def _parallel(estimate: VideoEstimate) -> str:
    sizes = estimate.parallel
    if sizes.world == 1:
        return "1 device"
    return f"{sizes.world:,} devices = ulysses {sizes.ulysses} x cfg {sizes.cfg}"


def _attention(estimate: VideoEstimate) -> str:
    deployment = estimate.deployment
    if deployment.attention_backend == "flash_attention_2":
        return "FlashAttention-2"
    if not deployment.sparse:
        return ""
    return (
        f"block sparse: {deployment.attention_sparsity:.0%} of blocks of {deployment.attention_block_size} keys "
        "skipped; choosing them is not priced"
    )


def _step_cache(estimate: VideoEstimate) -> str:
    cache = estimate.deployment.dit_cache
    if cache is None:
        return ""
    (first, last), (block, end) = cache.step_range, cache.block_range
    return f"in steps {first} to {last - 1} the blocks {block} to {end - 1} run every {cache.step_interval} steps"


def stages(estimate: VideoEstimate) -> Table:
    """Time of each stage and of each of its runs."""
    found = estimate.stage_times_s
    whole = float(estimate.total_time_s)
    unit = column_unit([float(seconds) for seconds in found.values()])
    run_unit = column_unit([float(run.total_time_s) for run in estimate.runs])
    rows = []
    for stage, seconds in found.items():
        total = float(seconds)
        rows.append((_STAGE_NAMES[stage], "", "", f"{total / unit[0]:,.3f}", percent(total / whole)))
        for run in estimate.runs:
            if run.stage == stage:
                total = float(run.all_runs_s)
                cells = (f"{float(run.repeats):,.4g}", f"{float(run.total_time_s) / run_unit[0]:,.3f}")
                rows.append((f"  {run.name}", *cells, f"{total / unit[0]:,.3f}", percent(total / whole)))
    columns = (
        Column("stage"),
        Column("runs", right=True),
        Column(f"a run {run_unit[1]}", right=True),
        Column(f"total {unit[1]}", right=True),
        Column("share", right=True),
    )
    left_out = [_STAGE_NAMES[stage] for stage in ("text", "vae") if not float(found.get(stage, 0.0))]
    note = f"Not priced: {', '.join(left_out)}." if left_out else ""
    return Table("Stages", columns, tuple(rows), note=note)


def times(estimate: VideoEstimate) -> Facts:
    """The answer."""
    forwards = plural(float(estimate.forwards), "forward")
    band = error_band(float(estimate.error_low), float(estimate.error_high))
    rows = (
        ("whole generation", f"{duration(float(estimate.total_time_s))} ({band})"),
        ("a step", f"{duration(float(estimate.step_time_s))} on average"),
        ("a forward", f"{duration(float(estimate.forward_time_s))}; {forwards} a rank"),
        ("FLOPs a forward", f"{float(estimate.flops_per_forward):.4e} over all ranks"),
    )
    return Facts("Time", rows)


def memory(estimate: VideoMemory) -> Table:
    """Bytes on a device, in GB and in GiB."""
    rows: list[tuple[str, ...]] = []

    def cells(name: str, size: object) -> tuple[str, ...]:
        value = float(size)  # type: ignore[arg-type]
        return (name, f"{value / GB:,.3f}", f"{value / GIB:,.3f}", f"{value / estimate.device_bytes:.1%}")

    for part in estimate.components:
        if part.resident:
            rows.append(cells(part.name, part.bytes))
    for stage, size in estimate.activation_bytes.items():
        rows.append(cells(f"activations, {_STAGE_NAMES[stage]}", size))
    if np.any(np.greater(estimate.step_cache_bytes, 0.0)):
        rows.append(cells("step cache", estimate.step_cache_bytes))
    rows += [
        cells("reserved", estimate.reserved_bytes),
        cells("used in the fullest stage", estimate.used_bytes),
        cells("device", estimate.device_bytes),
    ]
    away = [f"{part.name} ({byte_size(float(part.bytes))})" for part in estimate.components if not part.resident]
    return Table(
        "Memory of a device: weights that stay there, activations of each stage",
        (
            Column(""),
            Column("GB (1e9)", right=True),
            Column("GiB (2^30)", right=True),
            Column("of device", right=True),
        ),
        tuple(rows),
        total=cells("available", estimate.available_bytes),
        note=f"Not on the device: {', '.join(away)}." if away else "",
    )
