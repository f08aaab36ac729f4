"""What blocks of diffusion transformers are made of: modulation, norms, projections, the feed-forward block.

A rank holds a share of every sample's tokens (Ulysses); linear layers, norms and modulation work on that share.
Structure after the model classes of diffusers, the reference implementation of these checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tensor_cast.layers.build import KernelWriter
from tensor_cast.layers.eager import cast, pointwise
from tensor_cast.layers.linear import (
    DYNAMIC_QUANT_FLOPS,
    STATIC_QUANT_FLOPS,
    linear,
    quantized_outputs,
    remember_quantized,
)
from tensor_cast.ops import Tensor
from tensor_cast.quantity import Quantity, ceil_div
from tensor_cast.quantization import LinearScheme, linear_scheme
from tensor_cast.video_deployment import VideoDeployment

# Mean, difference, square, accumulate, scale by the root.
LAYER_NORM_FLOPS = 5.0
# Product with (1 + scale), sum with shift.
MODULATE_FLOPS = 2.0
# tanh approximation: cube, two products, sum, tanh (as exponential, sum, division), product.
GELU_FLOPS = 8.0
# Exponential, sum, division, product.
SILU_FLOPS = 4.0
UNQUANTIZED = linear_scheme("DISABLED")


@dataclass(frozen=True)
class Tokens:
    """Tokens of one sample: ``count`` are asked for, each of ``ranks`` ranks holds ``local``, the last padded."""

    count: Quantity
    ranks: int = 1

    @property
    def local(self) -> Quantity:
        """Tokens of one sample on one rank."""
        return ceil_div(self.count, self.ranks)

    @property
    def padded(self) -> Quantity:
        """Tokens of one sample over all ranks, padding included."""
        return self.local * self.ranks


@dataclass(kw_only=True)
class DenoiserBuild(KernelWriter):
    """One rank's view of one forward of a denoiser over ``batch`` samples, shared out over ``ranks``."""

    deployment: VideoDeployment
    batch: Quantity
    ranks: int = 1

    @property
    def compile(self) -> bool:
        return self.deployment.compile

    @property
    def scheme(self) -> LinearScheme:
        """Quantisation of the linear layers of blocks."""
        return self.deployment.block_scheme

    def tokens(self, count: Quantity) -> Tokens:
        """``count`` tokens a sample, shared out over the ranks."""
        return Tokens(count, self.ranks)

    def hidden(self, tokens: Quantity, width: int) -> Tensor:
        """A new activation of ``tokens`` a sample."""
        return self.activation(self.batch * tokens, width)

    @contextmanager
    def computing_in(self, dtype: str) -> Iterator[None]:
        """Kernels inside compute in ``dtype``, as under autocast."""
        outer, self.dtype = self.dtype, dtype
        try:
            yield
        finally:
            self.dtype = outer


def layer_norm(b: KernelWriter, x: Tensor, part: str, *, affine: bool = False, float32: bool = False) -> Tensor:
    """LayerNorm of rows; ``affine`` with learned weight and bias.

    ``float32``: in eager mode on a float32 copy of ``x``, the result cast back (FP32LayerNorm).
    """
    weights = _affine(b, part, int(x.shape[-1]), affine)
    upcast = float32 and not b.compile
    x = cast(b, x, "float32", part) if upcast else x
    out = pointwise(b, "layer_norm", part, (x, *weights), x.dtype, flops=LAYER_NORM_FLOPS)
    return cast(b, out, b.dtype, part) if upcast else out


def _affine(b: KernelWriter, part: str, width: int, affine: bool) -> tuple[Tensor, ...]:
    if not affine:
        return ()
    return (b.weight(f"{part}.weight", (width,)), b.weight(f"{part}.bias", (width,)))


def modulated_norm(
    b: DenoiserBuild,
    x: Tensor,
    shift: Tensor,
    scale: Tensor,
    part: str,
    *,
    affine: bool = False,
    float32: bool = False,
) -> Tensor:
    """LayerNorm(x) (1 + scale) + shift.

    Compiled, this is one kernel, which writes the quantised form where the linear layers after it are quantised. In
    eager mode norm, product and sum are kernels of their own, with ``float32`` between a copy to it and one back.
    """
    if not b.compile:
        x = cast(b, x, "float32", part) if float32 else x
        normed = layer_norm(b, x, part, affine=affine)
        scaled = pointwise(b, "mul", part, (normed, scale), x.dtype)
        return cast(b, pointwise(b, "add", part, (scaled, shift), x.dtype), b.dtype, part)
    inputs = (x, shift, scale, *_affine(b, part, int(x.shape[-1]), affine))
    out = b.activation(*x.shape)
    flops = LAYER_NORM_FLOPS + MODULATE_FLOPS
    if not b.scheme.quantizes_activation:
        b.elementwise("ada_layer_norm", part, inputs, (out,), flops_per_element=flops)
        return out
    quantized = quantized_outputs(b, out, b.scheme)
    b.elementwise("ada_layer_norm_quant", part, inputs, quantized, flops_per_element=flops + _quant_flops(b.scheme))
    remember_quantized(b, out, b.scheme, quantized)
    return out


