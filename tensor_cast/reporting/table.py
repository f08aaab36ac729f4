"""An Estimate as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.quantity import Quantity
from tensor_cast.reporting.kernel_tables import kernel_sections
from tensor_cast.reporting.layout import Column, Facts, Section, Sentence, Table
from tensor_cast.timed_kernels import TimedKernels
from tensor_cast.units import byte_size, count, duration, error_band, percent, plural

if TYPE_CHECKING:
    # Diffusion pipelines share the tables below, and have no use for the models that these import.
    from tensor_cast.advice import Remedy
    from tensor_cast.deployment import Deployment
    from tensor_cast.estimate import Estimate
    from tensor_cast.memory import MemoryEstimate
    from tensor_cast.models import ModelSpec
    from tensor_cast.video_advice import VideoRemedy
    from tensor_cast.video_estimate import VideoMemory

GB, GIB = 1e9, 2.0**30
_TRIED = "fewer queries, nor 8-bit weights, nor more devices of this interconnect"
_LAUNCHES = {"graph": "launched as a graph", "eager": "launched one by one"}


def report(
    estimate: Estimate,
    *,
    remedies: Sequence[Remedy] = (),
    most_queries: int | None = None,
    input_shapes: bool = False,
    op_bounds: bool = False,
    all_kernels: bool = False,
    database: Path | None = None,
) -> list[Section]:
    """All sections of the report of one point, what does not fit first.

    Args:
        estimate: of scalar quantities.
        remedies: what would make it fit, where it does not.
        most_queries: how many queries of this length fit.
        input_shapes: a row for each shape, with the shapes below it.
        op_bounds: another table with the time of every row by each bound alone.
        all_kernels: a row for each kernel, however small.
        database: where measured times came from, if not from the packaged directory.
    """
    from tensor_cast.reporting.measured import measured_sections

    sections: list[Section] = []
    if not estimate.fits:
        sections.append(Sentence(verdict(estimate.memory, remedies), "bad"))
    sections.append(configuration(estimate))
    sections += kernel_sections(
        estimate,
        estimate.collectives,
        input_shapes=input_shapes,
        op_bounds=op_bounds,
        all_kernels=all_kernels,
    )
    sections += measured_sections(estimate, database=database, model=_named(estimate.model))
    sections += [times(estimate), memory(estimate.memory, most_queries=most_queries if estimate.fits else None)]
    sections += [Sentence(f"Warning: {warning}", "warning") for warning in estimate.warnings]
    return sections


def _named(model: ModelSpec) -> str:
    """A model as another command finds it: its path or its id."""
    return model.origin.removeprefix("path: ") if model.origin.startswith("path: ") else model.name


def fusion(compiled: bool) -> str:
    """How kernels are fused, in words."""
    return "fused as by a serving engine's graph mode" if compiled else "one for each operation, not fused"


def verdict(
    memory: MemoryEstimate | VideoMemory, remedies: Sequence[Remedy | VideoRemedy], *, tried: str = _TRIED
) -> str:
    """One sentence: what is needed, what there is, and what would fit; ``tried`` in vain where there is no remedy."""
    used = float(memory.used_bytes)
    advice = f"neither {tried} would make it fit"
    if remedies:
        options = [f"{remedy.flags} ({remedy.used_bytes / GB:,.1f} GB)" for remedy in remedies]
        advice = f"it would fit with {', or with '.join(options)}"
    return (
        f"Does not fit: a device needs {used / GB:,.1f} GB ({used / GIB:,.1f} GiB) and has "
        f"{memory.device_bytes / GB:,.1f} GB ({memory.device_bytes / GIB:,.1f} GiB); {advice}."
    )


def configuration(estimate: Estimate) -> Facts:
    """What was asked for, as it was understood."""
    model, deployment = estimate.model, estimate.deployment
    rows = [
        ("model", f"{model.name}: {model.family}, {plural(len(model.layers), 'layer')}, {estimate.dtype}"),
        ("config", model.origin),
        ("parameters", parameters(estimate.parameters_total, estimate.parameters_active)),
        ("workload", _workload(estimate)),
        ("parallel", _parallel(estimate)),
        ("quantised", _quantised(estimate)),
        ("kernels", "; ".join((fusion(deployment.compile), *_fusions(estimate), _LAUNCHES[deployment.execution]))),
        ("engine", _engine(estimate)),
        ("device", device_line(estimate.device, estimate)),
        ("links", links_line(estimate.device)),
    ]
    return Facts("Configuration", tuple((name, value) for name, value in rows if value))


def _fusions(estimate: Estimate) -> Iterator[str]:
    """Further fusions by their options' names."""
    for name in ("enable_multistream", "enable_matmul_allreduce", "enable_dispatch_ffn_combine"):
        if getattr(estimate.deployment, name):
            yield name


