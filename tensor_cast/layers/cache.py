"""What a layer keeps of a sequence between steps: one description for memory, time and ``models show``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tensor_cast.dtypes import dtype_bytes
from tensor_cast.quantity import Quantity, round_up

CacheKind = Literal["full", "window", "latent", "state"]


@dataclass(frozen=True)
class LayerCache:
    """Cache of one layer on one rank.

    ``elements_per_token`` are stored in the KV cache's dtype for every kept token. A ``window`` keeps at most that
    many tokens. ``state_bytes`` do not grow with the context. ``token_share`` is the part of the tokens that this rank
    holds (decode context parallelism).
    """

    kind: CacheKind
    elements_per_token: float
    window: int | None = None
    state_bytes: float = 0.0
    token_share: float = 1.0

    def kept_tokens(self, length: Quantity) -> Quantity:
        """Tokens in the cache after ``length`` tokens."""
        return length if self.window is None else np.minimum(length, self.window)

    def bytes_per_token(self, dtype: str) -> float:
        """Bytes that one more kept token takes."""
        return self.elements_per_token * dtype_bytes(dtype) * self.token_share

    def bytes_per_sequence(self, length: Quantity, dtype: str, block_size: int = 1) -> Quantity:
        """Bytes of a sequence of ``length`` tokens in whole blocks of ``block_size``, without ``state_bytes``."""
        return round_up(self.kept_tokens(length), block_size) * self.bytes_per_token(dtype)
