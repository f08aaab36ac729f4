"""split_qkv_rmsnorm_rope_kernel: one projection split into query, key and value, query and key normed and rotated."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import torch

from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host import float64 as double
from tools.perf_data_collection.op_replay.host.float64 import Array, float64, whole
from tools.perf_data_collection.op_replay.host.pieces import rms_norm, rotate
from tools.perf_data_collection.op_replay.kernel import CUSTOM_OPP, VLLM_TRITON, Kernel
from tools.perf_data_collection.op_replay.npu import argument_names, custom_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main

EPSILON = 1e-6
CACHE_ROWS = 2048


@dataclass(frozen=True)
class Operands:
    """x (T, q + 2kv), cos and sin side by side (rows, r), positions (T), both norm weights, sizes of q, kv, head."""

    x: torch.Tensor
    table: torch.Tensor
    positions: torch.Tensor
    q_weight: torch.Tensor
    k_weight: torch.Tensor
    q_size: int
    kv_size: int
    head: int


def operands(row: ReplayRow, make: OperandMaker) -> tuple[Operands]:
    """The operands of a row."""
    x, cache = row.input(0, "input", 2), row.input(1, "cos_sin_cache", 1, 2)
    q_size, kv_size = row.output(0, "q", 2).shape[1], row.output(1, "k", 2).shape[1]
    tokens, width = x.shape
    if width != q_size + 2 * kv_size:
        raise RowError(f"The input's width {width} is not q + 2 kv = {q_size} + 2 * {kv_size}.")
    rope = cache.shape[-1]
    head = next((size for size in range(rope, kv_size + 1) if q_size % size == 0 and kv_size % size == 0), 0)
    if head == 0:
        raise RowError(f"No head size of at least {rope} divides both {q_size} and {kv_size}.")
    given = make(x)
    rows = cache.shape[0] if len(cache.shape) == 2 else max(tokens, CACHE_ROWS)
    table = make.place(make.filled((rows, rope), given.dtype))
    positions = make.place(torch.arange(tokens) % rows)
    q_weight, k_weight = (make.place(make.filled((head,), given.dtype)) for _ in range(2))
    return (Operands(given, table, positions, q_weight, k_weight, q_size, kv_size, head),)


def launch(given: Operands) -> object:
    """vLLM-Ascend 0.13 took the sines and cosines of each token, later releases the whole table and positions."""
    function = custom_function("vllm", "qkv_rmsnorm_rope")
    if "cos_sin_cache" in argument_names(function):
        angles = {"cos_sin_cache": given.table, "positions": given.positions}
    else:
        cos, sin = (half.contiguous() for half in given.table[: given.x.shape[0]].chunk(2, dim=-1))
        angles = {"sin": sin, "cos": cos}
    return function(
        input=given.x,
        **angles,
        q_weight=given.q_weight,
        k_weight=given.k_weight,
        q_hidden_size=given.q_size,
        kv_hidden_size=given.kv_size,
        head_dim=given.head,
        eps=EPSILON,
    )


def host(given: Operands) -> tuple[torch.Tensor, ...]:
    """Query (T, q), key and value (T, kv)."""
    query, key, value = torch.split(given.x, [given.q_size, given.kv_size, given.kv_size], dim=-1)
    rope = given.table.shape[-1]
    cos, sin = (torch.cat((half, half), dim=-1).unsqueeze(1) for half in given.table[given.positions].chunk(2, dim=-1))
    results = []
    for part, weight in ((query, given.q_weight), (key, given.k_weight)):
        normed, _ = rms_norm(part.reshape(part.shape[0], -1, given.head), weight, EPSILON)
        rotated = torch.cat((rotate(normed[..., :rope], cos, sin), normed[..., rope:]), dim=-1)
        results.append(rotated.flatten(1))
    return results[0], results[1], value.contiguous()


def reference(given: Operands) -> tuple[Array, ...]:
    """The same, pair by pair."""
    wide, angles = float64(given.x), float64(given.table)[whole(given.positions)]
    half = given.table.shape[-1] // 2
    cos, sin = angles[:, None, :half], angles[:, None, half:]
    results = []
    for part, weight in (
        (wide[:, : given.q_size], given.q_weight),
        (wide[:, given.q_size : given.q_size + given.kv_size], given.k_weight),
    ):
        normed, _ = double.rms_normalised(part.reshape(len(part), -1, given.head), float64(weight), EPSILON)
        first, second = normed[..., :half].copy(), normed[..., half : 2 * half].copy()
        normed[..., :half], normed[..., half : 2 * half] = first * cos - second * sin, second * cos + first * sin
        results.append(normed.reshape(len(part), -1))
    return results[0], results[1], wide[:, given.q_size + given.kv_size :]


KERNEL = Kernel(
    "split_qkv_rmsnorm_rope_kernel",
    operands,
    launch=launch,
    host=host,
    reference=reference,
    needs=frozenset({CUSTOM_OPP, VLLM_TRITON}),
)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