def _quant_flops(scheme: LinearScheme) -> float:
    return DYNAMIC_QUANT_FLOPS if scheme.dynamic else STATIC_QUANT_FLOPS


def add(b: KernelWriter, x: Tensor, y: Tensor, part: str) -> Tensor:
    """x + y."""
    out = b.activation(*x.shape)
    b.elementwise("add", part, (x, y), (out,), flops_per_element=1.0)
    return out


def gated_add(b: KernelWriter, x: Tensor, y: Tensor, gate: Tensor, part: str, *, float32: bool = False) -> Tensor:
    """x + gate y: one kernel compiled; a product and a sum in eager mode, with ``float32`` in that dtype."""
    if not b.compile:
        dtype = "float32" if float32 else b.dtype
        gated = pointwise(b, "mul", part, (y, gate), dtype)
        return cast(b, pointwise(b, "add", part, (cast(b, x, dtype, part), gated), dtype), b.dtype, part)
    out = b.activation(*x.shape)
    b.elementwise("gate_add", part, (x, y, gate), (out,), flops_per_element=2.0)
    return out


def activate(b: KernelWriter, x: Tensor, name: str, part: str) -> Tensor:
    """An activation function by ``name``: ``gelu`` or ``silu``."""
    out = b.activation(*x.shape)
    flops = GELU_FLOPS if name == "gelu" else SILU_FLOPS
    b.elementwise(name, part, (x,), (out,), flops_per_element=flops)
    return out


def plain_linear(b: KernelWriter, x: Tensor, *, k: int, n: int, part: str, bias: bool = True) -> Tensor:
    """A linear layer that is never quantised."""
    return linear(b, x, k=k, n=n, part=part, scheme=UNQUANTIZED, bias=bias)


def two_layer_mlp(b: KernelWriter, x: Tensor, *, k: int, n: int, part: str, activation: str = "silu") -> Tensor:
    """(rows, k) -> n -> n: embeddings of time, guidance, pooled text and text."""
    hidden = plain_linear(b, x, k=k, n=n, part=f"{part}.linear_1")
    return plain_linear(b, activate(b, hidden, activation, part), k=n, n=n, part=f"{part}.linear_2")


def timestep_embedding(b: KernelWriter, rows: Quantity, *, frequencies: int, n: int, part: str) -> Tensor:
    """Sinusoids of ``rows`` timesteps through two linear layers."""
    sinusoids = b.activation(rows, frequencies)
    steps = b.activation(rows, 1, dtype="float32")
    b.elementwise("timestep", part, (steps,), (sinusoids,), flops_per_element=1.0, elements=sinusoids.elements)
    return two_layer_mlp(b, sinusoids, k=frequencies, n=n, part=part)


def modulation(b: KernelWriter, embedding: Tensor, part: str, *, width: int, count: int) -> list[Tensor]:
    """``count`` vectors of ``width`` a sample, by SiLU and a linear layer of the block's own (adaLN)."""
    rows, k = embedding.shape
    activated = activate(b, embedding, "silu", part)
    joint = plain_linear(b, activated, k=int(k), n=count * width, part=f"{part}.linear")
    return [joint.view(rows, width) for _ in range(count)]


def table_modulation(b: KernelWriter, embedding: Tensor, part: str, *, width: int, count: int) -> list[Tensor]:
    """``count`` vectors of ``width`` a row: the shared projection of time plus the block's own table (adaLN-single)."""
    rows = embedding.shape[0]
    table = b.weight(f"{part}.scale_shift_table", (count, width))
    joint = b.activation(rows, count * width, dtype=embedding.dtype)
    b.elementwise("add", part, (embedding, table), (joint,), flops_per_element=1.0, elements=joint.elements)
    return [joint.view(rows, width) for _ in range(count)]


def feed_forward(
    b: DenoiserBuild, x: Tensor, *, hidden: int, inner: int, part: str, activation: str = "gelu"
) -> Tensor:
    """down(act(up(x))), both with biases; compiled, the activation writes the quantised form of its result."""
    up = linear(b, x, k=hidden, n=inner, part=f"{part}.up", scheme=b.scheme, bias=True)
    if b.compile and b.scheme.quantizes_activation:
        activated = b.activation(*up.shape)
        quantized = quantized_outputs(b, activated, b.scheme)
        flops = (GELU_FLOPS if activation == "gelu" else SILU_FLOPS) + _quant_flops(b.scheme)
        b.elementwise(f"{activation}_quant", f"{part}.activation", (up,), quantized, flops_per_element=flops)
        remember_quantized(b, activated, b.scheme, quantized)
    else:
        activated = activate(b, up, activation, f"{part}.activation")
    return linear(b, activated, k=inner, n=hidden, part=f"{part}.down", scheme=b.scheme, bias=True)
