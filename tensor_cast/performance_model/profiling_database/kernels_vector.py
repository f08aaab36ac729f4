"""Vector kernels: norms, activations, quantisation, rotary embedding, cache writes, gathers, copies."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tensor_cast.ops import Op
from tensor_cast.performance_model.profiling_database.kernels import Columns, Form, FormsOf, Kernel, Launch
from tensor_cast.performance_model.profiling_database.layouts import Coordinates, layouts
from tensor_cast.quantity import Quantity


def _rows(
    *types: str,
    form: str | tuple[str, ...],
    widths: tuple[str, ...] = ("d",),
    flops: float = 1.0,
    flat: bool = False,
    expand: Callable[[Coordinates], Coordinates] | None = None,
) -> Kernel:
    """A kernel that works row by row: ``t`` rows of structural widths."""
    texts = (form,) if isinstance(form, str) else form
    return Kernel(
        types=types, layouts=layouts(*texts), axes=("t",), widths=widths, flops=flops, flat=flat, expand=expand
    )


def _heads_product(c: Coordinates, columns: Columns) -> Coordinates:
    """Heads and their width are one width to the model: a row of a cache."""
    return {**c, "w": np.multiply(c["h"], c["d"])}


def _heads(c: Coordinates) -> Coordinates:
    return {"h": np.divide(c["w"], c["d"])}


ADD = _rows("Add", form=("t,d:x ; t,d:x -> t,d:x", "t,d:x ; d:x -> t,d:x"), flat=True)
MUL = _rows("Mul", form="t,d:x ; t,d:x -> t,d:x", flat=True)
SWISH = _rows("Swish", form="t,d:x -> t,d:x", flops=4.0, flat=True)
GELU = _rows("Gelu", "GeluV2", form="t,d:x -> t,d:x", flops=4.0, flat=True)
SIGMOID = _rows("Sigmoid", form="t,d:x -> t,d:x", flops=3.0, flat=True)
SWIGLU = _rows("SwiGlu", form="t,2*d:x -> t,d:x", flops=2.5)
SWIGLU_QUANT = _rows("SwiGluQuant", form="t,2*d:x -> t,d:q ; t:FLOAT", flops=4.5)
DYNAMIC_QUANT = _rows("DynamicQuant", form=("t,d:x -> t,d:q ; t:FLOAT", "t,d:x -> t,d:q ; t,1:FLOAT"), flops=4.0)
STATIC_QUANT = _rows("AscendQuantV2", form=("t,d:x ; d:=x ; d:=x -> t,d:q", "t,d:x ; d:=x -> t,d:q"), flops=2.0)
RMS_NORM = _rows(
    "RmsNorm",
    form=("t,h,d:x ; d:=x -> t,h,d:x ; t,h,1:=FLOAT", "t,d:x ; d:=x -> t,d:x ; t,1:=FLOAT"),
    widths=("h", "d"),
    flops=4.0,
)
ADD_RMS_NORM = _rows(
    "AddRmsNormBias",
    "AddRmsNorm",
    form=(
        "t,d:x ; t,d:x ; d:=x ; d:=x -> t,d:x ; t,1:=FLOAT ; t,d:x",
        "t,d:x ; t,d:x ; d:=x ; - -> t,d:x ; t,1:=FLOAT ; t,d:x",
    ),
    flops=5.0,
)
ADD_RMS_NORM_QUANT = _rows(
    "AddRmsNormQuant", form="t,d:x ; t,d:x ; d:=x ; d:=x ; d? -> t,d:q ; t,d:q ; t,d:x", flops=7.0
)
ADD_RMS_NORM_DYNAMIC_QUANT = _rows(
    "AddRmsNormDynamicQuant", form="t,d:x ; t,d:x ; d:=x -> t,d:q ; t,d:q ; t,d:x ; t:FLOAT ; t:FLOAT", flops=9.0
)
LAYER_NORM = _rows(
    "LayerNormV4",
    "LayerNormV3",
    form=(
        "t,d:x ; 1:=INT64 ; d:=x ; d:=x -> t,d:x ; t,1:=FLOAT ; t,1:=FLOAT",
        "t,d:x ; d:=x ; d:=x -> t,d:x ; t,1:=FLOAT ; t,1:=FLOAT",
    ),
    flops=7.0,
)
INTERLEAVE_ROPE = Kernel(
    types=("InterleaveRope",),
    layouts=layouts("t,h,1,d:x ; t,1,1,d:x ; t,1,1,d:x -> t,h,1,d:x"),
    axes=("t",),
    widths=("w",),
    flops=3.0,
    derive=_heads_product,
    expand=_heads,
)
KV_RMS_NORM_ROPE_CACHE = Kernel(
    types=("KvRmsNormRopeCache",),
    layouts=layouts(
        "t,1,1,kv:x ; c:=x ; t,1,1,r:x ; t,1,1,r:x ; t:INT64 ; nb,bs,1,r~:z ; nb,bs,1,c~:z ; - ; - ; - ; - ; - "
        "-> nb,bs,1,r~:z ; nb,bs,1,c~:z ; t,1,1,r:x ; t,1,1,c:x"
    ),
    axes=("t",),
    widths=("c", "r"),
    flops=4.0,
    expand=lambda c: {"kv": np.add(c["c"], c["r"])},
)
RESHAPE_AND_CACHE = Kernel(
    types=("ReshapeAndCacheNdKernel",),
    layouts=layouts("t,h,d:x ; t,h,d:x ; nb,bs,h,d~:x ; nb,bs,h,d~:x ; t:INT32|INT64 -> * nb,bs,h,d:x ; nb,bs,h,d:x"),
    axes=("t",),
    widths=("w",),
    derive=_heads_product,
    expand=_heads,
)
SPLIT_QKV_NORM_ROPE = _rows(
    "split_qkv_rmsnorm_rope_kernel",
    form=(
        "t,w:x ; r:=x -> t,q:x ; t,kv:x ; t,kv:x",
        "t,w:x ; rows,r~:=x -> t,q:x ; t,kv:x ; t,kv:x",
        "t,w:x ; rows,r~:=x ; t:INT64 -> t,q:x ; t,kv:x ; t,kv:x",
    ),
    widths=("q", "kv"),
    flops=7.0,
    expand=lambda c: {"w": np.add(c["q"], np.multiply(c["kv"], 2.0))},
)
EMBEDDING = Kernel(
    types=("GatherV2",),
    layouts=layouts("v,d~:x ; t:INT32|INT64 ; 1~:=INT64 -> t,d:x", "v,d~:x ; t:INT32|INT64 ; - -> t,d:x"),
    axes=("t",),
    widths=("v", "d"),
    flops=0.0,
)
INDEX = Kernel(
    types=("Index",),
    layouts=layouts(
        *(
            f"s,d~:x ; {metadata} -> t,d:x"
            for metadata in (
                "1:=INT64 ; 2:=INT64 ; t:=INT32",
                "1:=INT64 ; t:=INT64 ; 1:=INT64",
                "1:=INT64 ; 1:=INT64 ; t:=INT32",
            )
        )
    ),
    axes=("t",),
    widths=("d",),
    flops=0.0,
)
ARG_MAX = _rows("ArgMaxV2", form=("t,d:x ; ? -> t:INT32|INT64", "t,d:x ; 1~:=INT64 -> t:INT32|INT64"))
CONCAT = _rows(
    "ConcatD",
    "ConcatV2D",
    form="t,a:x ; t,b:x -> t,c:x",
    widths=("a", "b"),
    flops=0.0,
    expand=lambda c: {"c": np.add(c["a"], c["b"])},
)
TENSOR_MOVE = _rows(
    "TensorMove", form=("t,h,d:x -> t,h,d:x", "t,d:x -> t,d:x"), widths=("h", "d"), flops=0.0, flat=True
)
SOFTMAX = _rows("SoftmaxV2", form="t,d:x -> t,d:x", flops=5.0)
SORT = _rows("Sort", form="t,d:x -> t,d:x ; t,d:INT32|INT64")
MASKED_FILL = _rows("MaskedFill", form=("t,d:x ; t,d:BOOL ; ? -> t,d:x", "t,d:x ; t,1:BOOL ; ? -> t,d:x"), flat=True)
SCALAR_OPS = tuple(
    _rows(
        name,
        form=("t,d:x ; ? -> t,d:y", "t,d:x -> t,d:y", "t,d:x ; t,1:x -> t,d:y", "t,d:x ; t,d:x -> t,d:y"),
        flat=True,
    )
    for name in ("Muls", "GreaterEqual", "RealDiv")
)
SCALED = _rows("Mul", form="t,d:x ; ? -> t,d:x", flat=True)
TRANSPOSE = Kernel(
    types=("Transpose", "TransposeAiCore"),
    layouts=layouts("h,t,d:x ; 3~:=INT64 -> t,h,d:x", "t,d:x ; 2~:=INT64 -> d,t:x"),
    axes=("t",),
    widths=("h", "d"),
    flops=0.0,
)
SLICE = _rows("Slice", "SliceAiCore", form="s,d~:x ; 2~:=INT64 ; 2~:=INT64 ; 2~? ; 2~? -> t,d:x", flops=0.0)
PAD = _rows("PadV3", form="s,d~:x ; 4~:=INT64 ; ? -> t,d:x", flops=0.0)
SCATTER_UPDATE = _rows("ScatterNdUpdate", form="s,d~:x ; t,1:INT32|INT64 ; t,d:x -> s,d~:x", flops=0.0)


def _row_sizes(op: Op) -> dict[str, Quantity]:
    """Rows and width of the first operand."""
    shape = op.inputs[0].shape
    return {"t": shape[0], "d": shape[-1]}


def _x(op: Op) -> dict[str, str]:
    return {"x": op.inputs[0].dtype}


def _of_rows(*kernels: Kernel) -> FormsOf:
    """Kernels one after another on the rows of the op's first operand."""

    def forms(op: Op) -> tuple[Form, ...]:
        return (tuple(Launch(kernel, _row_sizes(op), _x(op)) for kernel in kernels),)

    return forms


