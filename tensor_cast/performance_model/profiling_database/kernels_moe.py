"""Routing of a mixture of experts, and the kernel that fuses dispatch, experts and combine."""

from __future__ import annotations

import numpy as np

from tensor_cast.ops import GroupedMatMul, Op, Overlapped
from tensor_cast.performance_model.profiling_database.kernels import Columns, Form, FormsOf, Kernel, Launch, numbers
from tensor_cast.performance_model.profiling_database.kernels_matmul import grouped_product
from tensor_cast.performance_model.profiling_database.kernels_vector import DYNAMIC_QUANT
from tensor_cast.performance_model.profiling_database.layouts import Coordinates, Dtypes, layouts


def _copies(c: Coordinates, columns: Columns) -> Coordinates:
    """Experts a token, where only the copies of its rows tell them."""
    return c if "k" in c else {**c, "k": np.divide(c["c"], c["t"])}


def _copied_rows(c: Coordinates) -> Coordinates:
    return {"c": np.multiply(c["t"], c["k"])}


GATING_TOP_K = Kernel(
    types=("MoeGatingTopK",),
    layouts=layouts("t,e:x ; e? -> t,k:=x ; t,k:INT32 ; t,e:=FLOAT"),
    axes=("t",),
    widths=("e", "k"),
    flops=6.0,
)
TOKEN_PERMUTE = Kernel(
    types=("MoeTokenPermute",),
    layouts=layouts("t,h:x ; t,k:=INT32 -> c,h:x ; c:INT32", "t,h:x ; t:=INT32 -> c,h:x ; c:INT32"),
    axes=("t",),
    widths=("h", "k"),
    flops=0.0,
    derive=_copies,
    expand=_copied_rows,
)
TOKEN_UNPERMUTE = Kernel(
    types=("MoeTokenUnpermute",),
    layouts=layouts("c,h:x ; c:INT32 ; t,k:=x -> t,h:x", "c,h:x ; c:INT32 -> t,h:x"),
    axes=("t",),
    widths=("h", "k"),
    flops=2.0,
    derive=_copies,
    expand=_copied_rows,
)
EP_SIZE = "EP Size"
"""Column of DispatchFFNCombine's file: the ranks that the experts are spread over."""


def _with_ranks(c: Coordinates, columns: Columns) -> Coordinates:
    return {**c, "ep": numbers(columns[EP_SIZE])}


def _dispatch_ffn_combine(c: Coordinates, dtypes: Dtypes) -> Op:
    """The products alone, gate, up and down as one: rows that are sent come back as many, whatever the group."""
    rows = np.multiply(c["m"], c["k"])
    return grouped_product({"m": rows, "k": c["h"], "e": c["e"]}, np.multiply(c["i"], 3.0), c["h"], dtypes["w"])


DISPATCH_FFN_COMBINE = Kernel(
    types=("DispatchFFNCombine",),
    layouts=layouts(
        *(
            f"m,h:x ; {gate_up} ; {down} ; m,k:INT32 ; s:=FLOAT ; z:=FLOAT ; m,k:FLOAT -> * m,h:x ; e:INT32"
            for gate_up, down in (
                ("e,i/16,h/16,16,32:w@NZ", "e,h/32,i/16,16,32:w@NZ"),
                ("e,h,2*i:w@NZ", "e,i,h:w@NZ"),
                ("e,h,2*i:w", "e,i,h:w"),
            )
        )
    ),
    axes=("m",),
    widths=("h", "i", "e", "k", "ep"),
    op=_dispatch_ffn_combine,
    columns=(EP_SIZE,),
    derive=_with_ranks,
)


def _gating(op: Op) -> tuple[Form, ...]:
    logits, chosen = op.inputs[0], op.outputs[0]
    sizes = {"t": logits.shape[0], "e": logits.shape[-1], "k": chosen.shape[-1]}
    return ((Launch(GATING_TOP_K, sizes, {"x": logits.dtype}),),)


def _permute(op: Op) -> tuple[Form, ...]:
    """Copies a token: balanced expert parallelism keeps a share of them on this rank.

    The second sort, of rows that an all-to-all brought, is the same kernel with one copy a row (vLLM-Ascend).
    """
    x, out = op.inputs[0], op.outputs[0]
    sizes = {"t": x.shape[0], "h": x.shape[-1], "k": np.divide(out.shape[0], x.shape[0])}
    permute = Launch(TOKEN_PERMUTE, sizes, {"x": x.dtype})
    if op.name != "moe_token_permute_quant":
        return ((permute,),)
    quant = Launch(DYNAMIC_QUANT, {"t": out.shape[0], "d": out.shape[-1]}, {"x": x.dtype, "q": out.dtype})
    return ((permute, quant),)


def _unpermute(op: Op) -> tuple[Form, ...]:
    x, weights = op.inputs
    sizes = {"t": weights.shape[0], "h": x.shape[-1], "k": np.divide(x.shape[0], weights.shape[0])}
    return ((Launch(TOKEN_UNPERMUTE, sizes, {"x": x.dtype}),),)


def _fused(op: Op) -> tuple[Form, ...]:
    """Known where the experts are spread over ranks by a dispatch and their products are quantised to int8."""
    assert isinstance(op, Overlapped)
    grouped = [part for part in op.compute if isinstance(part, GroupedMatMul)]
    sent = [part for part in op.collectives if part.kind == "all_to_all"]
    if len(grouped) != 2 or not sent or grouped[0].matrix_dtype != "int8":
        return ()
    tokens = op.inputs[0].shape[0]
    down = grouped[1]
    sizes = {
        "m": tokens,
        "h": grouped[0].k,
        "i": down.k,
        "e": down.groups,
        "k": np.divide(down.m, tokens),
        "ep": float(sent[0].group_size),
    }
    return ((Launch(DISPATCH_FFN_COMBINE, sizes, {"x": op.inputs[0].dtype, "w": "int8"}),),)


MOE_KERNELS = (GATING_TOP_K, TOKEN_PERMUTE, TOKEN_UNPERMUTE, DISPATCH_FFN_COMBINE)
MOE_FORMS: dict[str, FormsOf] = {
    "moe_gating_top_k": _gating,
    "moe_re_routing": _permute,
    "moe_token_permute": _permute,
    "moe_token_permute_quant": _permute,
    "moe_token_unpermute": _unpermute,
    "dispatch_ffn_combine": _fused,
}