def _engine(estimate: Estimate) -> str:
    """What the serving engine adds to the kernels of this step; nothing without one."""
    from tensor_cast.performance_model.engine import get_engine
    from tensor_cast.unmeasured import class_words, used_rows

    if estimate.deployment.engine == "none":
        return ""
    engine = get_engine(estimate.deployment.engine)
    text = f"{engine.name}: {duration(engine.own_step_s(estimate.model.expert_layers))} of its own a step"
    if not estimate.workload.decode and (first := engine.first_step_s(estimate.model.expert_layers)):
        text += f" and {duration(first)} a request"
    if engine.launch_overlap:
        text += f"; {percent(engine.launch_overlap)} of a launch hides behind the kernel before"
    for key, figures in used_rows(estimate.kernels, estimate.device, engine).items():
        text += f"; its {class_words(key)} {_of_row(figures)}"
    return text


def _of_row(figures: Mapping[str, float]) -> str:
    """What kernels reach of the peaks, and what each costs beside."""
    peaks = (("matrix_efficiency", "the matrix peak"), ("memory_efficiency", "the bandwidth"))
    reached = [f"{percent(figures[figure])} of {peak}" for figure, peak in peaks if figure in figures]
    words = [f"reach {' and '.join(reached)}"] if reached else []
    if "fixed_s" in figures:
        words.append(f"take {duration(figures['fixed_s'])} each beside")
    return ", and ".join(words)


def parameters(total: int, active: int) -> str:
    """Parameters, exactly and roundly."""
    if active == total:
        return f"{total:,} ({count(total)}), all of them active"
    return f"{total:,} ({count(total)}), {active:,} ({count(active)}) active a token"


def _workload(estimate: Estimate) -> str:
    workload = estimate.workload
    queries, query_length = float(workload.num_queries), float(workload.query_length)
    kind = "decode" if workload.decode else "prefill"
    text = (
        f"{kind}: {plural(queries, 'query')} x {plural(query_length, 'token')} = "
        f"{plural(queries * query_length, 'token')}"
    )
    text += f", {workload.context_length:,.0f} already in the context of each"
    if workload.prefix_cache_hit_rate:
        cached = query_length - float(workload.computed_query_length)
        text += f", {cached:,.0f} of each found in the prefix cache"
    if workload.image_batch_size:
        images = plural(workload.image_batch_size, "image")
        text += f", {images} of {workload.image_width} x {workload.image_height} pixels in each"
    if workload.drafted_tokens:
        drafter = f" by {estimate.model.draft.name}" if estimate.model.draft and workload.num_draft_tokens else ""
        text += f", {plural(workload.drafted_tokens, 'token')} drafted{drafter}"
        text += f" ({float(workload.tokens_per_sequence):.3g} expected a step)"
    if estimate.deployment.block_size > 1:
        text += f", KV cache in blocks of {plural(estimate.deployment.block_size, 'token')}"
    return text


def _parallel(estimate: Estimate) -> str:
    sizes = estimate.parallel
    if sizes.world == 1:
        return "1 device"
    text = f"{sizes.world:,} devices = tp {sizes.tp} x dp {sizes.dp} x pp {sizes.pp}"
    if estimate.model.has_experts:
        text += f"; experts ep {sizes.ep} x tp {sizes.moe_tp} x dp {sizes.moe_dp}"
        text += "".join(f", {words}" for words in _expert_options(estimate.deployment))
    others = {"mlp": sizes.mlp_tp, "o_proj": sizes.o_proj_tp, "lm_head": sizes.lmhead_tp}
    text += "".join(f"; {name} tp {size}" for name, size in others.items() if size != sizes.tp)
    if sizes.dcp > 1:
        text += f"; decode context parallel {sizes.dcp}"
    if estimate.deployment.enable_sequence_parallel:
        text += "; sequence parallel"
    if estimate.deployment.vision_tp_size is not None and estimate.model.vision is not None:
        text += f"; vision encoder tp {estimate.deployment.vision_tp_size}"
    return text


