"""Attention over a KV cache: FusedInferAttentionScore in its layouts, the indexer and sparse attention.

FusedInferAttentionScore reports 31 operands. Its shapes give the pool of the KV cache, not the lengths in use; those
come from the ``Runtime`` columns. A profiled row of a paged cache without them is of no use here; a replayed one is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tensor_cast.ops import Attention, Op, Tensor
from tensor_cast.performance_model.profiling_database.kernels import Columns, Form, FormsOf, Kernel, Launch, numbers
from tensor_cast.performance_model.profiling_database.layouts import Coordinates, Dtypes, layouts
from tensor_cast.performance_model.profiling_database.schema import FUSED_ATTENTION, REPLAY_DURATION
from tensor_cast.quantity import Quantity

QUERY_VALUES = "Runtime actual_seq_lengths_values"
KV_VALUES = "Runtime actual_seq_lengths_kv_values"
AVERAGE_KV = "Runtime avg_seq_len"
KV_HEADS = "Runtime num_key_value_heads"
LENGTH_COLUMNS = (KV_VALUES, AVERAGE_KV, KV_HEADS, REPLAY_DURATION)

LONGEST_DECODE = 16
"""New tokens a sequence up to which a row with older keys counts as a decode: engines verify no more drafted tokens."""

_SLOTS = 31
MASK, QUERY_LENGTHS, KV_LENGTHS, BLOCK_TABLE, QUERY_ROPE, KEY_ROPE = 4, 5, 6, 14, 24, 25
"""Slots behind query, key and value."""


def _fused(slots: dict[int, str], outputs: str) -> str:
    return " ; ".join(slots.get(index, "-") for index in range(_SLOTS)) + f" -> {outputs}"


def _masked(slots: dict[int, str], outputs: str) -> tuple[str, str]:
    """With a causal mask and without."""
    return _fused({**slots, MASK: "mask,mask~:=INT8"}, outputs), _fused(slots, outputs)


_TOKEN_LENGTHS = {QUERY_LENGTHS: "b~:=INT64", KV_LENGTHS: "b~:=INT64"}
_DENSE = {0: "t,h,d:x", **_TOKEN_LENGTHS}
# Keys of this step alone, packed like the queries.
_PACKED = _masked({**_DENSE, 1: "keys,g,d:x", 2: "keys,g,v:x"}, "t,h,v:x ; ?")
# A paged cache, its heads flattened.
_PAGED = _masked({**_DENSE, 1: "nb,bs,wk~:x", 2: "nb,bs,wv~:x", BLOCK_TABLE: "b,mb~:=INT32"}, "t,h,v:x ; ?")
_EXPANDED = _masked(
    {**_DENSE, 1: "keys,h,d:x", 2: "keys,h,v:x", QUERY_ROPE: "t,h,r:x", KEY_ROPE: "keys,h,r:x"}, "t,h,v:x ; ?"
)
_LATENT_SLOTS = {
    0: "b,h,s,c:x",
    1: "nb,1,bs,c~:x",
    2: "nb,1,bs,c~:x",
    KV_LENGTHS: "b~:=INT64",
    BLOCK_TABLE: "b,mb~:=INT32",
    QUERY_ROPE: "b,h,s,r:x",
    KEY_ROPE: "nb,1,bs,r~:x",
}
# One new token sees all keys, so decodes come without a mask first. BNSD_NBSD exchanges batch and heads of the output.
_LATENT = (*_masked(_LATENT_SLOTS, "h,b,s,c:x ; ?")[::-1], *_masked(_LATENT_SLOTS, "b,h,s,c:x ; ?")[::-1])


def _mean_of_cell(cell: str) -> float:
    values = numbers(cell.strip("[]() \"'").replace(";", ",").split(","))
    return float(values.mean()) if values.size else float("nan")


def _kv_lengths(c: Coordinates, columns: Columns) -> npt.NDArray[np.float64]:
    """Mean tokens a sequence in the cache: of the values where a row has them, else the average it states.

    A replay of a row that states neither fills the blocks of every sequence.
    """
    stated = numbers(columns[AVERAGE_KV])
    lengths = np.array(
        [
            _mean_of_cell(values) if values.strip() else average
            for values, average in zip(columns[KV_VALUES], stated, strict=True)
        ]
    )
    is_filled = np.isnan(lengths) & (numbers(columns[REPLAY_DURATION]) > 0.0)
    return np.where(is_filled, np.multiply(c["mb"], c["bs"]), lengths)


def _dense_sizes(c: Coordinates, columns: Columns) -> Coordinates:
    """Sequences are taken as equally long: a row tells how many there are, and their lengths' sum or mean."""
    sizes = {**c, "q": np.divide(c["t"], c["b"])}
    if "keys" in c:
        return {**sizes, "kv": np.divide(c["keys"], c["b"])}
    heads = numbers(columns[KV_HEADS])
    width = np.where(np.isnan(heads), np.divide(c["wk"], c["d"]), heads)
    return {**sizes, "kv": _kv_lengths(c, columns), "g": width}


