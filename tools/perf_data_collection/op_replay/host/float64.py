"""Operands in double precision, for the references that implementations are checked against."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]


def float64(tensor: torch.Tensor) -> Array:
    """A tensor as a NumPy array in float64."""
    return np.asarray(tensor.detach().cpu().double().numpy())


def whole(tensor: torch.Tensor) -> Array:
    """A tensor of whole numbers as a NumPy array in int64."""
    return np.asarray(tensor.detach().cpu().long().numpy())


def rms_normalised(x: Array, gamma: Array, epsilon: float) -> tuple[Array, Array]:
    """x over its root mean square times gamma, and one over that root."""
    rstd = 1.0 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon)
    return x * rstd * gamma, rstd


def softmax(scores: Array) -> Array:
    """Softmax over the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def swiglu(x: Array) -> Array:
    """silu of the first half of the last axis times the second half."""
    left, right = np.split(x, 2, axis=-1)
    return np.asarray(left / (1.0 + np.exp(-left)) * right)


def quantised(x: Array) -> tuple[Array, Array]:
    """Each row as whole numbers from -127 to 127 and the scale that belongs to them."""
    scale = np.maximum(np.abs(x).max(axis=-1), 1e-12) / 127.0
    return np.rint(x / scale[..., None]), scale


def attended(query: Array, key: Array, value: Array, scale: float, *, is_causal: bool) -> tuple[Array, Array]:
    """Attention of one request, a loop over heads: query (L, N, D), key and value (S, N_kv, D).

    Causal means that the last query sees every key. Returns the output (L, N, D_v) and the log of the sum of the
    exponentials (L, N).
    """
    length, heads = query.shape[:2]
    keys = key.shape[0]
    output = np.zeros((length, heads, value.shape[-1]))
    lse = np.zeros((length, heads))
    for head in range(heads):
        own = head * key.shape[1] // heads
        scores = query[:, head] @ key[:, own].T * scale
        if is_causal:
            visible = np.arange(keys)[None, :] <= np.arange(length)[:, None] + keys - length
            scores = np.where(visible, scores, -np.inf)
        output[:, head] = softmax(scores) @ value[:, own]
        top = scores.max(axis=-1)
        lse[:, head] = top + np.log(np.exp(scores - top[:, None]).sum(axis=-1))
    return output, lse
