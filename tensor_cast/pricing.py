"""Times of a graph on a device: the steps that every simulation shares."""

from __future__ import annotations

from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.errors import ModelingError
from tensor_cast.graph import Block, Graph, Node
from tensor_cast.ops import Collective, Overlapped
from tensor_cast.performance_model.analytic import analytic_time
from tensor_cast.performance_model.collectives import outermost_link
from tensor_cast.timed_kernels import CollectiveEstimate, KernelEstimate


def device_profile(device: str | DeviceProfile) -> DeviceProfile:
    """The profile itself, or the one of that name."""
    if isinstance(device, DeviceProfile):
        return device
    from tensor_cast.devices import get_device

    return get_device(device)


def check_world(device: DeviceProfile, world_size: int) -> None:
    """Refuse a world that the device's interconnect does not join."""
    joined = device.interconnect.device_count
    if world_size > joined:
        shape = " x ".join(map(str, device.interconnect.shape)) or "none"
        raise ModelingError(
            f"--world-size {world_size} is more than the {joined} devices that the interconnect of "
            f"{device.name} joins ({shape}); describe a larger one in a profile of your own (--device-file)."
        )


def price(graph: Graph, device: DeviceProfile) -> list[KernelEstimate]:
    """Every kernel of ``graph``, timed."""
    return [_price(block, node, device) for block, node in graph.nodes()]


def _price(block: Block, node: Node, device: DeviceProfile) -> KernelEstimate:
    return KernelEstimate(
        op=node.op,
        block=block.name,
        count=block.count,
        stream=node.stream,
        section=node.section,
        time=analytic_time(node.op, device),
        source="analytic",
        layers=block.layers,
    )


def collectives(graph: Graph, device: DeviceProfile) -> list[CollectiveEstimate]:
    """Every collective of ``graph``, those inside fused kernels too."""
    found = []
    for block, node in graph.nodes():
        parts = node.op.collectives if isinstance(node.op, Overlapped) else (node.op,)
        for op in parts:
            if isinstance(op, Collective):
                link = outermost_link(device, op)
                seconds = analytic_time(op, device).total_s
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
