"""Collectives for tests."""

from __future__ import annotations

from tensor_cast.ops import Collective, CollectiveKind
from tensor_cast.quantity import Quantity


def collective(kind: CollectiveKind, size: Quantity, group: int, stride: int = 1) -> Collective:
    """A collective of ``size`` bytes, the whole tensor."""
    return Collective(
        name=kind, part="p", kind=kind, inputs=(), outputs=(), message_bytes=size, group_size=group, stride=stride
    )