def _written_rows(*alternatives: tuple[Kernel, ...]) -> FormsOf:
    """Kernels on rows as wide as the op's first output, whose dtype is ``q`` where they quantise."""

    def forms(op: Op) -> tuple[Form, ...]:
        out = op.outputs[0]
        sizes = {"t": out.shape[0], "d": out.shape[-1]}
        dtypes = {**_x(op), "q": out.dtype}
        return tuple(tuple(Launch(kernel, sizes, dtypes) for kernel in kernels) for kernels in alternatives)

    return forms


def _rms_norm(op: Op) -> tuple[Form, ...]:
    x, gamma = op.inputs[0], op.inputs[-1]
    width = gamma.shape[-1]
    heads = np.maximum(np.round(np.divide(x.shape[-1], width)), 1.0)
    return ((Launch(RMS_NORM, {"t": x.shape[0], "h": heads, "d": width}, _x(op)),),)


def _interleave_rope(op: Op) -> tuple[Form, ...]:
    x = op.inputs[0]
    return ((Launch(INTERLEAVE_ROPE, {"t": x.shape[0], "w": x.shape[-1]}, _x(op)),),)


def _kv_cache(op: Op) -> tuple[Form, ...]:
    latent, gamma = op.inputs[:2]
    rank = gamma.shape[-1]
    sizes = {"t": latent.shape[0], "c": rank, "r": np.subtract(latent.shape[-1], rank)}
    return ((Launch(KV_RMS_NORM_ROPE_CACHE, sizes, {**_x(op), "z": op.outputs[0].dtype}),),)


