"""Normalisation, with the residual addition and the quantisation that compiled graphs fuse into it."""

from __future__ import annotations

from tensor_cast.layers.build import Build
from tensor_cast.layers.linear import DYNAMIC_QUANT_FLOPS, STATIC_QUANT_FLOPS, quantized_outputs, remember_quantized
from tensor_cast.ops import Tensor
from tensor_cast.quantization import LinearScheme

# Square, accumulate, scale by the root, scale by gamma.
RMS_NORM_FLOPS = 4.0


def rms_norm(build: Build, x: Tensor, part: str, *, width: int) -> Tensor:
    """RMSNorm of rows of ``width``."""
    out = build.activation(*x.shape)
    build.elementwise(
        "rms_norm", part, (x, build.weight(f"{part}.weight", (width,))), (out,), flops_per_element=RMS_NORM_FLOPS
    )
    return out


def add_rms_norm(
    build: Build, x: Tensor, residual: Tensor, part: str, *, width: int, scheme: LinearScheme | None = None
) -> tuple[Tensor, Tensor]:
    """(norm(x + residual), x + residual).

    Compiled, this is one kernel; given the ``scheme`` of the only linear layer that reads the result, it writes the
    quantised form at once.
    """
    total = build.activation(*residual.shape)
    if not build.compile:
        build.elementwise("add", part, (x, residual), (total,), flops_per_element=1.0)
        return rms_norm(build, total, part, width=width), total
    gamma = build.weight(f"{part}.weight", (width,))
    out = build.activation(*x.shape)
    if scheme is None or not scheme.quantizes_activation:
        build.elementwise(
            "add_rms_norm", part, (x, residual, gamma), (out, total), flops_per_element=RMS_NORM_FLOPS + 1.0
        )
        return out, total
    quantized = quantized_outputs(build, out, scheme)
    build.elementwise(
        "add_rms_norm_dynamic_quant" if scheme.dynamic else "add_rms_norm_quant",
        part,
        (x, residual, gamma),
        (*quantized, total),
        flops_per_element=RMS_NORM_FLOPS + 1.0 + (DYNAMIC_QUANT_FLOPS if scheme.dynamic else STATIC_QUANT_FLOPS),
    )
    remember_quantized(build, out, scheme, quantized)
    return out, total
