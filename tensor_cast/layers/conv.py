"""Convolutions and their companions on grids of features: what image and video autoencoders are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensor_cast.layers import eager
from tensor_cast.layers.build import KernelWriter
from tensor_cast.layers.dit import SILU_FLOPS, UNQUANTIZED
from tensor_cast.layers.linear import linear
from tensor_cast.ops import Attention, MatMul, Tensor
from tensor_cast.quantity import Quantity

Norm = Literal["rms", "group"]
Kernel = tuple[int, int, int]
CUBE: Kernel = (3, 3, 3)
PLANE: Kernel = (1, 3, 3)
POINT: Kernel = (1, 1, 1)
# Square, accumulate, scale by the root, scale by gamma; GroupNorm also takes the mean and adds beta.
NORM_FLOPS: dict[Norm, float] = {"rms": 4.0, "group": 7.0}


@dataclass(kw_only=True)
class ComponentBuild(KernelWriter):
    """A build of a text encoder or an autoencoder: on one rank, unquantised, over ``batch`` samples."""

    batch: Quantity
    fused: bool = False

    @property
    def compile(self) -> bool:
        return self.fused


@dataclass(frozen=True)
class Grid:
    """Features of every position of ``frames`` x ``height`` x ``width``; ``tensor`` is (positions, channels)."""

    tensor: Tensor
    frames: Quantity
    height: Quantity
    width: Quantity

    @property
    def channels(self) -> int:
        """Features of a position."""
        return int(self.tensor.shape[1])

    def like(self, tensor: Tensor) -> Grid:
        """The same positions with other features."""
        return Grid(tensor, self.frames, self.height, self.width)


def grid(b: ComponentBuild, channels: int, frames: Quantity, height: Quantity, width: Quantity) -> Grid:
    """New features."""
    return Grid(b.activation(b.batch * frames * height * width, channels), frames, height, width)


def conv(
    b: ComponentBuild,
    x: Grid,
    channels: int,
    part: str,
    *,
    kernel: Kernel = CUBE,
    frames: Quantity | None = None,
    shrink: int = 1,
) -> Grid:
    """Convolution with bias, to ``channels``: a product of (positions, kernel x in) by (kernel x in, channels).

    It keeps the size (padded), or makes ``frames`` frames, or divides height and width by ``shrink``. Along time it
    pads on one side only, which is a copy beforehand.
    """
    if kernel[0] > 1:
        padded = grid(b, x.channels, x.frames + kernel[0] - 1.0, x.height, x.width)
        b.elementwise("pad", part, (x.tensor,), (padded.tensor,), flops_per_element=0.0)
        source = padded.tensor
    else:
        source = x.tensor
    out = grid(b, channels, x.frames if frames is None else frames, x.height / shrink, x.width / shrink)
    k = kernel[0] * kernel[1] * kernel[2] * x.channels
    weight, bias = b.weight(f"{part}.weight", (k, channels)), b.weight(f"{part}.bias", (channels,))
    b.emit(
        MatMul(
            name="conv3d" if kernel[0] > 1 else "conv2d",
            part=part,
            inputs=(source, weight, bias),
            outputs=(out.tensor,),
            m=out.tensor.shape[0],
            k=k,
            n=channels,
            matrix_dtype=b.dtype,
        )
    )
    return out


def resize(
    b: ComponentBuild, x: Grid, part: str, *, grow: int = 2, frames: Quantity | None = None, channels: int | None = None
) -> Grid:
    """Copy to another size: nearest neighbours, or channels folded into positions."""
    out = grid(b, channels or x.channels, x.frames if frames is None else frames, x.height * grow, x.width * grow)
    b.elementwise("upsample", part, (x.tensor,), (out.tensor,), flops_per_element=0.0)
    return out


def norm_weights(b: ComponentBuild, channels: int, kind: Norm, part: str) -> tuple[Tensor, ...]:
    """Gamma, and a GroupNorm's beta."""
    gamma = b.weight(f"{part}.weight", (channels,))
    return (gamma,) if kind == "rms" else (gamma, b.weight(f"{part}.bias", (channels,)))


def norm(b: ComponentBuild, x: Grid, kind: Norm, part: str, *, silu: bool = True) -> Grid:
    """Norm over channels, with SiLU after it: one kernel compiled, kernels of their own in eager mode."""
    weights = norm_weights(b, x.channels, kind, part)
    if kind == "rms" and not b.compile:
        normed = x.like(eager.normalize(b, x.tensor, weights[0], part))
        return apply_silu(b, normed, part) if silu else normed
    out = b.activation(*x.tensor.shape)
    inputs = (x.tensor, *weights)
    name = f"{kind}_norm"
    if silu and b.compile:
        b.elementwise(f"{name}_silu", part, inputs, (out,), flops_per_element=NORM_FLOPS[kind] + SILU_FLOPS)
        return x.like(out)
    b.elementwise(name, part, inputs, (out,), flops_per_element=NORM_FLOPS[kind])
    return apply_silu(b, x.like(out), part) if silu else x.like(out)


def apply_silu(b: ComponentBuild, x: Grid, part: str) -> Grid:
    """SiLU."""
    out = b.activation(*x.tensor.shape)
    b.elementwise("silu", part, (x.tensor,), (out,), flops_per_element=SILU_FLOPS)
    return x.like(out)


def add_grids(b: ComponentBuild, x: Grid, y: Grid, part: str) -> Grid:
    """x + y."""
    out = b.activation(*x.tensor.shape)
    b.elementwise("add", part, (x.tensor, y.tensor), (out,), flops_per_element=1.0)
    return x.like(out)


def residual_block(b: ComponentBuild, x: Grid, channels: int, part: str, *, kind: Norm, kernel: Kernel = CUBE) -> Grid:
    """x + conv(silu(norm(conv(silu(norm(x)))))), x by a pointwise convolution where the channels change."""
    y = conv(b, norm(b, x, kind, f"{part}.norm1"), channels, f"{part}.conv1", kernel=kernel)
    y = conv(b, norm(b, y, kind, f"{part}.norm2"), channels, f"{part}.conv2", kernel=kernel)
    if x.channels != channels:
        x = conv(b, x, channels, f"{part}.shortcut", kernel=POINT)
    return add_grids(b, y, x, part)


def position_attention(
    b: ComponentBuild, x: Grid, part: str, *, kind: Norm, pairs_per_sample: Quantity, sequence: Quantity
) -> Grid:
    """x + attention of one head as wide as the channels, over ``sequence`` positions at once.

    ``pairs_per_sample`` are the (query, key) pairs of a sample that the kernel computes.
    """
    rows, width = x.tensor.shape[0], x.channels
    normed = norm(b, x, kind, f"{part}.norm", silu=False).tensor
    q, k, v = (
        linear(b, normed, k=width, n=width, part=f"{part}.{name}", scheme=UNQUANTIZED, bias=True)
        for name in ("q", "k", "v")
    )
    out = b.activation(rows, width)
    b.emit(
        Attention(
            name="flash_attention",
            part=part,
            inputs=(q, k, v),
            outputs=(out,),
            matrix_dtype=b.dtype,
            batch=rows / sequence,
            query_length=sequence,
            kv_length=sequence,
            heads=1,
            kv_heads=1,
            qk_dim=width,
            v_dim=width,
            pairs=b.batch * pairs_per_sample,
            cache_bytes=0.0,
            decode=False,
            causal=False,
            diffusion=True,
        )
    )
    projected = linear(b, out, k=width, n=width, part=f"{part}.output", scheme=UNQUANTIZED, bias=True)
    return add_grids(b, x, x.like(projected), part)
