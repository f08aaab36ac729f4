"""The kernel that each call launches, with its operands in slot order and its outputs."""

import torch
from standin_calls import DTYPES, numbers


def _like(tensor, *shape, dtype=None):
    return (tuple(shape or tensor.shape), DTYPES[dtype or tensor.dtype], "ND")


def _rms_norm(g):
    x = g["self"]
    return "RmsNorm", [x, g["gamma"]], [_like(x), _like(x, *x.shape[:-1], 1, dtype=torch.float32)]


def _add_rms_norm(g):
    x = g["x1"]
    outputs = [_like(x), _like(x, *x.shape[:-1], 1, dtype=torch.float32), _like(x)]
    return "AddRmsNormBias", [x, g["x2"], g["gamma"], g["beta"]], outputs


def _quantize(g):
    assert g["div_mode"] is False, "div_mode true launches another kernel"
    x = g["self"]
    names = {torch.qint8: "INT8", torch.quint8: "UINT8", torch.int32: "INT32", torch.quint4x2: "INT32"}
    width = x.shape[-1] // 8 if g["dtype"] is torch.quint4x2 else x.shape[-1]
    return "AscendQuantV2", [x, g["scales"], g["zero_points"]], [((*x.shape[:-1], width), names[g["dtype"]], "ND")]


def _fused_attention(g):
    query = g["query"]
    slots = [None] * 31
    slots[0:3] = query, g["key"], g["value"]
    slots[4], slots[14], slots[24], slots[25] = g["atten_mask"], g["block_table"], g["query_rope"], g["key_rope"]
    slots[5], slots[6] = numbers(g["actual_seq_lengths"]), numbers(g["actual_seq_lengths_kv"])
    layout, heads = g["input_layout"], g["num_heads"]
    assert layout in ("TND", "BNSD", "BNSD_NBSD"), layout
    assert heads == query.shape[1]
    assert g["num_key_value_heads"] >= 1
    assert (g["block_size"] > 0) == (g["block_table"] is not None)
    if g["sparse_mode"] == 3:
        assert tuple(g["atten_mask"].shape) == (2048, 2048)
    if g["block_table"] is not None:
        assert int(g["block_table"].max()) < g["key"].shape[0]
        assert max(g["actual_seq_lengths_kv"]) <= g["block_table"].shape[1] * g["block_size"]
    if layout == "TND":
        assert g["actual_seq_lengths"][-1] == query.shape[0]
        assert g["actual_seq_lengths"] == sorted(g["actual_seq_lengths"])
    shape = list(query.shape)
    if layout == "BNSD_NBSD":
        shape[0], shape[1] = shape[1], shape[0]
    lse = _like(query, *query.shape[:-1], 1, dtype=torch.float32) if g["softmax_lse_flag"] else None
    return "FusedInferAttentionScore", slots, [_like(query, *shape), lse]


def _grouped(g):
    [x], [weight] = g["x"], g["weight"]
    assert (g["split_item"], g["group_type"], g["group_list_type"]) == (2, 0, 0)
    assert g["group_list"].tolist()[-1] == x.shape[0]
    scale, token_scale = (g[name][0] if g[name] else None for name in ("scale", "per_token_scale"))
    slots = [x, weight, None, scale, None, None, None, g["group_list"], token_scale]
    return "GroupedMatmul", slots, [_like(x, x.shape[0], weight.shape[-1], dtype=g["output_dtype"])]


def _grouped_swiglu(g):
    x, width = g["x"], g["weight"].shape[-1] // 2
    slots = [x, g["weight"], g["weight_scale"], g["x_scale"], g["group_list"]]
    return "GroupedMatmulSwigluQuant", slots, [_like(x, x.shape[0], width), _like(x, x.shape[0], dtype=torch.float32)]


def _kv_cache(g):
    kv, gamma = g["kv"], g["gamma"]
    assert (g["cache_mode"], g["is_output_kv"]) == ("PA_BNSD", True)
    slots = [kv, gamma, g["cos"], g["sin"], g["index"], g["k_cache"], g["ckv_cache"], *[None] * 5]
    rope = kv.shape[-1] - gamma.shape[0]
    outputs = [g["k_cache"], g["ckv_cache"], _like(kv, *kv.shape[:-1], rope), _like(kv, *kv.shape[:-1], gamma.shape[0])]
    return "KvRmsNormRopeCache", slots, outputs


def _indexer(g):
    query = g["query"]
    assert (g["layout_query"], g["layout_key"], g["sparse_mode"]) == ("TND", "PA_BSND", 3)
    lengths = [g["actual_seq_lengths_query"], g["actual_seq_lengths_key"]]
    outputs = [_like(query, query.shape[0], 1, g["sparse_count"], dtype=torch.int32)]
    return "LightningIndexer", [query, g["key"], g["weights"], *lengths, g["block_table"]], outputs


def _sparse_attention(g):
    query = g["query"]
    assert (g["layout_query"], g["layout_kv"], g["sparse_block_size"]) == ("TND", "PA_BSND", 1)
    lengths = [g["actual_seq_lengths_query"], g["actual_seq_lengths_kv"]]
    slots = [
        query,
        g["key"],
        g["value"],
        g["sparse_indices"],
        g["block_table"],
        *lengths,
        g["query_rope"],
        g["key_rope"],
    ]
    return "SparseFlashAttention", slots, [_like(query)]


