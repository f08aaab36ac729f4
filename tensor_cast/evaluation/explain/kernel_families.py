"""What a kernel does, whoever named it: ``MatMulV3`` of a profiler and ``quant_matmul`` of ours are ``matmul``."""

from __future__ import annotations

import re
from functools import cache

from tensor_cast.ops import Category

TRAINING = " (training)"
"""Ends the family of kernels that no inference has."""

# The first family one of whose words stands in a name, in small letters and without underscores, takes it.
_FAMILIES: tuple[tuple[str, Category, tuple[str, ...]], ...] = (
    ("matmul_all_reduce", "MatMul", ("matmulallreduce",)),
    ("dispatch_ffn_combine", "MatMul", ("dispatchffncombine",)),
    ("all_reduce", "Comm", ("allreduce",)),
    ("all_gather", "Comm", ("allgather",)),
    ("reduce_scatter", "Comm", ("reducescatter",)),
    ("all_to_all", "Comm", ("alltoall", "distributedispatch", "distributecombine")),
    ("broadcast", "Comm", ("hcombroadcast",)),
    ("p2p", "Comm", ("sendrecv", "hcomsend", "hcomreceive", "p2p", "pipelinewait")),
    ("attention", "FlashAttention", ("attention", "mlapreprocess", "ringmla", "multilatent")),
    ("grouped_matmul", "MatMul", ("groupedmatmul",)),
    ("matmul", "MatMul", ("matmul", "gemm")),
    ("convolution", "MatMul", ("conv1d", "conv2d", "conv3d")),
    ("qkv_norm_rope", "Vector", ("splitqkvrmsnormrope", "kvrmsnormrope")),
    ("rope", "Vector", ("rotary", "rope")),
    ("rms_norm", "Vector", ("rmsnorm",)),
    ("layer_norm", "Vector", ("layernorm",)),
    ("activation", "Vector", ("swiglu", "silu", "swish", "gelu", "sigmoid")),
    ("quantise", "Vector", ("dynamicquant", "ascendquant", "quantize")),
    ("cache_write", "Vector", ("reshapeandcache", "kvcache", "scatternd")),
    ("routing", "Vector", ("moegating", "topk", "routing", "permute")),
    ("embedding", "Vector", ("gatherv2", "embedding")),
    ("arg_max", "Vector", ("argmax",)),
    ("softmax", "Vector", ("softmax",)),
    ("copy", "Vector", ("tensormove", "transpose", "transdata", "slice", "concat", "cast", "split", "copy")),
    ("mul", "Vector", ("mul",)),
    ("add", "Vector", ("add",)),
)
_COLLECTIVE_CORES = frozenset({"COMMUNICATION", "HCCL"})
_TRAINING = re.compile(r"grad|backprop|applyadam", re.IGNORECASE)


@cache
def family(name: str, core: str = "") -> tuple[str, Category]:
    """Family and category of a kernel type or of a simulator's kernel name; an unknown one is a family of its own.

    ``core`` is the profiler's Accelerator Core: it tells collectives of unknown names from vector kernels.
    """
    bare = name.replace("_", "").lower()
    training = TRAINING if _TRAINING.search(name) else ""
    for known, category, words in _FAMILIES:
        if any(word in bare for word in words):
            return known + training, category
    if core in _COLLECTIVE_CORES or bare.startswith("hcom"):
        return name, "Comm"
    return name + training, "Vector"
