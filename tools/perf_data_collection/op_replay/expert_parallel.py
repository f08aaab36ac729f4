"""Sending tokens to the ranks of their experts and back, over torch.distributed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from tools.perf_data_collection.op_replay.errors import RowError


@dataclass(frozen=True)
class Experts:
    """One rank's operands: tokens x (M, H), its experts' weights and scales, global expert ids (M, k)."""

    x: torch.Tensor
    weight1: torch.Tensor
    weight2: torch.Tensor
    ids: torch.Tensor
    scale1: torch.Tensor
    scale2: torch.Tensor
    probabilities: torch.Tensor
    counts_shape: tuple[int, ...]
    max_tokens: int

    @property
    def weights(self) -> tuple[torch.Tensor, ...]:
        """What makes up the experts of this rank."""
        return self.weight1, self.weight2, self.scale1, self.scale2


@dataclass(frozen=True)
class Dispatched:
    """Tokens that this rank received, by expert, and the ways back."""

    tokens: torch.Tensor
    scales: torch.Tensor
    ends: torch.Tensor
    counts: torch.Tensor
    order: torch.Tensor
    by_expert: torch.Tensor
    sent: list[int]
    received: list[int]


def rank_and_size() -> tuple[int, int]:
    """This process's place among its peers; one alone when there are none."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def group_name() -> str:
    """HCCL's name of the default group, by which the kernel finds its peers."""
    rank, _ = rank_and_size()
    world: Any = dist.group.WORLD
    backend = world._get_backend(torch.device("npu"))
    return str(backend.get_hccl_comm_name(rank))


def routes(tokens: int, choices: int, *, experts: int, rank: int, is_balanced: bool) -> torch.Tensor:
    """Global ids of the experts of each token (tokens, choices), different ones within a token."""
    if is_balanced:
        flat = torch.arange(tokens * choices) + rank * choices
        return (flat % experts).view(tokens, choices)
    generator = torch.Generator().manual_seed(rank)
    return torch.rand(tokens, experts, generator=generator).argsort(dim=-1)[:, :choices]


def dispatched(experts: Experts, tokens: torch.Tensor, scales: torch.Tensor) -> Dispatched:
    """Send each token, in int8 with its scale, to every rank that holds one of its experts.

    Raises:
        RowError: this rank would receive more tokens than it has room for.
    """
    _, size = rank_and_size()
    own = experts.weight1.shape[0]
    flat = experts.ids.flatten().long()
    order = torch.argsort(flat, stable=True)
    counts = torch.bincount(flat, minlength=size * own).view(size, own)
    incoming = _exchanged(counts, [1] * size, [1] * size)
    sent, received = counts.sum(1).tolist(), incoming.sum(1).tolist()
    if sum(received) > experts.max_tokens:
        raise RowError(f"{sum(received)} tokens exceed --max-output-size {experts.max_tokens}.")
    copies = order // experts.ids.shape[1]
    arrived = _exchanged(tokens[copies], sent, received)
    arrived_scales = _exchanged(scales[copies], sent, received)
    expert_of = torch.arange(own, device=flat.device).repeat(size).repeat_interleave(incoming.flatten())
    by_expert = torch.argsort(expert_of, stable=True)
    totals = incoming.sum(0)
    return Dispatched(
        tokens=arrived[by_expert],
        scales=arrived_scales[by_expert],
        ends=totals.cumsum(0),
        counts=totals.to(torch.int32),
        order=order,
        by_expert=by_expert,
        sent=sent,
        received=received,
    )


def returned(experts: Experts, sent: Dispatched, results: torch.Tensor) -> torch.Tensor:
    """Send results back and add up those of each token, weighted."""
    by_source = torch.empty_like(results)
    by_source[sent.by_expert] = results
    back = _exchanged(by_source, sent.received, sent.sent)
    by_choice = torch.empty_like(back)
    by_choice[sent.order] = back
    weights = experts.probabilities.to(back.dtype).unsqueeze(-1)
    return (by_choice.view(*experts.ids.shape, -1) * weights).sum(1).to(experts.x.dtype)


def _exchanged(rows: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
    """Rows cut into one piece a peer, exchanged for theirs."""
    if not dist.is_initialized():
        return rows
    result = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(result, rows.contiguous(), received, sent)
    return result
