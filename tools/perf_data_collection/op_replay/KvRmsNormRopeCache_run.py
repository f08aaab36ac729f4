"""KvRmsNormRopeCache: MLA's compressed KV normed, its rope part rotated, both written into their caches."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import numpy as np
import torch

from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host import float64 as double
from tools.perf_data_collection.op_replay.host.float64 import Array, float64, whole
from tools.perf_data_collection.op_replay.host.pieces import interleaved_rope, rms_norm
from tools.perf_data_collection.op_replay.InterleaveRope_run import reference as rope_reference
from tools.perf_data_collection.op_replay.kernel import CUSTOM_OPP, Kernel
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main

EPSILON = 1e-5
SLOTS = 12


@dataclass(frozen=True)
class Operands:
    """kv (B, 1, S, c + r), gamma (c), cos and sin (B, 1, S, r), slot of each token, caches of r and of c.

    The five slots behind them (scales, offsets, v) are empty.
    """

    kv: torch.Tensor
    gamma: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    slots: torch.Tensor
    k_cache: torch.Tensor
    ckv_cache: torch.Tensor


def operands(row: ReplayRow, make: OperandMaker) -> tuple[Operands]:
    """The operands of a row."""
    if len(row.inputs) != SLOTS:
        raise RowError(f"The kernel has {SLOTS} inputs and the row {len(row.inputs)}: empty ones are given too.")
    index, cache = row.input(4, "index"), row.input(5, "k_cache", 4)
    count, room = index.shape[0], cache.shape[0] * cache.shape[1]
    if count > room:
        raise RowError(f"{count} tokens do not fit the cache's {room} slots.")
    kv, gamma = make(row.input(0, "kv", 4)), make(row.input(1, "gamma", 1))
    cos, sin = make(row.input(2, "cos", 4)), make(row.input(3, "sin", 4))
    slots = make.integers(torch.arange(count) * (room // max(count, 1)), index)
    return (Operands(kv, gamma, cos, sin, slots, make(cache), make(row.input(6, "ckv_cache", 4))),)


def launch(given: Operands) -> object:
    """Argument v came with op-plugin 7.3.0; left out, the call is the same before and after."""
    return npu_function("npu_kv_rmsnorm_rope_cache")(
        given.kv,
        given.gamma,
        given.cos,
        given.sin,
        given.slots,
        given.k_cache,
        given.ckv_cache,
        epsilon=EPSILON,
        cache_mode="PA_BNSD",
        is_output_kv=True,
    )


def host(given: Operands) -> tuple[torch.Tensor, ...]:
    """Both caches with the tokens in them, the rotated part (B, 1, S, r) and the normed one (B, 1, S, c)."""
    latent, rope = torch.split(given.kv, [given.gamma.shape[0], given.kv.shape[-1] - given.gamma.shape[0]], dim=-1)
    normed, _ = rms_norm(latent, given.gamma, EPSILON)
    rotated = interleaved_rope(rope, given.cos, given.sin)
    for cache, new in ((given.k_cache, rotated), (given.ckv_cache, normed)):
        cache.view(-1, cache.shape[-1]).index_copy_(0, given.slots, new.reshape(-1, cache.shape[-1]))
    return given.k_cache, given.ckv_cache, rotated, normed


def reference(given: Operands) -> tuple[Array, ...]:
    """The same."""
    width = given.gamma.shape[0]
    normed, _ = double.rms_normalised(float64(given.kv)[..., :width], float64(given.gamma), EPSILON)
    rotated = rope_reference(given.kv[..., width:], given.cos, given.sin)
    caches = []
    for cache, new in ((given.k_cache, rotated), (given.ckv_cache, normed)):
        result = float64(cache).reshape(-1, cache.shape[-1]).copy()
        result[whole(given.slots)] = np.reshape(new, (-1, cache.shape[-1]))
        caches.append(result.reshape(cache.shape))
    return caches[0], caches[1], rotated, normed


KERNEL = Kernel(
    "KvRmsNormRopeCache", operands, launch=launch, host=host, reference=reference, needs=frozenset({CUSTOM_OPP})
)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