def _reshape_and_cache(op: Op) -> tuple[Form, ...]:
    if len(op.inputs) != 2:
        return ()
    key = op.inputs[0]
    return ((Launch(RESHAPE_AND_CACHE, {"t": key.shape[0], "w": key.shape[-1]}, _x(op)),),)


def _split_qkv(op: Op) -> tuple[Form, ...]:
    q, k, _ = op.outputs
    return ((Launch(SPLIT_QKV_NORM_ROPE, {"t": q.shape[0], "q": q.shape[-1], "kv": k.shape[-1]}, _x(op)),),)


def _embedding(op: Op) -> tuple[Form, ...]:
    table = op.inputs[1]
    sizes = {"t": op.inputs[0].shape[0], "v": table.shape[0], "d": table.shape[-1]}
    return ((Launch(EMBEDDING, sizes, {"x": table.dtype}),),)


def _concat(op: Op) -> tuple[Form, ...]:
    if len(op.inputs) != 2:
        return ()
    first, second = op.inputs
    sizes = {"t": first.shape[0], "a": first.shape[-1], "b": second.shape[-1]}
    return ((Launch(CONCAT, sizes, _x(op)),),)


VECTOR_KERNELS = (
    ADD,
    MUL,
    SWISH,
    GELU,
    SIGMOID,
    SWIGLU,
    SWIGLU_QUANT,
    DYNAMIC_QUANT,
    STATIC_QUANT,
    RMS_NORM,
    ADD_RMS_NORM,
    ADD_RMS_NORM_QUANT,
    ADD_RMS_NORM_DYNAMIC_QUANT,
    LAYER_NORM,
    INTERLEAVE_ROPE,
    KV_RMS_NORM_ROPE_CACHE,
    RESHAPE_AND_CACHE,
    SPLIT_QKV_NORM_ROPE,
    EMBEDDING,
    INDEX,
    ARG_MAX,
    CONCAT,
    TENSOR_MOVE,
    SOFTMAX,
    SORT,
    MASKED_FILL,
    *SCALAR_OPS,
    SCALED,
    TRANSPOSE,
    SLICE,
    PAD,
    SCATTER_UPDATE,
)
VECTOR_FORMS: dict[str, FormsOf] = {
    "add": _of_rows(ADD),
    "mul": _of_rows(MUL),
    "silu": _of_rows(SWISH),
    "activation": _of_rows(GELU),
    "sigmoid_mul": _of_rows(SIGMOID, MUL),
    "swiglu": _written_rows((SWIGLU,)),
    "swiglu_quant": _written_rows((SWIGLU_QUANT,), (SWIGLU, DYNAMIC_QUANT)),
    "dynamic_quant": _of_rows(DYNAMIC_QUANT),
    "quantize": _of_rows(STATIC_QUANT),
    "rms_norm": _rms_norm,
    "layer_norm": _of_rows(LAYER_NORM),
    "add_rms_norm": _of_rows(ADD_RMS_NORM),
    "add_rms_norm_quant": _written_rows((ADD_RMS_NORM_QUANT,), (ADD_RMS_NORM, STATIC_QUANT)),
    "add_rms_norm_dynamic_quant": _written_rows((ADD_RMS_NORM_DYNAMIC_QUANT,), (ADD_RMS_NORM, DYNAMIC_QUANT)),
    "interleave_rope": _interleave_rope,
    "kv_rms_norm_rope_cache": _kv_cache,
    "reshape_and_cache": _reshape_and_cache,
    "split_qkv_rmsnorm_rope": _split_qkv,
    "embedding": _embedding,
    "index_select": _of_rows(INDEX),
    "arg_max": _of_rows(ARG_MAX),
    "concat": _concat,
}
