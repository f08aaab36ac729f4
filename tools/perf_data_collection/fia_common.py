"""What generated FusedInferAttentionScore rows say beside their shapes, and how large their caches are."""

from __future__ import annotations

import numpy as np

from tensor_cast.performance_model.profiling_database.schema import RUNTIME_COMPLETENESS
from tensor_cast.quantity import Quantity, ceil_div

BLOCK_SIZE = 128
"""Tokens of a KV cache block, vllm-ascend's default."""
FUSED_MASK = 2048
"""Side of the one causal mask that sparse_mode 3 takes whatever the lengths are."""
RING_MASK = 512
"""Side of the triangular mask that the ring kernel takes whatever the lengths are."""
SMALLEST_POOL = 16
GENERATED = "shape_grid_scene_generated"
"""``Runtime metadata_completeness`` of a generated row: its lengths are known, as it was made from them."""
CAUSAL = 3
"""sparse_mode in which the last query of a request sees all of its keys."""


def pool_blocks(batch: Quantity, kv_length: Quantity) -> np.typing.NDArray[np.float64]:
    """Blocks that hold every sequence, sixteen at least."""
    return np.asarray(np.maximum(float(SMALLEST_POOL), batch * ceil_div(kv_length, BLOCK_SIZE)), dtype=np.float64)


def runtime_cells(sizes: dict[str, float], *, input_layout: str, paged: bool, masked: bool) -> dict[str, str]:
    """``Runtime …`` cells of a row of ``b`` sequences of ``q`` new and ``kv`` tokens in all.

    ``input_layout`` is ``TND`` for packed rows, else ``BNSD`` or, where the output exchanges batch and heads,
    ``BNSD_NBSD``: latent attention, whose keys are of one head. Query lengths of packed rows, and key lengths of rows
    without a paged cache, are cumulative, as the kernel takes them.
    """
    latent = input_layout != "TND"
    batch, queries, keys = (int(sizes[name]) for name in ("b", "q", "kv"))
    kv_values = [keys] * batch if paged else [keys * (index + 1) for index in range(batch)]
    query_values = [] if latent else [queries * (index + 1) for index in range(batch)]
    blocks = -(-keys // BLOCK_SIZE)
    return {
        "Runtime source_profile": "shape_grid",
        "Runtime actual_seq_lengths_shape": "" if latent else str(batch),
        "Runtime actual_seq_lengths_values": ",".join(map(str, query_values)),
        "Runtime actual_seq_lengths_kv_shape": str(batch),
        "Runtime actual_seq_lengths_kv_values": ",".join(map(str, kv_values)),
        "Runtime avg_seq_len": f"{keys:.6f}",
        "Runtime block_table_shape": f"{batch},{blocks}" if paged else "",
        "Runtime block_table_valid_blocks": str(batch * blocks) if paged else "",
        "Runtime num_heads": str(int(sizes["h"])),
        "Runtime num_key_value_heads": str(1 if latent else int(sizes.get("g", sizes["h"]))),
        "Runtime sparse_mode": str(CAUSAL) if masked else "0",
        "Runtime input_layout": input_layout,
        "Runtime block_size": str(BLOCK_SIZE) if paged else "0",
        RUNTIME_COMPLETENESS: GENERATED,
    }


def paged_lengths(sizes: dict[str, float]) -> dict[str, str]:
    """The lengths that an indexer's or a sparse attention's row needs beside its shapes."""
    batch, keys = int(sizes["b"]), int(sizes["kv"])
    return {
        "Runtime actual_seq_lengths_kv_values": ",".join([str(keys)] * batch),
        "Runtime avg_seq_len": f"{keys:.6f}",
    }