def _latent_sizes(c: Coordinates, columns: Columns) -> Coordinates:
    return {**c, "q": c["s"], "kv": _kv_lengths(c, columns)}


def _of_phase(sizes: Coordinates, *, decode: bool) -> Coordinates:
    """The same sizes, NaN where the row is of the other phase."""
    is_decode = (np.asarray(sizes["q"]) <= LONGEST_DECODE) & (np.asarray(sizes["kv"]) > sizes["q"])
    return {**sizes, "q": np.where(is_decode == decode, sizes["q"], np.nan)}


def _pairs(c: Coordinates) -> Quantity:
    """(query, key) pairs of a causal mask: the sum of ``kv - q + i`` over i = 1 .. q, for every sequence."""
    return np.multiply(c["b"], c["q"] * (c["kv"] - c["q"]) + c["q"] * (c["q"] + 1.0) / 2.0)


def _attention(
    c: Coordinates, dtype: str, *, kv_heads: Quantity, qk: Quantity, v: Quantity, cached: Quantity, decode: bool
) -> Attention:
    """``cached`` elements are read of the cache for each key."""
    tokens = np.multiply(c["b"], c["q"])
    cache = Tensor((c["b"], c["kv"], cached), dtype, "cache")
    return Attention(
        name="flash_attention",
        part="",
        inputs=(Tensor((tokens, np.multiply(c["h"], qk)), dtype), cache),
        outputs=(Tensor((tokens, np.multiply(c["h"], v)), dtype),),
        matrix_dtype=dtype,
        batch=c["b"],
        query_length=c["q"],
        kv_length=c["kv"],
        heads=c["h"],
        kv_heads=kv_heads,
        qk_dim=qk,
        v_dim=v,
        pairs=_pairs(c),
        cache_bytes=cache.bytes,
        decode=decode,
    )


def _dense_kernel(*, decode: bool) -> Kernel:
    def op(c: Coordinates, dtypes: Dtypes) -> Op:
        cached = np.multiply(c["g"], np.add(c["d"], c["v"]))
        return _attention(c, dtypes["x"], kv_heads=c["g"], qk=c["d"], v=c["v"], cached=cached, decode=decode)

    return Kernel(
        types=(FUSED_ATTENTION,),
        layouts=layouts(*(_PAGED[::-1] if decode else (*_PACKED, *_PAGED))),
        axes=("kv", "q", "b"),
        widths=("h", "g", "d", "v"),
        op=op,
        columns=LENGTH_COLUMNS,
        derive=lambda c, columns: _of_phase(_dense_sizes(c, columns), decode=decode),
    )


def _latent_kernel(*, decode: bool) -> Kernel:
    def op(c: Coordinates, dtypes: Dtypes) -> Op:
        width = np.add(c["c"], c["r"])
        return _attention(c, dtypes["x"], kv_heads=1.0, qk=width, v=c["c"], cached=width, decode=decode)

    return Kernel(
        types=(FUSED_ATTENTION,),
        layouts=layouts(*_LATENT),
        axes=("kv", "q", "b"),
        widths=("h", "c", "r"),
        op=op,
        columns=LENGTH_COLUMNS,
        derive=lambda c, columns: _of_phase(_latent_sizes(c, columns), decode=decode),
    )


def _expanded_op(c: Coordinates, dtypes: Dtypes) -> Op:
    qk = np.add(c["d"], c["r"])
    cached = np.multiply(c["h"], np.add(qk, c["v"]))
    return _attention(c, dtypes["x"], kv_heads=c["h"], qk=qk, v=c["v"], cached=cached, decode=False)


PREFILL_ATTENTION = _dense_kernel(decode=False)
DECODE_ATTENTION = _dense_kernel(decode=True)
LATENT_ATTENTION = _latent_kernel(decode=True)
EXPANDED_ATTENTION = Kernel(
    types=(FUSED_ATTENTION,),
    layouts=layouts(*_EXPANDED),
    axes=("kv", "q", "b"),
    widths=("h", "d", "r", "v"),
    op=_expanded_op,
    columns=LENGTH_COLUMNS,
    derive=_dense_sizes,
)


def _one_sequence(c: Coordinates, columns: Columns) -> Coordinates:
    """Its lengths are operands on the host, which no profile shows: a row is taken as one sequence."""
    return {**c, "b": np.ones_like(c["t"]), "q": c["t"], "kv": c["keys"]}


