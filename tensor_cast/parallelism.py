"""Concrete parallel sizes: what is left out follows from what is given.

Sizes come as they were given, ``None`` where they were not; errors name the flags that give them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tensor_cast.errors import ModelingError


@dataclass(frozen=True)
class RankGroup:
    """Ranks that communicate: ``size`` of them, ``stride`` apart in the rank order."""

    size: int
    stride: int = 1


@dataclass(frozen=True)
class Parallelism:
    """Concrete parallel sizes. Ranks are numbered with tensor parallelism innermost, then data, then pipeline.

    ``ep`` x ``moe_tp`` x ``moe_dp`` share out a pipeline stage's ranks for routed experts, expert-parallel
    ranks ``moe_tp`` apart.
    """

    world: int
    tp: int
    dp: int
    pp: int
    ep: int
    moe_tp: int
    moe_dp: int
    mlp_tp: int
    o_proj_tp: int
    lmhead_tp: int
    dcp: int

    @property
    def stage(self) -> int:
        """Ranks of one pipeline stage."""
        return self.tp * self.dp

    @property
    def moe_group(self) -> int:
        """Ranks that hold one replica of the routed experts."""
        return self.ep * self.moe_tp


def dense_sizes(world: int, tp: int | None, dp: int | None, pp: int) -> tuple[int, int]:
    """Tensor and data parallel sizes; the one left out takes what the others leave, both left out data parallelism.

    Raises:
        ModelingError: they do not multiply to ``world``.
    """
    sizes = {"--tp-size": tp, "--dp-size": dp, "--pp-size": pp if pp > 1 else None}
    rest = _left_of(world, f"--world-size {world}", sizes, all_known=tp is not None and dp is not None)
    if tp is None:
        return (1, rest) if dp is None else (rest, dp)
    return tp, dp or rest


def expert_sizes(stage: int, ep: int | None, moe_tp: int | None, moe_dp: int | None) -> tuple[int, int, int]:
    """Expert, expert-tensor and expert-data parallel sizes of a pipeline stage's ``stage`` ranks.

    Left out: expert parallelism is 1, replicas are 1, and tensor parallelism takes the rest.

    Raises:
        ModelingError: they do not multiply to ``stage``.
    """
    sizes = {"--ep-size": ep, "--moe-tp-size": moe_tp, "--moe-dp-size": moe_dp}
    ranks = f"the {stage} ranks of a pipeline stage (tp x dp)"
    rest = _left_of(stage, ranks, sizes, all_known=None not in sizes.values())
    if moe_tp is None:
        return ep or 1, rest, moe_dp or 1
    if ep is None:
        return rest, moe_tp, moe_dp or 1
    return ep, moe_tp, moe_dp or rest


def _left_of(total: int, what: str, sizes: dict[str, int | None], *, all_known: bool) -> int:
    """What the ``sizes`` that are given, by flag, leave of ``total`` ranks, called ``what`` in errors.

    Raises:
        ModelingError: they do not divide it, or, all known, do not make it.
    """
    given = {flag: size for flag, size in sizes.items() if size is not None}
    product = prod(given.values())
    rest, over = divmod(total, product)
    if over or not rest or (all_known and rest > 1):
        text = " x ".join(f"{flag} {size}" for flag, size in given.items())
        equals = f" = {product}" if len(given) > 1 else ""
        verb = "is not" if all_known else "does not divide"
        raise ModelingError(f"{text}{equals} {verb} {what}, which parallel sizes must multiply to.")
    return rest


def module_tp_size(flag: str, size: int | None, tp: int, stage: int, *, at_least_tp: bool = False) -> int:
    """A module's own tensor-parallel size, which ``flag`` gives: it nests with ``tp`` and fits in the stage.

    Raises:
        ModelingError: it does not, or is less than ``tp`` although it must be ``at_least_tp``.
    """
    if size is None:
        return tp
    smaller, larger = sorted((size, tp))
    if larger % smaller:
        raise ModelingError(f"{flag} {size} and --tp-size {tp} do not nest: one must be a multiple of the other.")
    if stage % size:
        raise ModelingError(f"{flag} {size} does not divide the {stage} ranks of a pipeline stage.")
    if at_least_tp and size < tp:
        raise ModelingError(f"{flag} {size} is less than --tp-size {tp}, over which the attention heads are split.")
    return size


def dcp_size(size: int | None, tp: int) -> int:
    """Ranks of a tensor-parallel group that share out the tokens of the KV cache; 1 where it is not given.

    Raises:
        ModelingError: it does not divide ``tp``.
    """
    size = size or 1
    if tp % size:
        raise ModelingError(f"--dcp-size {size} does not divide --tp-size {tp}, whose ranks it shares the cache among.")
    return size
