"""Attention in torch: requests of any lengths, grouped heads, causal masks and paged caches."""

from __future__ import annotations

import torch
import torch.nn.functional as functional

_SCORES_AT_ONCE = 1 << 26
"""Scores held at a time where the softmax's sum is wanted too; bounds memory to some hundred MB."""


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, *, is_causal: bool
) -> torch.Tensor:
    """Attention of one request: query (L, N, D), key and value (S, N_kv, D) to (L, N, D_v).

    Causal means that the last query sees every key, as sparse_mode 3 of the NPU's kernel does.
    """
    length, keys = query.shape[0], key.shape[0]
    is_masked = is_causal and length > 1
    mask = None
    if is_masked and keys != length:
        mask = torch.ones(length, keys, dtype=torch.bool, device=query.device).tril(keys - length)
    output = functional.scaled_dot_product_attention(
        query.transpose(0, 1).unsqueeze(0),
        key.transpose(0, 1).unsqueeze(0),
        value.transpose(0, 1).unsqueeze(0),
        attn_mask=mask,
        is_causal=is_masked and mask is None,
        scale=scale,
        enable_gqa=key.shape[1] != query.shape[1],
    )
    return output.squeeze(0).transpose(0, 1)


def attend_with_sum(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, *, is_causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same, and the log of the softmax's sum (L, N) in float32."""
    length, heads, _ = query.shape
    keys = key.shape[0]
    group = heads // key.shape[1]
    output = query.new_empty(length, heads, value.shape[-1])
    lse = torch.empty(length, heads, dtype=torch.float32, device=query.device)
    rows = max(1, _SCORES_AT_ONCE // keys)
    for head in range(heads):
        own_key, own_value = key[:, head // group], value[:, head // group]
        for start in range(0, length, rows):
            part = slice(start, min(start + rows, length))
            scores = (query[part, head] @ own_key.T).float() * scale
            if is_causal:
                last = torch.arange(part.start, part.stop, device=query.device).unsqueeze(1) + keys - length
                scores.masked_fill_(torch.arange(keys, device=query.device) > last, float("-inf"))
            lse[part, head] = scores.logsumexp(-1)
            output[part, head] = (scores.softmax(-1).to(value.dtype) @ own_value).to(output.dtype)
    return output, lse


def paged(cache: torch.Tensor, blocks: torch.Tensor, length: int) -> torch.Tensor:
    """The first ``length`` entries (length, heads, D) that a request's blocks hold; cache (blocks, size, heads, D)."""
    needed = -(-length // cache.shape[1])
    return cache[blocks[:needed]].flatten(0, 1)[:length]