RING_ATTENTION = Kernel(
    types=("RINGMLAPrefillBF16Kernel",),
    layouts=layouts("t,h,d:x ; t,h,r:x ; keys,h,d:x ; keys,h,r:x ; keys,h,v:x ; mask,mask~:x -> * t,h,v:x ; h,t:FLOAT"),
    axes=("kv", "q", "b"),
    widths=("h", "d", "r", "v"),
    op=_expanded_op,
    derive=_one_sequence,
)


def _index_op(c: Coordinates, dtypes: Dtypes) -> Op:
    return _attention(c, dtypes["x"], kv_heads=1.0, qk=c["d"], v=0.0, cached=c["d"], decode=True)


def _sparse_op(c: Coordinates, dtypes: Dtypes) -> Op:
    """Each token attends to its ``k`` chosen keys."""
    width = np.add(c["c"], c["r"])
    ones = np.ones_like(np.asarray(c["t"], dtype=np.float64))
    sizes = {**c, "b": c["t"], "q": ones, "kv": c["k"]}
    return _attention(sizes, dtypes["x"], kv_heads=1.0, qk=width, v=c["c"], cached=width, decode=True)


LIGHTNING_INDEXER = Kernel(
    types=("LightningIndexer",),
    layouts=layouts("t,h,d:x ; nb,bs,1,d~:x ; t,h:=x ; b~:INT32|INT64 ; b~:INT32|INT64 ; b,mb~:INT32 -> * t,1,k:INT32"),
    axes=("kv", "q", "b"),
    widths=("h", "d"),
    op=_index_op,
    columns=LENGTH_COLUMNS,
    derive=lambda c, columns: {**c, "q": np.divide(c["t"], c["b"]), "kv": _kv_lengths(c, columns)},
)
SPARSE_ATTENTION = Kernel(
    types=("SparseFlashAttention",),
    layouts=layouts(
        "t,h,c:x ; nb,bs,1,c~:x ; nb,bs,1,c~:x ; t,1,k:INT32 ; b,mb~:INT32 ; b~:INT32 ; b~:INT32"
        " ; t,h,r:x ; nb,bs,1,r~:x -> t,h,c:x"
    ),
    axes=("t",),
    widths=("h", "c", "r", "k"),
    op=_sparse_op,
)


def _attention_forms(op: Op) -> tuple[Form, ...]:
    """Only full causal attention: a window or a choice of keys is another kernel, or a mask that rows do not tell."""
    assert isinstance(op, Attention)
    lengths = {"kv": op.kv_length, "q": op.query_length, "b": op.batch}
    if not np.allclose(op.pairs, _pairs(lengths), rtol=1e-9):
        return ()
    dtypes = {"x": op.matrix_dtype}
    cache_width = float(np.max(op.inputs[1].shape[-1]))
    if op.qk_dim > op.v_dim and op.kv_heads == 1 and cache_width == op.qk_dim:
        if not op.decode:
            return ()
        rope = op.qk_dim - op.v_dim
        return ((Launch(LATENT_ATTENTION, {**lengths, "h": op.heads, "c": op.v_dim, "r": rope}, dtypes),),)
    if len(op.inputs) > 2 and op.inputs[2].role == "activation":
        rope = int(cache_width)
        sizes = {**lengths, "h": op.heads, "d": op.qk_dim - rope, "r": rope, "v": op.v_dim}
        return (Launch(EXPANDED_ATTENTION, sizes, dtypes),), (Launch(RING_ATTENTION, sizes, dtypes),)
    kernel = DECODE_ATTENTION if op.decode else PREFILL_ATTENTION
    sizes = {**lengths, "h": op.heads, "g": op.kv_heads, "d": op.qk_dim, "v": op.v_dim}
    return ((Launch(kernel, sizes, dtypes),),)


def _indexer_forms(op: Op) -> tuple[Form, ...]:
    assert isinstance(op, Attention)
    sizes = {"kv": op.kv_length, "q": op.query_length, "b": op.batch, "h": op.heads, "d": op.qk_dim}
    return ((Launch(LIGHTNING_INDEXER, sizes, {"x": op.matrix_dtype}),),)


ATTENTION_KERNELS: tuple[Kernel, ...] = (
    PREFILL_ATTENTION,
    DECODE_ATTENTION,
    LATENT_ATTENTION,
    EXPANDED_ATTENTION,
    RING_ATTENTION,
    LIGHTNING_INDEXER,
    SPARSE_ATTENTION,
)
ATTENTION_FORMS: dict[str, FormsOf] = {
    "flash_attention": _attention_forms,
    "lightning_indexer": _indexer_forms,
}
