"""Analytic time of collectives on a grid of links."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensor_cast.devices.profile import CollectiveCost, DeviceProfile, LinkLevel
from tensor_cast.errors import ModelingError
from tensor_cast.ops import Collective
from tensor_cast.performance_model.roofline import KernelTime
from tensor_cast.quantity import Quantity


@dataclass(frozen=True)
class LevelShare:
    """Part of one level of links in a collective: ``peers`` meet over ``link``; ``reached`` members in all so far."""

    link: LinkLevel
    peers: int
    reached: int


def levels_of_group(device: DeviceProfile, size: int, stride: int) -> list[LevelShare]:
    """Link levels that a group of ``size`` ranks, ``stride`` apart and aligned, communicates over, innermost first.

    Raises:
        ModelingError: the group does not fit in the device's interconnect.
    """
    span = size * stride
    if span > device.interconnect.device_count:
        raise ModelingError(
            f"A group of {size} ranks {stride} apart spans {span} devices, but the interconnect of {device.name} joins "
            f"{device.interconnect.device_count} ({' x '.join(map(str, device.interconnect.shape))})."
        )
    shares = []
    block, reached = 1, 1
    for link in reversed(device.interconnect.levels):
        block *= link.size
        members = min(size, max(1, block // stride))
        if members > reached:
            shares.append(LevelShare(link, -(-members // reached), members))
            reached = members
    return shares


def outermost_link(device: DeviceProfile, op: Collective) -> LinkLevel:
    """The farthest link that a collective crosses."""
    return levels_of_group(device, op.group_size, op.stride)[-1].link


def collective_time(op: Collective, device: DeviceProfile) -> KernelTime:
    """Time of one collective.

    Reductions and gathers run level by level (a reduce-scatter from the inner level outwards, an all-gather back): a
    level of ``p`` peers moves ``(p - 1) / p`` of the data that is left to it, each peer sending to all others at once,
    and hands over ``p - 1`` times. An all-to-all sends on each level what is meant for the members that only this level
    reaches; levels work at the same time, unless they share their ports. A small all-reduce is taken at one go where
    the device has a kernel for it.

    Raises:
        ModelingError: the group does not fit in the device's interconnect.
    """
    shares = levels_of_group(device, op.group_size, op.stride)
    cost = device.collective
    seconds: Quantity = 0.0
    latency = cost.fixed_s
    remaining = op.message_bytes
    for share in shares:
        bandwidth = share.link.group_bandwidth(share.peers) * cost.link_efficiency
        match op.kind:
            case "all_reduce" | "all_gather" | "reduce_scatter":
                passes = 2 if op.kind == "all_reduce" else 1
                sent = remaining * (share.peers - 1) / share.peers
                seconds = seconds + passes * sent / bandwidth
                remaining = remaining / share.peers
                latency += passes * (share.link.latency_s + cost.peer_s * (share.peers - 1))
            case "all_to_all":
                latency += share.link.latency_s + cost.peer_s
            case "p2p":
                seconds = np.maximum(seconds, op.message_bytes / bandwidth)
                latency = cost.fixed_s + share.link.latency_s
    if op.kind == "all_to_all":
        seconds = _direct_s(op.message_bytes / op.group_size, shares, cost)
    time = KernelTime(0.0, 0.0, 0.0, seconds, latency + _schedule_s(op, cost))
    if op.kind == "all_reduce" and cost.one_shot_s:
        return _faster(time, _one_shot_time(op, shares, cost))
    return time


def _schedule_s(op: Collective, cost: CollectiveCost) -> Quantity:
    """What it costs to lay out the schedule of a collective that is too large for one kernel."""
    if op.kind == "p2p":
        return 0.0
    limit = cost.direct_reduce_bytes if op.kind in ("all_reduce", "reduce_scatter") else cost.direct_bytes
    return np.where(np.greater(op.message_bytes, op.group_size * limit), cost.schedule_s, 0.0)


def _one_shot_time(op: Collective, shares: list[LevelShare], cost: CollectiveCost) -> KernelTime:
    """Every rank sends its whole tensor to all others: more bytes, one latency (AllReduce kernels of TensorRT-LLM)."""
    seconds = _direct_s(op.message_bytes, shares, cost)
    return KernelTime(0.0, 0.0, 0.0, seconds, cost.one_shot_s + sum(share.link.latency_s for share in shares))


def _direct_s(bytes_per_member: Quantity, shares: list[LevelShare], cost: CollectiveCost) -> Quantity:
    """Seconds in which a rank sends ``bytes_per_member`` to each other member over the level that reaches it."""
    longest: Quantity = 0.0
    on_ports: Quantity = 0.0
    for share in shares:
        before = share.reached // share.peers
        bandwidth = share.link.group_bandwidth(share.peers) * cost.link_efficiency
        level_s = bytes_per_member * (share.reached - before) / bandwidth
        on_ports = on_ports + level_s if share.link.shares_ports else level_s
        longest = np.maximum(longest, on_ports)
    return longest


def _faster(one: KernelTime, other: KernelTime) -> KernelTime:
    """The shorter of two, point by point."""
    first = one.total_s <= other.total_s
    return KernelTime(
        0.0, 0.0, 0.0, np.where(first, one.comm_s, other.comm_s), np.where(first, one.fixed_s, other.fixed_s)
    )
