"""Which part of a decoder each pipeline stage has."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, pairwise

from tensor_cast.graph import Block


@dataclass(frozen=True)
class Stage:
    """A pipeline stage: the decoder layers of the range ``layers``, and what stands before or after all layers."""

    layers: range
    first: bool
    last: bool

    def runs(self, block: Block) -> int:
        """How many of the ``block.count`` runs of a block are this stage's."""
        if block.layers:
            return self.layers_among(block.layers)
        match block.place:
            case "first":
                return block.count if self.first else 0
            case "between":
                return 0 if self.last else 1
            case "last":
                return block.count if self.last else 0

    def weight_copies(self, block: Block) -> int:
        """How many of the ``block.weight_copies`` copies of a block's weights are this stage's."""
        if block.layers:
            return self.layers_among(block.layers)
        return block.weight_copies if (self.first if block.place == "first" else self.last) else 0

    def layers_among(self, indices: tuple[int, ...]) -> int:
        """How many of the ascending ``indices`` of decoder layers are this stage's."""
        return bisect_left(indices, self.layers.stop) - bisect_left(indices, self.layers.start)


def pipeline_stages(layers: int, stages: int) -> tuple[Stage, ...]:
    """``layers`` decoder layers over ``stages`` stages, in order.

    Each has as many; those left over go one each to the last stages but the very last, which has the output head
    (vLLM's ``get_pp_indices``).
    """
    base, extra = divmod(layers, stages)
    sizes = [base + (stages - 1 - extra <= index < stages - 1) for index in range(stages)]
    bounds = pairwise(accumulate(sizes, initial=0))
    return tuple(
        Stage(range(start, end), first=index == 0, last=index == stages - 1)
        for index, (start, end) in enumerate(bounds)
    )
