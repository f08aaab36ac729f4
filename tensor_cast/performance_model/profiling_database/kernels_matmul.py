"""Matrix products: plain, batched, quantised, grouped.

FRACTAL_NZ keeps a logical (R, C) as (C / c0, R / 16, 16, c0), c0 being 32 bytes: 16 of bfloat16, 32 of int8. Plain
products store their weight as (n, k), quantised and grouped ones as (k, n).
"""

from __future__ import annotations

import numpy as np

from tensor_cast.ops import GroupedMatMul, MatMul, Op, Tensor
from tensor_cast.performance_model.profiling_database.kernels import Columns, Form, Kernel, Launch
from tensor_cast.performance_model.profiling_database.layouts import Coordinates, Dtypes, layouts
from tensor_cast.quantity import Quantity


def _matmul(c: Coordinates, dtypes: Dtypes) -> Op:
    dtype = dtypes["x"]
    return MatMul(
        name="matmul",
        part="",
        inputs=(Tensor((c["m"], c["k"]), dtype), Tensor((c["k"], c["n"]), dtype, "weight")),
        outputs=(Tensor((c["m"], c["n"]), dtype),),
        m=c["m"],
        k=c["k"],
        n=c["n"],
        matrix_dtype=dtype,
    )


def _batch_matmul(c: Coordinates, dtypes: Dtypes) -> Op:
    dtype, batch = dtypes["x"], c["b"]
    return MatMul(
        name="batch_matmul",
        part="",
        inputs=(Tensor((batch, c["m"], c["k"]), dtype), Tensor((batch, c["k"], c["n"]), dtype, "weight")),
        outputs=(Tensor((batch, c["m"], c["n"]), dtype),),
        m=c["m"],
        k=c["k"],
        n=c["n"],
        batch=batch,
        matrix_dtype=dtype,
    )


def _quant_matmul(c: Coordinates, dtypes: Dtypes) -> Op:
    dtype = dtypes["w"]
    return MatMul(
        name="quant_matmul",
        part="",
        inputs=(
            Tensor((c["m"], c["k"]), dtype),
            Tensor((c["k"], c["n"]), dtype, "weight"),
            Tensor((c["n"],), "float32", "weight"),
        ),
        outputs=(Tensor((c["m"], c["n"]), "bfloat16"),),
        m=c["m"],
        k=c["k"],
        n=c["n"],
        matrix_dtype=dtype,
    )


def _weight_quant_matmul(c: Coordinates, dtypes: Dtypes) -> Op:
    x, w = dtypes["x"], dtypes["w"]
    return MatMul(
        name="weight_quant_matmul",
        part="",
        inputs=(Tensor((c["m"], c["k"]), x), Tensor((c["k"], c["n"]), w, "weight")),
        outputs=(Tensor((c["m"], c["n"]), x),),
        m=c["m"],
        k=c["k"],
        n=c["n"],
        matrix_dtype=x,
    )


def grouped_product(
    c: Coordinates, n: Quantity, written: Quantity, dtype: str, out_dtype: str = "bfloat16"
) -> GroupedMatMul:
    """Rows spread evenly over the groups, as replay and a balanced router do: E (1 - (1 - 1/E)^m) have at least one."""
    groups = c["e"]
    missed = 1.0 - 1.0 / np.maximum(groups, 1.0)
    return GroupedMatMul(
        name="grouped_matmul",
        part="",
        inputs=(Tensor((c["m"], c["k"]), dtype), Tensor((groups, c["k"], n), dtype, "weight")),
        outputs=(Tensor((c["m"], written), out_dtype),),
        m=c["m"],
        k=c["k"],
        n=n,
        groups=groups,
        active_groups=groups * (1.0 - np.power(missed, c["m"])),
        matrix_dtype=dtype,
    )


def _grouped_matmul(c: Coordinates, dtypes: Dtypes) -> Op:
    return grouped_product(c, c["n"], c["n"], dtypes["x"], dtypes["x"])


def _quant_grouped_matmul(c: Coordinates, dtypes: Dtypes) -> Op:
    return grouped_product(c, c["n"], c["n"], dtypes["w"])


def _grouped_matmul_swiglu_quant(c: Coordinates, dtypes: Dtypes) -> Op:
    return grouped_product(c, np.multiply(c["i"], 2.0), c["i"], dtypes["w"], "int8")


