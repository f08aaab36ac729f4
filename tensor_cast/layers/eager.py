"""What PyTorch runs one operation at a time where no fused kernel exists: each reads and writes all of its operands.

After diffusers' code of these functions, which computes in float32 and comes back to the model's dtype.
"""

from __future__ import annotations

from tensor_cast.layers.build import KernelWriter
from tensor_cast.ops import Tensor


def pointwise(
    b: KernelWriter, name: str, part: str, inputs: tuple[Tensor, ...], dtype: str, *, flops: float = 1.0
) -> Tensor:
    """An operation on every element of the first input, whose result has ``dtype``."""
    out = b.activation(*inputs[0].shape, dtype=dtype)
    b.elementwise(name, part, inputs, (out,), flops_per_element=flops)
    return out


def cast(b: KernelWriter, x: Tensor, dtype: str, part: str) -> Tensor:
    """``x`` in ``dtype``: a copy, or nothing where it has it."""
    return x if x.dtype == dtype else pointwise(b, "cast", part, (x,), dtype, flops=0.0)


def rms_norm(b: KernelWriter, x: Tensor, weight: Tensor, part: str) -> Tensor:
    """RMSNorm: squares of a float32 copy, their mean a row, product with the root, cast, product with ``weight``."""
    squares = pointwise(b, "pow", part, (cast(b, x, "float32", part),), "float32")
    means = b.activation(x.shape[0], 1, dtype="float32")
    b.elementwise("mean", part, (squares,), (means,), flops_per_element=1.0)
    scaled = cast(b, pointwise(b, "mul", part, (x, means), "float32"), b.dtype, part)
    return pointwise(b, "mul", part, (scaled, weight), b.dtype)


def rotate(b: KernelWriter, x: Tensor, part: str) -> Tensor:
    """apply_rotary_emb: x cos + (-x_odd, x_even) sin, all but the exchange in float32."""
    half = x.view(x.shape[0], x.shape[1] / 2.0)
    b.elementwise("neg", part, (half,), (b.activation(*half.shape),), flops_per_element=1.0)
    turned = pointwise(b, "stack", part, (x,), b.dtype, flops=0.0)
    first, second = (
        pointwise(b, "mul", part, (cast(b, operand, "float32", part),), "float32") for operand in (x, turned)
    )
    return cast(b, pointwise(b, "add", part, (first, second), "float32"), b.dtype, part)


def normalize(b: KernelWriter, x: Tensor, gamma: Tensor, part: str) -> Tensor:
    """Wan's RMS_norm over channels: quotient by a position's norm, products with the width's root and ``gamma``."""
    norms = b.activation(x.shape[0], 1)
    b.elementwise("norm", part, (x,), (norms,), flops_per_element=2.0)
    scaled = pointwise(b, "mul", part, (pointwise(b, "div", part, (x, norms), b.dtype),), b.dtype)
    return pointwise(b, "mul", part, (scaled, gamma), b.dtype)