def _expert_options(deployment: Deployment) -> Iterator[str]:
    if deployment.expert_skew not in (None, 1.0):
        yield f"the busiest rank {deployment.expert_skew:g} x the mean"
    if deployment.enable_redundant_experts:
        yield "a spare one on each rank"
    if deployment.enable_shared_expert_tp:
        yield "shared ones over tp"
    if deployment.shared_expert_ranks:
        yield f"shared ones alone on {plural(deployment.shared_expert_ranks, 'rank')}"


def _quantised(estimate: Estimate) -> str:
    deployment = estimate.deployment
    linear, others = deployment.quantize_linear, deployment.quantize_non_expert_linear or deployment.quantize_linear
    text = f"linear layers {linear}"
    if deployment.uses_checkpoint:
        text += f" ({estimate.model.quantization})"
    if others != linear:
        text = f"experts {linear}, other linear layers {others}"
    head = others if deployment.quantize_lmhead else "DISABLED"
    return f"{text}, output head {head}, attention {deployment.quantize_attention}"


def device_line(device: DeviceProfile, estimate: TimedKernels) -> str:
    """The device with the rates that ``estimate`` uses."""
    dtypes = dict.fromkeys(k.op.matrix_dtype for k in estimate.kernels if np.any(np.greater(k.op.matrix_flops, 0.0)))
    rates = ", ".join(f"{device.matrix_flops[d] / 1e12:,.4g} {d} TFLOP/s" for d in dtypes if d in device.matrix_flops)
    return f"{device.name}: {rates}, {device.memory_bandwidth / GB:,.4g} GB/s, {device.memory_bytes / GIB:,.4g} GiB"


def links_line(device: DeviceProfile) -> str:
    """The levels of a device's interconnect."""
    levels = [level for level in device.interconnect.levels if level.size > 1]
    return " x ".join(
        f"{level.size} {level.name} ({level.topology.replace('_', ' ')}, {level.bandwidth / GB:,.4g} GB/s)"
        for level in levels
    )


def times(estimate: Estimate) -> Facts:
    """The answer."""
    band = error_band(float(estimate.error_low), float(estimate.error_high))
    rows = [("execution time", f"{duration(float(estimate.total_time_s))} ({band})")]
    if idle := float(estimate.idle_s):
        engine = "" if estimate.deployment.engine == "none" else ", the engine among it"
        where = f"between launches (in the rows of analytic times) and waiting for the host{engine}"
        rows.append(("without a kernel", f"{duration(idle)} of it, {where}"))
    if encoder := float(estimate.encoder_time_s):
        rows.append(("vision encoder", f"{duration(encoder)} of it"))
    if estimate.ttft_s is not None:
        rows.append(("TTFT", f"{duration(float(estimate.ttft_s))}, without queueing"))
    if estimate.tpot_s is not None:
        tpot = float(estimate.tpot_s)
        rows.append(("TPOT", f"{duration(tpot)}, {1.0 / tpot:,.1f} tokens/s of one sequence"))
    per_device = float(estimate.tokens_per_s_per_device)
    whole = f", {per_device * estimate.parallel.world:,.1f} tokens/s in all" if estimate.parallel.world > 1 else ""
    rows.append(("throughput", f"{per_device:,.1f} tokens/s a device{whole}"))
    return Facts("Time", tuple(rows))


def memory(estimate: MemoryEstimate, *, most_queries: int | None = None) -> Table:
    """Bytes on the fullest device, in GB and in GiB, and how many queries would fit."""
    parts = {
        "weights": estimate.weights_bytes,
        "KV cache": estimate.kv_cache_bytes,
        "state": estimate.state_bytes,
        "activations": estimate.activation_bytes,
        "reserved": estimate.reserved_bytes,
        "used": estimate.used_bytes,
        "device": estimate.device_bytes,
    }
    rows = [(name, size) for name, size in parts.items() if name != "state" or float(size) > 0.0]
    notes = []
    if encoder := float(estimate.encoder_weights_bytes):
        notes.append(f"{byte_size(encoder)} of the weights are the vision encoder's.")
    if most_queries is not None:
        notes.append(f"At most {plural(most_queries, 'query')} of this length fit at once (--num-queries).")

    def cells(name: str, size: Quantity) -> tuple[str, ...]:
        value = float(size)
        return (name, f"{value / GB:,.3f}", f"{value / GIB:,.3f}", f"{value / estimate.device_bytes:.1%}")

    return Table(
        "Memory of the fullest device",
        (
            Column(""),
            Column("GB (1e9)", right=True),
            Column("GiB (2^30)", right=True),
            Column("of device", right=True),
        ),
        tuple(cells(name, size) for name, size in rows),
        total=cells("available", estimate.available_bytes),
        note=" ".join(notes),
    )