MATMUL = Kernel(
    types=("MatMulV2", "MatMulV3", "MatMulCommon"),
    layouts=layouts(
        "m,k:x ; k/16,n/16,16,16:x@NZ ; n? -> m,n:y",
        "m,k:x ; n,k:x ; n? -> m,n:y",
        "m,k:x ; k,n:x ; n? -> m,n:y",
    ),
    axes=("m",),
    widths=("k", "n"),
    op=_matmul,
)
BATCH_MATMUL = Kernel(
    types=("BatchMatMulV2", "BatchMatMulV3"),
    layouts=layouts(
        "b,m,k:x ; b,k,n:x -> b,m,n:y",
        "b,m,k:x ; b,n,k:x -> b,m,n:y",
        "b,m,k:x ; b,n/16,k/16,16,16:x@NZ -> b,m,n:y",
    ),
    axes=("m",),
    widths=("b", "k", "n"),
    op=_batch_matmul,
)
TRANSPOSE_BATCH_MATMUL = Kernel(
    types=("TransposeBatchMatMul",),
    layouts=layouts("b,m,k:x ; b,k,n:x -> m,b,n:y", "m,b,k:x ; b,k,n:x -> m,b,n:y"),
    axes=("m",),
    widths=("b", "k", "n"),
    op=_batch_matmul,
)

_QUANT_WEIGHTS = ("n/32,k/16,16,32:w@NZ", "k,n:w", "n,k:w")
# The kernel's operands are x1, x2, scale, offset, bias, per-token scale; reports of some versions leave blanks out.
_TOKEN_SCALES = "BF16|FLOAT"
_SCALES = "FLOAT|BF16|INT64|UINT64"
_DYNAMIC_TAILS = tuple(
    f"n:{_TOKEN_SCALES} ; {tail}"
    for tail in ("m:FLOAT", "- ; - ; m:FLOAT", "- ; n:INT32|BF16|FLOAT ; m:FLOAT", "n:INT32|BF16 ; m:FLOAT")
)
_STATIC_TAILS = tuple(
    f"{scale}:{_SCALES}{tail}"
    for scale in ("n", "1")
    for tail in ("", " ; n:INT32", " ; - ; n:INT32|BF16|FLOAT", " ; o:FLOAT")
)
DYNAMIC_QUANT_MATMUL = Kernel(
    types=("QuantBatchMatmulV3", "QuantBatchMatmulV4"),
    layouts=layouts(*(f"m,k:w ; {weight} ; {tail} -> m,n:y" for weight in _QUANT_WEIGHTS for tail in _DYNAMIC_TAILS)),
    axes=("m",),
    widths=("k", "n"),
    op=_quant_matmul,
)


def _with_offset(c: Coordinates, columns: Columns) -> Coordinates:
    """A fourth operand as long as the rows are many is their scales, whatever the columns are: no static product."""
    if "o" not in c:
        return c
    offset, n = np.asarray(c["o"]), np.asarray(c["n"])
    is_offset = (offset != c["m"]) & ((offset == n) | (offset == 1.0))
    return {**c, "n": np.where(is_offset, n, np.nan)}


STATIC_QUANT_MATMUL = Kernel(
    types=("QuantBatchMatmulV3", "QuantBatchMatmulV4"),
    layouts=layouts(*(f"m,k:w ; {weight} ; {tail} -> m,n:y" for weight in _QUANT_WEIGHTS for tail in _STATIC_TAILS)),
    axes=("m",),
    widths=("k", "n"),
    op=_quant_matmul,
    derive=_with_offset,
    expand=lambda c: {"o": c["n"]},
)
WEIGHT_QUANT_MATMUL = Kernel(
    types=("WeightQuantBatchMatmulV2",),
    layouts=layouts(
        *(
            f"m,k:x ; {weight} ; {scale} -> m,n:x"
            for weight in _QUANT_WEIGHTS
            for scale in ("n:x", "1,n:x", "n,1:x", "n:x ; n:x")
        )
    ),
    axes=("m",),
    widths=("k", "n"),
    op=_weight_quant_matmul,
)

