"""Time of matrix units that work through output tiles: waves of tiles over cores, and what each wave and step costs."""

from __future__ import annotations

from functools import reduce

import numpy as np

from tensor_cast.devices.profile import KernelCost
from tensor_cast.ops import Attention, GroupedMatMul, MatMul
from tensor_cast.quantity import Quantity, ceil_div, round_up

# Rows that a matrix unit computes at once: 16 on Ascend's cube (fractal 16 x 16), 16 (mma.m16n8k16) on NVIDIA.
ROW_GRANULARITY = 16
# Inner elements of one pipeline step: 64 is the usual block of CUTLASS and of the cube's L1 buffers.
STEP = 64
# A split along k shorter than this does not pay for adding the partial sums up (stream-k and split-k heuristics).
SHORTEST_SPLIT = 512


def _wave_s(cost: KernelCost, cores: int) -> float:
    """Cost of a wave; none where the cores are unknown (one), so that waves cannot be counted."""
    return cost.wave_s if cores > 1 else 0.0


def matmul_time(op: MatMul | GroupedMatMul, cost: KernelCost, rate: float, cores: int) -> Quantity:
    """Seconds that ``cores`` matrix cores of ``rate`` FLOP/s together need for the output tiles of ``op``.

    The kernel takes the fastest of its tile shapes, as autotuners and heuristics try to.
    """
    if isinstance(op, GroupedMatMul):
        groups: Quantity = np.maximum(op.active_groups, 1.0)
        rows: Quantity = np.maximum(op.m / groups, 1.0)
    else:
        groups, rows = op.batch, op.m
    return reduce(np.minimum, (_waves_time(rows, op.k, op.n, groups, tile, cost, rate, cores) for tile in cost.tiles))


def _waves_time(
    m: Quantity,
    k: Quantity,
    n: Quantity,
    batch: Quantity,
    tile: tuple[int, int],
    cost: KernelCost,
    rate: float,
    cores: int,
) -> Quantity:
    """A tile is no taller than m in whole fractals; the last wave costs a whole one; idle cores split k."""
    rows = np.minimum(round_up(m, ROW_GRANULARITY), tile[0])
    tiles = ceil_div(m, rows) * ceil_div(n, tile[1]) * batch
    splits = np.clip(cores / tiles, 1.0, np.maximum(k / SHORTEST_SPLIT, 1.0))
    depth = k / splits
    waves = np.ceil(tiles / cores)
    tile_s = rows * (2.0 * tile[1] * cores / rate) * depth
    return waves * (tile_s + _wave_s(cost, cores)) + depth * (cost.step_s / STEP)


def attention_times(
    op: Attention, cost: KernelCost, rate: float, vector_rate: float, cores: int
) -> tuple[Quantity, Quantity]:
    """Seconds of the score and value products of ``op``, and of its softmax.

    ``rate`` and ``vector_rate`` are the FLOP/s of all cores' matrix and vector units. The kernel works in blocks of
    queries that stream past their keys; the products of a block overlap with the softmax of the block before, and the
    slower sets the pace: a softmax that is slower costs its whole blocks, one that is not costs its scores alone.

    A prefill's blocks hold queries of one head (FlashAttention-2, arXiv 2307.08691, section 3); a decode packs the
    query heads that share a KV head into one block and splits its keys over idle cores (flash-decoding). A block at the
    diagonal computes half a tile of keys that the mask then drops, and a head is padded to whole ``head_step``s. Blocks
    are short and many, so the last wave is not rounded up.
    """
    block_rows, block_keys = cost.tiles[0]
    heads, packed = (op.kv_heads, op.heads / op.kv_heads) if op.decode else (op.heads, 1.0)
    queries = op.query_length * packed
    rows = np.minimum(round_up(queries, ROW_GRANULARITY), block_rows)
    blocks = ceil_div(queries, rows) * op.batch * heads
    keys = op.pairs / (op.batch * op.query_length) + ((block_keys - 1) / 2 if op.causal else 0.0)
    depth = keys * np.minimum(blocks / cores, 1.0) if op.decode else keys
    waves = np.maximum(blocks / cores, 1.0)
    head_dims = round_up(op.qk_dim, cost.head_step) + round_up(op.v_dim, cost.head_step)
    beside_s = _wave_s(cost, cores) + depth * ((cost.step_s if cores > 1 else 0.0) / STEP)
    product_s, softmax_s = 2.0 * head_dims / rate, op.SOFTMAX_FLOPS_PER_SCORE / vector_rate
    matrix, vector = (waves * (rows * (pair_s * cores) * depth + beside_s) for pair_s in (product_s, softmax_s))
    return matrix, np.where(np.greater(softmax_s, product_s), vector, op.vector_flops / vector_rate)
