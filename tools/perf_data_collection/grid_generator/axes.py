"""General axes: sizes that models and steps have.

They cover the same ranges as the published shape grids, so that databases stay comparable.
"""

from __future__ import annotations

TOKENS = (
    *range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256, 384, 512, 768,
    1024, 2048, 4096, 8192, 16384, 32768,
)  # fmt: skip
"""Rows of a product: a decode's batch up to a prefill's chunk."""
ROWS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
"""Rows of vector kernels, whose time bends less."""
EXPERT_ROWS = tuple(2**power for power in range(17))
PADDED_ROWS = tuple(8 * size for size in (1, 2, 4, 8, 16, 17, 32, 33, 64, 65, 128, 129, 256, 257, 512, 513, 1024, 1025))
WIDTHS = (
    128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1728, 1792, 2048, 2304, 2560, 3072, 3456, 3584,
    4096, 4608, 5120, 6144, 6912, 7168, 8192, 10240, 12288, 13824, 14336, 16384, 18432, 27648, 28672, 55296,
)  # fmt: skip
"""Columns of weights and rows: hidden sizes, projections and feed-forward blocks, whole and split."""
HEADS = (1, 2, 3, 4, 5, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 128)
KV_HEADS = (1, 2, 4, 8, 16, 32)
HEAD_DIMS = (64, 128, 256)
VOCABULARIES = (32000, 65536, 128256, 129280, 151936)
SORTED_WIDTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, *VOCABULARIES)
EXPERTS_PER_TOKEN = (2, 4, 6, 8)
LOCAL_EXPERTS = (1, 2, 4, 8, 16, 32, 64)
EXPERT_WIDTHS = (768, 1024, 1536, 2048, 3072, 4096)
HIDDEN_SIZES = (2048, 4096, 5120, 6144, 7168)

DECODE_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DECODE_CONTEXTS = (128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
PREFILL_BATCHES = (1, 2, 4, 8)
PREFILL_LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)

TILE_HEIGHTS = (16, 32, 64, 128, 256)
"""Rows at which a matrix unit's tiles are full: behind them a new row starts a new tile."""