_NO_SCALES = "- ; - ; - ; - ; -"
GROUPED_MATMUL = Kernel(
    types=("GroupedMatmul",),
    layouts=layouts(
        *(
            f"m,k:x ; {weight} ; {tail} -> m,n:y"
            for tail in (f"{_NO_SCALES} ; e:INT64|INT32", _NO_SCALES)
            for weight in ("e,n/16,k/16,16,16:x@NZ", "e,k,n:x", "e,n,k:x")
        )
    ),
    axes=("m",),
    widths=("e", "k", "n"),
    op=_grouped_matmul,
)
# A four-dimensional NZ weight is how some shape grids write one.
_GROUPED_QUANT_WEIGHTS = ("e,n/32,k/16,16,32:w@NZ", "e,k,n:w", "e,n,k:w", "e,k,n/16,16:w@NZ")
QUANT_GROUPED_MATMUL = Kernel(
    types=("GroupedMatmul",),
    layouts=layouts(
        *(
            f"m,k:w ; {weight} ; - ; {scale} ; - ; - ; - ; e:INT64|INT32 ; m:FLOAT -> m,n:y"
            for weight in _GROUPED_QUANT_WEIGHTS
            for scale in ("e,n:BF16|FLOAT", "e,1,n:BF16|FLOAT")
        )
    ),
    axes=("m",),
    widths=("e", "k", "n"),
    op=_quant_grouped_matmul,
)
_SWIGLU_QUANT_OPERANDS = (
    *(
        f"m,k:w ; {weight} ; e,2*i:FLOAT|BF16 ; m:FLOAT ; e:INT64|INT32 -> m,i:w ; m:FLOAT"
        for weight in ("e,i/16,k/16,16,32:w@NZ", "e,k,2*i:w")
    ),
    # Rows of some shape grids have the nine slots of GroupedMatmul, whatever they give as results.
    *(
        f"m,k:w ; {weight} ; - ; e,2*i:FLOAT|BF16 ; - ; - ; - ; e:INT64|INT32 ; m:FLOAT -> * m,i:w ; m:FLOAT"
        for weight in ("e,i/16,k/16,16,32:w@NZ", "e,k,i/8,16:w@NZ")
    ),
)
GROUPED_MATMUL_SWIGLU_QUANT = Kernel(
    types=("GroupedMatmulSwigluQuant", "GroupedMatmulSwigluQuantV2"),
    layouts=layouts(*_SWIGLU_QUANT_OPERANDS),
    axes=("m",),
    widths=("e", "k", "i"),
    op=_grouped_matmul_swiglu_quant,
)


def matmul_forms(op: Op) -> tuple[Form, ...]:
    """Forms of a product of two-dimensional operands."""
    assert isinstance(op, MatMul)
    sizes = {"m": op.m, "k": op.k, "n": op.n}
    if op.name == "quant_matmul":
        kernel = DYNAMIC_QUANT_MATMUL if _is_dynamic(op) else STATIC_QUANT_MATMUL
        return ((Launch(kernel, sizes, {"w": _weight_dtype(op)}),),)
    if op.name == "weight_quant_matmul":
        return ((Launch(WEIGHT_QUANT_MATMUL, sizes, {"x": op.inputs[0].dtype, "w": _weight_dtype(op)}),),)
    return ((Launch(MATMUL, sizes, {"x": op.matrix_dtype}),),)


def batch_matmul_forms(op: Op) -> tuple[Form, ...]:
    """The kernel that writes (rows, batch, n) comes first: it is the form that the model's next kernel reads."""
    assert isinstance(op, MatMul)
    sizes = {"b": op.batch, "m": op.m, "k": op.k, "n": op.n}
    dtypes = {"x": op.matrix_dtype}
    return ((Launch(TRANSPOSE_BATCH_MATMUL, sizes, dtypes),), (Launch(BATCH_MATMUL, sizes, dtypes),))


def grouped_matmul_forms(op: Op) -> tuple[Form, ...]:
    """Forms of the experts' products."""
    assert isinstance(op, GroupedMatMul)
    sizes = {"m": op.m, "e": op.groups, "k": op.k}
    weight = _weight_dtype(op)
    if op.name == "grouped_matmul_swiglu_quant":
        return ((Launch(GROUPED_MATMUL_SWIGLU_QUANT, {**sizes, "i": op.n / 2.0}, {"w": weight}),),)
    if op.name == "quant_grouped_matmul":
        return ((Launch(QUANT_GROUPED_MATMUL, {**sizes, "n": op.n}, {"w": weight}),),)
    return ((Launch(GROUPED_MATMUL, {**sizes, "n": op.n}, {"x": op.matrix_dtype}),),)


def _weight_dtype(op: Op) -> str:
    return next((tensor.dtype for tensor in op.inputs if tensor.role == "weight"), op.matrix_dtype)


def _is_dynamic(op: Op) -> bool:
    """Whether a scale a token comes with the left operand."""
    return len(op.inputs) > 1 and op.inputs[1].role != "weight"


MATMUL_KERNELS = (
    MATMUL,
    BATCH_MATMUL,
    TRANSPOSE_BATCH_MATMUL,
    DYNAMIC_QUANT_MATMUL,
    STATIC_QUANT_MATMUL,
    WEIGHT_QUANT_MATMUL,
    GROUPED_MATMUL,
    QUANT_GROUPED_MATMUL,
    GROUPED_MATMUL_SWIGLU_QUANT,
)
MATMUL_FORMS = {
    "matmul": matmul_forms,
    "quant_matmul": matmul_forms,
    "weight_quant_matmul": matmul_forms,
    "batch_matmul": batch_matmul_forms,
    "grouped_matmul": grouped_matmul_forms,
    "quant_grouped_matmul": grouped_matmul_forms,
    "grouped_matmul_swiglu_quant": grouped_matmul_forms,
}
