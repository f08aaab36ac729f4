"""The four collectives: buffers, the call that is measured, and data whose result every rank can check.

Values are whole numbers of at most 112, which every dtype holds exactly, so a check is for equality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

Tensor = torch.Tensor
Group = Any

_BLOCK = 1 << 22
"""Elements filled or checked at a time: a buffer may take most of the memory, and its check must not double that."""
_MODULUS = 113
"""Prime, so that shifts by multiples of 3 and 5 give different data to any 113 neighbouring ranks."""


@dataclass(frozen=True)
class Buffers:
    """``source`` and ``target`` of one rank, flat; ``parts`` is the number of pieces that an exchange cuts them in."""

    source: Tensor
    target: Tensor
    parts: int


def allocate(op: str, message_bytes: int, ranks: int, dtype: torch.dtype, device: torch.device) -> Buffers:
    """Zeroed buffers for messages of ``message_bytes``, as the files count them.

    all_reduce: the tensor, reduced in place. all_gather: one rank's input. reduce_scatter: one rank's output.
    all_to_all: one rank's buffer, cut in a piece a rank.
    """
    elements = message_bytes // torch.empty(0, dtype=dtype).element_size()

    def zeros(count: int) -> Tensor:
        return torch.zeros(count, dtype=dtype, device=device)

    if op == "all_reduce":
        tensor = zeros(elements)
        return Buffers(tensor, tensor, 1)
    if op == "all_gather":
        return Buffers(zeros(elements), zeros(elements * ranks), ranks)
    if op == "reduce_scatter":
        return Buffers(zeros(elements * ranks), zeros(elements), ranks)
    piece = max(1, elements // ranks)
    return Buffers(zeros(piece * ranks), zeros(piece * ranks), ranks)


def launcher(op: str, buffers: Buffers, group: Group) -> Callable[[], None]:
    """The call to measure. These forms are the ones that the NPU's profiler reports under the files' names."""
    source, target = buffers.source, buffers.target
    if op == "all_reduce":
        return lambda: _done(dist.all_reduce(target, group=group))
    if op == "all_gather":
        return lambda: _done(dist.all_gather_into_tensor(target, source, group=group))
    if op == "reduce_scatter":
        return lambda: _done(dist.reduce_scatter_tensor(target, source, group=group))
    inputs, outputs = list(source.chunk(buffers.parts)), list(target.chunk(buffers.parts))
    return lambda: _done(dist.all_to_all(outputs, inputs, group=group))


def fill(op: str, buffers: Buffers, rank: int, ranks: int) -> None:
    """Put data of ``rank`` in the source.

    For a reduction exactly one rank has a value at each place, all others zero: a rank whose part is lost leaves holes,
    one that is added twice doubles its values, and the sum stays small however many ranks there are.
    """
    piece = buffers.source.numel() // (1 if op == "all_gather" else buffers.parts)
    for part in range(buffers.source.numel() // piece):
        for place, block in _blocks(buffers.source[part * piece : (part + 1) * piece]):
            if op in ("all_reduce", "reduce_scatter"):
                mine = (place + part + rank) % ranks == 0
                block.copy_(torch.where(mine, _reduced(place, part, ranks), 0))
            else:
                block.copy_((place + 3 * rank + (5 * part if op == "all_to_all" else 0)) % _MODULUS)


def wrong_elements(op: str, buffers: Buffers, rank: int, ranks: int) -> int:
    """Elements of the target that are not what the collective of all ranks' ``fill`` gives."""
    pieces = 1 if op in ("all_reduce", "reduce_scatter") else buffers.parts
    piece = buffers.target.numel() // pieces
    wrong = 0
    for sender in range(pieces):
        for place, block in _blocks(buffers.target[sender * piece : (sender + 1) * piece]):
            if op == "all_reduce":
                expected = _reduced(place, 0, ranks)
            elif op == "reduce_scatter":
                expected = _reduced(place, rank, ranks)
            else:
                expected = (place + 3 * sender + (5 * rank if op == "all_to_all" else 0)) % _MODULUS
            wrong += int((block != expected.to(block.dtype)).sum())
    return wrong


def _reduced(place: Tensor, part: int, ranks: int) -> Tensor:
    return (torch.div(place, ranks, rounding_mode="floor") + part) % 4 + 1


def _blocks(tensor: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Places and views of a flat tensor, block by block."""
    for start in range(0, tensor.numel(), _BLOCK):
        end = min(start + _BLOCK, tensor.numel())
        yield torch.arange(start, end, dtype=torch.int32, device=tensor.device), tensor[start:end]


def _done(_: object) -> None:
    """Drop what a synchronous collective returns."""
