"""Operations in torch that more than one kernel consists of."""

from __future__ import annotations

import torch
import torch.nn.functional as functional

_INT8_LIMIT = 127.0
_SMALLEST_SCALE = 1e-12
_CUDA_ROWS = 32
"""cuBLAS multiplies int8 matrices of more than 16 rows only (torch._int_mm)."""


def rms_norm(x: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm computed in float32: y in x's dtype, and 1/rms (…, 1) in float32."""
    wide = x.float()
    rstd = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
    return (wide * rstd * gamma.float()).to(x.dtype), rstd


def swiglu(x: torch.Tensor) -> torch.Tensor:
    """silu of the first half of the last dimension times the second half."""
    left, right = x.chunk(2, dim=-1)
    return functional.silu(left) * right


def dynamic_quant(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Symmetric int8 by row: whole numbers and the float32 scale (…) that they are multiples of."""
    wide = x.float()
    scale = wide.abs().amax(dim=-1).clamp_min(_SMALLEST_SCALE) / _INT8_LIMIT
    return torch.round(wide / scale.unsqueeze(-1)).to(torch.int8), scale


def int8_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """int8 (M, K) times int8 (K, N) accumulated in int32."""
    if a.is_cuda and a.shape[0] < _CUDA_ROWS:
        padded = functional.pad(a, (0, 0, 0, _CUDA_ROWS - a.shape[0]))
        return torch._int_mm(padded, b)[: a.shape[0]]
    return torch._int_mm(a, b)


def interleaved_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding of x (B, N, S, D) whose pairs lie side by side; the result has them half a row apart.

    op-plugin documents npu_interleave_rope as this de-interleaving followed by x·cos + rotate_half(x)·sin.
    """
    halves = x.reshape(*x.shape[:-1], -1, 2).transpose(-1, -2).flatten(-2)
    return rotate(halves, cos, sin)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x·cos + rotate_half(x)·sin with the halves of the last dimension as pairs."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
