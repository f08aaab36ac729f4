"""What a layer keeps of a sequence between steps: one description for memory, time and ``models show``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tensor_cast.dtypes import dtype_bytes
from tensor_cast.quantity import Quantity, round_up

CacheKind = Literal["full", "window", "latent", "compressed", "index", "state", "none"]


@dataclass(frozen=True)
class LayerCache:
    """Cache of one layer on one rank.

    ``elements_per_token`` are stored in ``dtype`` (``None``: the KV cache's) for every kept token, or for every
    ``tokens_per_entry`` tokens that are compressed to one entry. A ``window`` keeps at most that many tokens.
    ``state_bytes`` do not grow with the context. ``token_share`` is the part of the tokens that this rank holds (decode
    context parallelism). ``beside`` are further caches of the layer: an indexer's keys, compressed entries. ``formula``
    is how the elements, or else the bytes of the state, come about.
    """

    kind: CacheKind
    elements_per_token: float = 0.0
    window: int | None = None
    state_bytes: float = 0.0
    token_share: float = 1.0
    tokens_per_entry: int = 1
    dtype: str | None = None
    beside: tuple[LayerCache, ...] = ()
    formula: str = ""

    def kept_tokens(self, length: Quantity) -> Quantity:
        """Tokens in the cache after ``length`` tokens."""
        return length if self.window is None else np.minimum(length, self.window)

    def bytes_per_token(self, dtype: str) -> float:
        """Bytes that one more kept token takes, on average where tokens are compressed."""
        own = self.elements_per_token * dtype_bytes(self.dtype or dtype) * self.token_share / self.tokens_per_entry
        return own + sum(cache.bytes_per_token(dtype) for cache in self.beside)

    def bytes_per_sequence(self, length: Quantity, dtype: str, block_size: int = 1) -> Quantity:
        """Bytes of a sequence of ``length`` tokens in whole blocks of ``block_size``, without ``state_bytes``.

        A compressed entry is written once all its tokens are there.
        """
        entries = round_up(self.kept_tokens(length), block_size)
        if self.tokens_per_entry > 1:
            entries = np.floor(entries / self.tokens_per_entry)
        total: Quantity = entries * (self.elements_per_token * dtype_bytes(self.dtype or dtype) * self.token_share)
        for cache in self.beside:
            total = total + cache.bytes_per_sequence(length, dtype, block_size)
        return total


NO_CACHE = LayerCache("none")
"""Of a layer without attention."""
