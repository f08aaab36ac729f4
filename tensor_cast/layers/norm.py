"""Normalisation, with the residual addition and the quantisation that compiled graphs fuse into it."""

from __future__ import annotations

from typing import Literal

from tensor_cast.layers.build import Build
from tensor_cast.layers.linear import DYNAMIC_QUANT_FLOPS, STATIC_QUANT_FLOPS, quantized_outputs, remember_quantized
from tensor_cast.ops import Tensor
from tensor_cast.quantization import LinearScheme

# Square, accumulate, scale by the root, scale by gamma; a LayerNorm subtracts the mean and adds beta too.
RMS_NORM_FLOPS = 4.0
LAYER_NORM_FLOPS = 7.0

NormKind = Literal["rms", "layer", "layer_without_bias"]


def _weights(build: Build, part: str, width: int, kind: NormKind) -> tuple[Tensor, ...]:
    gamma = build.weight(f"{part}.weight", (width,))
    return (gamma, build.weight(f"{part}.bias", (width,))) if kind == "layer" else (gamma,)


def _name(kind: NormKind) -> str:
    return "rms_norm" if kind == "rms" else "layer_norm"


def norm_flops(kind: NormKind) -> float:
    """FLOPs an element."""
    return RMS_NORM_FLOPS if kind == "rms" else LAYER_NORM_FLOPS


def rms_norm(build: Build, x: Tensor, part: str, *, width: int, kind: NormKind = "rms") -> Tensor:
    """RMSNorm (or LayerNorm) of rows of ``width``."""
    out = build.activation(*x.shape)
    build.elementwise(
        _name(kind), part, (x, *_weights(build, part, width, kind)), (out,), flops_per_element=norm_flops(kind)
    )
    return out


def add_rms_norm(
    build: Build,
    x: Tensor,
    residual: Tensor,
    part: str,
    *,
    width: int,
    scheme: LinearScheme | None = None,
    kind: NormKind = "rms",
) -> tuple[Tensor, Tensor]:
    """(norm(x + residual), x + residual).

    Compiled, this is one kernel; given the ``scheme`` of the only linear layer that reads the result, it writes the
    quantised form at once.
    """
    total = build.activation(*residual.shape)
    if not build.compile:
        build.elementwise("add", part, (x, residual), (total,), flops_per_element=1.0)
        return rms_norm(build, total, part, width=width, kind=kind), total
    weights = _weights(build, part, width, kind)
    name, flops = f"add_{_name(kind)}", norm_flops(kind) + 1.0
    out = build.activation(*x.shape)
    if scheme is None or not scheme.quantizes_activation:
        build.elementwise(name, part, (x, residual, *weights), (out, total), flops_per_element=flops)
        return out, total
    quantized = quantized_outputs(build, out, scheme)
    build.elementwise(
        f"{name}_dynamic_quant" if scheme.dynamic else f"{name}_quant",
        part,
        (x, residual, *weights),
        (*quantized, total),
        flops_per_element=flops + (DYNAMIC_QUANT_FLOPS if scheme.dynamic else STATIC_QUANT_FLOPS),
    )
    remember_quantized(build, out, scheme, quantized)
    return out, total
