"""Linear layers: quantised or not, alone or with the collective that completes them."""

from __future__ import annotations

from tensor_cast.layers.build import Build, KernelWriter
from tensor_cast.ops import Collective, MatMul, Overlapped, Tensor
from tensor_cast.parallelism import RankGroup
from tensor_cast.quantity import ceil_div
from tensor_cast.quantization import LinearScheme

# Absolute value, running maximum, scale and round of npu_dynamic_quant; scale and round of npu_quantize.
DYNAMIC_QUANT_FLOPS = 4.0
STATIC_QUANT_FLOPS = 2.0
# Convert and scale of each weight that a weight-only kernel expands to the model's dtype.
DEQUANTIZE_FLOPS = 2.0


def quantize(build: KernelWriter, x: Tensor, scheme: LinearScheme, part: str) -> tuple[Tensor, ...]:
    """``x`` as the product takes it: itself, or its quantised form (with a scale a token where dynamic).

    One tensor is quantised once, however many linear layers read it.
    """
    if scheme.activation_dtype is None:
        return (x,)
    key = (x, scheme.name)
    if key not in build.quantized:
        outputs = quantized_outputs(build, x, scheme)
        build.elementwise(
            "dynamic_quant" if scheme.dynamic else "quantize",
            part,
            (x,),
            outputs,
            flops_per_element=DYNAMIC_QUANT_FLOPS if scheme.dynamic else STATIC_QUANT_FLOPS,
        )
        build.quantized[key] = outputs
    return build.quantized[key]


def quantized_outputs(build: KernelWriter, x: Tensor, scheme: LinearScheme) -> tuple[Tensor, ...]:
    """New tensors for the quantised form of ``x``: values, and the scales of a dynamic scheme."""
    assert scheme.activation_dtype is not None
    values = Tensor(x.shape, scheme.activation_dtype)
    if not scheme.dynamic:
        return (values,)
    rows, width = x.shape[0], x.shape[-1]
    # A scale a token (int8), a token and block of 128 columns (FP8), a token and group (MXFP4).
    scales_per_row = ceil_div(width, scheme.group_size) if scheme.group_size else 1.0
    return (values, Tensor((rows, scales_per_row), scheme.scale_dtype))


def remember_quantized(build: KernelWriter, x: Tensor, scheme: LinearScheme, quantized: tuple[Tensor, ...]) -> None:
    """Record that the kernel which wrote ``x`` has written its quantised form too."""
    build.quantized[(x, scheme.name)] = quantized


def weights(build: KernelWriter, part: str, k: int, n: int, scheme: LinearScheme, *, bias: bool) -> tuple[Tensor, ...]:
    """Weight, scales and bias of a linear layer on this rank."""
    biases = (build.weight(f"{part}.bias", (n,)),) if bias else ()
    return (build.weight(part, (k, n), scheme.weight_dtype), *scale_weights(build, part, k, n, scheme), *biases)


def scale_weights(
    build: KernelWriter, part: str, k: int, n: int, scheme: LinearScheme, copies: tuple[int, ...] = ()
) -> tuple[Tensor, ...]:
    """What quantisation stores beside ``copies`` of a (k, n) weight: scales, zero points, scales of whole matrices."""
    tensors = []
    scales = scheme.scale_count(k, n)
    if scales:
        tensors.append(build.weight(f"{part}.scale", (*copies, scales), scheme.scale_dtype))
    if scales and scheme.zero_point_dtype is not None:
        tensors.append(build.weight(f"{part}.zero_point", (*copies, scales), scheme.zero_point_dtype))
    if scheme.tensor_scales:
        tensors.append(build.weight(f"{part}.tensor_scale", (*copies, scheme.tensor_scales), "float32"))
    return tuple(tensors)


def matmul_name(scheme: LinearScheme) -> str:
    """Stable name of the kernel that multiplies under ``scheme``."""
    if scheme.quantizes_activation:
        return "quant_matmul"
    return "weight_quant_matmul" if scheme.quantizes_weight else "matmul"


def linear(
    build: KernelWriter, x: Tensor, *, k: int, n: int, part: str, scheme: LinearScheme, bias: bool = False
) -> Tensor:
    """(rows, k) -> (rows, n)."""
    op = _matmul(build, x, k=k, n=n, part=part, scheme=scheme, bias=bias)
    build.emit(op)
    return op.outputs[0]


def _matmul(build: KernelWriter, x: Tensor, *, k: int, n: int, part: str, scheme: LinearScheme, bias: bool) -> MatMul:
    operands = quantize(build, x, scheme, part)
    rows = x.shape[0]
    weight_only = scheme.quantizes_weight and not scheme.quantizes_activation
    return MatMul(
        name=matmul_name(scheme),
        part=part,
        inputs=(*operands, *weights(build, part, k, n, scheme, bias=bias)),
        outputs=(build.activation(rows, n),),
        m=rows,
        k=k,
        n=n,
        matrix_dtype=scheme.compute_dtype or build.dtype,
        epilogue_flops=DEQUANTIZE_FLOPS * k * n if weight_only else 0.0,
    )


def row_parallel_linear(
    build: Build, x: Tensor, *, k: int, n: int, part: str, scheme: LinearScheme, bias: bool = False
) -> Tensor:
    """(tokens, k) -> residual rows of n, ``k`` being this rank's share: partial sums are reduced over the TP group."""
    op = _matmul(build, x, k=k, n=n, part=part, scheme=scheme, bias=bias)
    group = build.tp_group
    if build.deployment.enable_matmul_allreduce and group.size > 1 and not build.sequence_parallel:
        partial = op.outputs[0]
        build.emit(
            Overlapped(
                name="matmul_all_reduce",
                part=part,
                inputs=op.inputs,
                outputs=op.outputs,
                matrix_dtype=op.matrix_dtype,
                compute=(op,),
                collectives=(_all_reduce(part, partial, group),),
            )
        )
        return partial
    build.emit(op)
    return reduce_partial(build, op.outputs[0], part)


def reduce_partial(build: Build, partial: Tensor, part: str) -> Tensor:
    """Sum partial results over the TP group, into whole rows or, with sequence parallelism, a share of them."""
    group = build.tp_group
    rows, width = partial.shape
    if build.sequence_parallel:
        return build.communicate("reduce_scatter", part, partial, group, (ceil_div(rows, build.tp), width))
    return build.communicate("all_reduce", part, partial, group, (rows, width))


def _all_reduce(part: str, x: Tensor, group: RankGroup) -> Collective:
    return Collective(
        name="all_reduce",
        part=part,
        kind="all_reduce",
        inputs=(x,),
        outputs=(x,),
        message_bytes=x.bytes,
        group_size=group.size,
        stride=group.stride,
    )


def gather_tokens(build: Build, x: Tensor, part: str) -> Tensor:
    """All tokens of the TP group, where the residual stream holds a share of them."""
    if not build.sequence_parallel:
        return x
    return build.communicate("all_gather", part, x, build.tp_group, (build.tokens, *x.shape[1:]))
