"""Times of a graph on a device: the steps that every simulation shares."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from tensor_cast.checks import text
from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.errors import ModelingError, did_you_mean
from tensor_cast.graph import Block, Graph, Node
from tensor_cast.ops import Collective, Overlapped
from tensor_cast.performance_model.collectives import outermost_link
from tensor_cast.performance_model.engine import Engine, chained
from tensor_cast.performance_model.error import error_band
from tensor_cast.performance_model.roofline import KernelTime
from tensor_cast.performance_model.timing import ANALYTIC, Timer, Timing, analytic_timer
from tensor_cast.timed_kernels import CollectiveEstimate, KernelEstimate

PERFORMANCE_MODELS = ("analytic", "profiling")
"""Where kernel times come from: the roofline and its corrections, or measured rows."""


def device_profile(device: str | DeviceProfile) -> DeviceProfile:
    """The profile itself, or the one of that name."""
    if isinstance(device, DeviceProfile):
        return device
    from tensor_cast.devices import get_device

    return get_device(text(device, "device"))


def check_world(device: DeviceProfile, world_size: int) -> None:
    """Refuse a world that the device's interconnect does not join."""
    joined = device.interconnect.device_count
    if world_size > joined == 1:
        raise ModelingError(
            f"--world-size {world_size} needs links between devices, and the profile of {device.name} has none: "
            "describe them in a profile of your own (--device-file)."
        )
    if world_size > joined:
        shape = " x ".join(map(str, device.interconnect.shape))
        raise ModelingError(
            f"--world-size {world_size} is more than the {joined} devices that the interconnect of "
            f"{device.name} joins ({shape}); describe a larger one in a profile of your own (--device-file)."
        )


def performance_timer(
    device: DeviceProfile, model: str = "analytic", database: str | Path | None = None, *, interpolate: bool = True
) -> Timer:
    """The performance model called ``model`` of ``device``.

    Args:
        device: what is timed.
        model: one of ``PERFORMANCE_MODELS``: ``profiling`` takes measured times and falls back to the analytic ones.
        database: directory of measured times; by default the one of the device that comes with the package.
        interpolate: whether measured times also answer for sizes near the measured ones.

    Raises:
        ModelingError: there is no such model, or no such database.
    """
    if text(model, "performance_model") not in PERFORMANCE_MODELS:
        raise ModelingError(
            f"Unknown performance_model {model!r}: one of {', '.join(PERFORMANCE_MODELS)}."
            f"{did_you_mean(model, PERFORMANCE_MODELS)}"
        )
    if model == "analytic":
        if database is not None:
            raise ModelingError("A profiling database is given, but performance_model is analytic: make it profiling.")
        return analytic_timer(device)
    from tensor_cast.performance_model.empirical import EmpiricalTimer

    return EmpiricalTimer(device, None if database is None else Path(database), interpolate=interpolate)


def price(
    graph: Graph, device: DeviceProfile, timer: Timer | None = None, engine: Engine | None = None
) -> list[KernelEstimate]:
    """Every kernel of ``graph``, timed; by the analytic model of ``device`` unless another is given.

    ``engine`` says how far launches overlap; without one each kernel pays its whole fixed cost.
    """
    timer = timer or analytic_timer(device)
    return [_price(block, node, timer, device, engine) for block, node in graph.nodes()]


def _price(block: Block, node: Node, timer: Timer, device: DeviceProfile, engine: Engine | None) -> KernelEstimate:
    timing = timer(node.op)
    low, high = error_band(node.op, timing, device)
    # A collective waits for its peers: its launch hides nothing.
    time = timing.time if isinstance(node.op, Collective) else _in_a_graph(timing, engine)
    return KernelEstimate(
        op=node.op,
        block=block.name,
        count=block.count,
        stream=node.stream,
        section=node.section,
        timing=replace(timing, time=time, error_low=low, error_high=high),
        layers=block.layers,
        gap_s=device.launch_gap_s,
    )


def _in_a_graph(timing: Timing, engine: Engine | None) -> KernelTime:
    """A measured time, and one that follows measured neighbours, is of the device alone: no launch is in it to hide."""
    hidden = chained(timing.time, engine)
    if hidden is timing.time:
        return hidden
    return replace(hidden, fixed_s=np.where(timing.codes == ANALYTIC, hidden.fixed_s, timing.time.fixed_s))


def collectives(graph: Graph, device: DeviceProfile, timer: Timer | None = None) -> list[CollectiveEstimate]:
    """Every collective of ``graph``, those inside fused kernels too; timed as by ``price``."""
    timer = timer or analytic_timer(device)
    found = []
    for block, node in graph.nodes():
        parts = node.op.collectives if isinstance(node.op, Overlapped) else (node.op,)
        for op in parts:
            if isinstance(op, Collective):
                link = outermost_link(device, op)
                seconds = timer(op).time.total_s
                hidden = isinstance(node.op, Overlapped)
                found.append(
                    CollectiveEstimate(
                        name=op.kind,
                        part=op.part,
                        count=block.count,
                        bytes=op.message_bytes,
                        group_size=op.group_size,
                        stride=op.stride,
                        link=link.name,
                        total_s=seconds * block.count,
                        fused=hidden,
                    )
                )
    return found
