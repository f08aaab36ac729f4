"""A forward pass as data: kernels in order, each layer kind once with the layers that it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tensor_cast.ops import Op, Tensor
from tensor_cast.quantity import Quantity

Place = Literal["first", "between", "last"]
"""Pipeline stages that run a block without layers: the first, each but the last, the last."""


@dataclass(frozen=True, eq=False)
class Node:
    """One kernel of a block.

    ``stream`` 0 is the main one. Kernels of the same ``section`` on different streams run at the same time; ``None``
    means that nothing runs beside.
    """

    op: Op
    stream: int = 0
    section: int | None = None


@dataclass(eq=False)
class Block:
    """Kernels that run ``count`` times: all layers of one kind, or the embedding, or the head.

    ``layers`` are the indices of the decoder layers that the block stands for; empty for what is not a layer.
    ``weight_copies`` is how often its weights are stored. ``part`` is that of a model beside the main one, which the
    parts of its kernels are then under. ``place`` says which pipeline stages run a block without ``layers``.
    """

    name: str
    count: int
    layers: tuple[int, ...]
    weight_copies: int
    part: str = ""
    place: Place = "last"
    nodes: list[Node] = field(default_factory=list)

    def weights(self) -> dict[Tensor, None]:
        """The block's weight tensors, each once, in order of use."""
        return dict.fromkeys(t for node in self.nodes for t in node.op.inputs if t.role == "weight")


class Graph:
    """Blocks of nodes, in execution order. Layers ``emit`` kernels; ``block`` and ``section`` scope them."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._open: Block | None = None
        self._section: int | None = None
        self._sections = 0
        self._stream = 0
        self._captured: list[Op] | None = None

    @contextmanager
    def block(
        self,
        name: str,
        count: int = 1,
        layers: tuple[int, ...] = (),
        weight_copies: int | None = None,
        part: str = "",
        *,
        place: Place = "last",
    ) -> Iterator[Block]:
        """Open a block; what is emitted inside belongs to it."""
        block = Block(name, count, layers, count if weight_copies is None else weight_copies, part, place)
        self.blocks.append(block)
        outer, self._open = self._open, block
        try:
            yield block
        finally:
            self._open = outer

    @contextmanager
    def section(self) -> Iterator[None]:
        """Kernels inside may run beside each other when they are on different streams."""
        self._sections += 1
        self._section = self._sections
        try:
            yield
        finally:
            self._section = None

    @contextmanager
    def side_stream(self, stream: int = 1) -> Iterator[None]:
        """Kernels inside run on another stream of the open section."""
        self._stream = stream
        try:
            yield
        finally:
            self._stream = 0

    @contextmanager
    def capture(self) -> Iterator[list[Op]]:
        """Collect kernels emitted inside instead of running them: the parts of a fused kernel."""
        outer, self._captured = self._captured, []
        try:
            yield self._captured
        finally:
            self._captured = outer

    def emit(self, op: Op) -> None:
        """Append a kernel to the open block."""
        if self._captured is not None:
            self._captured.append(op)
            return
        block = self._open
        assert block is not None, "a kernel belongs to a block"
        if block.part:
            op = op.within(block.part)
        block.nodes.append(Node(op, self._stream if self._section else 0, self._section))

    def nodes(self) -> Iterator[tuple[Block, Node]]:
        """Every node with its block, in execution order."""
        for block in self.blocks:
            for node in block.nodes:
                yield block, node

    def peak_activation_bytes(self) -> Quantity:
        """Largest sum of activations alive at one kernel.

        An activation lives from the kernel that writes it to the last that reads it. A repeated block is walked once:
        its iterations reuse the same memory.
        """
        nodes = [node for _, node in self.nodes()]
        first: dict[Tensor, int] = {}
        last: dict[Tensor, int] = {}
        for index, node in enumerate(nodes):
            for operand in (*node.op.inputs, *node.op.outputs):
                tensor = operand.base or operand
                if tensor.role == "activation":
                    first.setdefault(tensor, index)
                    last[tensor] = index
        born: list[list[Tensor]] = [[] for _ in nodes]
        dying: list[list[Tensor]] = [[] for _ in nodes]
        for tensor, index in first.items():
            born[index].append(tensor)
            dying[last[tensor]].append(tensor)
        alive: Quantity = 0.0
        peak: Quantity = 0.0
        for index in range(len(nodes)):
            for tensor in born[index]:
                alive = alive + tensor.bytes
            peak = np.maximum(peak, alive)
            for tensor in dying[index]:
                alive = alive - tensor.bytes
        return peak
