"""Accelerators: their rates, memory and links, read from one YAML file a family."""

from __future__ import annotations

from tensor_cast.devices.profile import (
    KERNEL_CLASSES,
    CollectiveCost,
    DeviceProfile,
    Interconnect,
    KernelClass,
    KernelCost,
    LinkLevel,
    Topology,
)
from tensor_cast.devices.registry import DeviceRegistry, get_device, load_device_file

__all__ = [
    "KERNEL_CLASSES",
    "CollectiveCost",
    "DeviceProfile",
    "DeviceRegistry",
    "Interconnect",
    "KernelClass",
    "KernelCost",
    "LinkLevel",
    "Topology",
    "get_device",
    "load_device_file",
]