def _quant_matmul(g):
    x, y = g["x1"], g["x2"]
    slots = [x, y, g["scale"], g["offset"], g["bias"], g["pertoken_scale"]]
    present = [slot for slot in slots if slot is not None]
    return "QuantBatchMatmulV3", present, [_like(x, x.shape[0], y.shape[1], dtype=g["output_dtype"])]


def _ring_mla(g):
    is_first = g["pre_out"] is None
    expected = ("mask_type_triu", "calc_type_first_ring") if is_first else ("no_mask", "calc_type_default")
    assert (g["mask_type"], g["calc_type"]) == expected
    assert g["seqlen"].dtype is torch.int32
    slots = [g[name] for name in ("q_nope", "q_rope", "k_nope", "k_rope", "value")]
    slots += [g["mask"] if is_first else None, *[None] * 7, g["pre_out"], g["prev_lse"]]
    return "RINGMLAPrefillBF16Kernel", slots, [g["output"], g["softmax_lse"]]


def _reshape_and_cache(g):
    slots = [g[name] for name in ("key", "value", "key_cache", "value_cache", "slot_indices")]
    assert g["slot_indices"].dtype is torch.int32
    assert len(set(g["slot_indices"].tolist())) == len(g["slot_indices"])
    return "ReshapeAndCacheNdKernel", slots, [g["key_cache"], g["value_cache"]]


def _permute(g):
    tokens, copies = g["tokens"], g["indices"].numel()
    outputs = [_like(tokens, copies, tokens.shape[1]), _like(tokens, copies, dtype=torch.int32)]
    return "MoeTokenPermute", [tokens, g["indices"]], outputs


def _unpermute(g):
    copies, probs = g["permuted_tokens"], g["probs"]
    assert sorted(g["sorted_indices"].tolist()) == list(range(copies.shape[0]))
    rows = copies.shape[0] if probs is None else probs.shape[0]
    return "MoeTokenUnpermute", [copies, g["sorted_indices"], probs], [_like(copies, rows, copies.shape[1])]


def _dispatch(g):
    def single(value):
        return value[0] if isinstance(value, list) else value

    assert g["expert_idx"].dtype is torch.int32
    assert g["group"].startswith("hccl_world_")
    slots = [
        g["x"],
        single(g["weight1"]),
        single(g["weight2"]),
        g["expert_idx"],
        single(g["scale1"]),
        single(g["scale2"]),
    ]
    counts = g.get("expert_token_nums")
    return "DispatchFFNCombine", [*slots, g["probs"]], [g["out"], ((3,), "INT32", "ND") if counts is None else counts]


def _qkv(g):
    x, q, kv = g["input"], g["q_hidden_size"], g["kv_hidden_size"]
    assert q % g["head_dim"] == kv % g["head_dim"] == 0
    outputs = [_like(x, len(x), q), _like(x, len(x), kv), _like(x, len(x), kv)]
    return "split_qkv_rmsnorm_rope_kernel_0", "raw", outputs


KERNELS = {
    "_npu_reshape_and_cache": _reshape_and_cache,
    "dispatch_ffn_combine": _dispatch,
    "npu_add_rms_norm_bias": _add_rms_norm,
    "npu_dynamic_quant": lambda g: (
        "DynamicQuant",
        [g["input"]],
        [_like(g["input"], dtype=torch.int8), _like(g["input"], *g["input"].shape[:-1], dtype=torch.float32)],
    ),
    "npu_fused_infer_attention_score": _fused_attention,
    "npu_grouped_matmul": _grouped,
    "npu_grouped_matmul_swiglu_quant": _grouped_swiglu,
    "npu_interleave_rope": lambda g: ("InterleaveRope", [g["x"], g["cos"], g["sin"]], [_like(g["x"])]),
    "npu_kv_rmsnorm_rope_cache": _kv_cache,
    "npu_lightning_indexer": _indexer,
    "npu_moe_token_permute": _permute,
    "npu_moe_token_unpermute": _unpermute,
    "npu_quant_matmul": _quant_matmul,
    "npu_quantize": _quantize,
    "npu_ring_mla": _ring_mla,
    "npu_rms_norm": _rms_norm,
    "npu_scatter_nd_update_": lambda g: ("ScatterNdUpdate", [g["self"], g["indices"], g["updates"]], [g["self"]]),
    "npu_slice": lambda g: ("Slice", [g["self"], *[((2,), "INT64", "ND")] * 2], [_like(g["self"], *g["size"])]),
    "npu_sparse_flash_attention": _sparse_attention,
    "npu_swiglu": lambda g: (
        "SwiGlu",
        [g["self"]],
        [_like(g["self"], *g["self"].shape[:-1], g["self"].shape[-1] // 2)],
    ),
    "npu_transpose_batchmatmul": lambda g: (
        "TransposeBatchMatMul",
        [g["input"], g["weight"]],
        [_like(g["input"], g["input"].shape[1], g["input"].shape[0], g["weight"].shape[2])],
    ),
    "qkv_rmsnorm_rope": _qkv,
}
