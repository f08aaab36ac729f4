"""Signatures of the calls that launch the kernels, by the release that brought each.

Sources: op-plugin's op_plugin_functions.yaml (branches 7.1.0 to 26.1.0), vllm-ascend's csrc/torch_binding.cpp (tags
0.12 to 0.25), torch-npu 2.14.0's _atb_ops.py and npu_native_functions.yaml.
"""

from __future__ import annotations

OP_PLUGIN_RELEASES = ("7.1.0", "7.2.0", "7.3.0", "26.0.0", "26.1.0")
VLLM_ASCEND_RELEASES = ("0.12.0", "0.13.0", "0.15.0", "0.18.0", "0.19.1", "0.20.2", "0.21.0", "0.25.1")

_FUSED = (
    "(Tensor query, Tensor key, Tensor value, *, Tensor? pse_shift=None, Tensor? atten_mask=None, "
    "SymInt[]? actual_seq_lengths=None, SymInt[]? actual_seq_lengths_kv=None, Tensor? dequant_scale1=None, "
    "Tensor? quant_scale1=None, Tensor? dequant_scale2=None, Tensor? quant_scale2=None, Tensor? quant_offset2=None, "
    "Tensor? antiquant_scale=None, Tensor? antiquant_offset=None, Tensor? key_antiquant_scale=None, "
    "Tensor? key_antiquant_offset=None, Tensor? value_antiquant_scale=None, Tensor? value_antiquant_offset=None, "
    "Tensor? block_table=None, Tensor? query_padding_size=None, Tensor? kv_padding_size=None, "
    "Tensor? key_shared_prefix=None, Tensor? value_shared_prefix=None, SymInt[]? actual_shared_prefix_len=None, "
    "Tensor? query_rope=None, Tensor? key_rope=None, Tensor? key_rope_antiquant_scale=None, int num_heads=1, "
    "float scale=1.0, int pre_tokens=2147483647, int next_tokens=2147483647, str input_layout='BSH', "
    "int num_key_value_heads=0, int sparse_mode=0, int inner_precise=0, int block_size=0, int antiquant_mode=0, "
    "int key_antiquant_mode=0, int value_antiquant_mode=0, bool softmax_lse_flag=False) -> (Tensor, Tensor)"
)
_GROUPED = (
    "(Tensor[] x, Tensor[] weight, *, Tensor[]? bias=None, Tensor[]? scale=None, Tensor[]? offset=None, "
    "Tensor[]? antiquant_scale=None, Tensor[]? antiquant_offset=None, Tensor[]? per_token_scale=None, "
    "Tensor? group_list=None, Tensor[]? activation_input=None, Tensor[]? activation_quant_scale=None, "
    "Tensor[]? activation_quant_offset=None, int? split_item=0, int? group_type=None, int? group_list_type=0, "
    "int? act_type=0, int[]? tuning_config=None, {dtypes}) -> Tensor[]"
)
_KV_CACHE = (
    "(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor index, Tensor k_cache, Tensor ckv_cache, *, "
    "Tensor? k_rope_scale=None, Tensor? c_kv_scale=None, Tensor? k_rope_offset=None, Tensor? c_kv_offset=None, "
    "{v}float epsilon=1e-5, str cache_mode='Norm', bool is_output_kv=False) -> (Tensor, Tensor, Tensor, Tensor)"
)
_QUANT_MATMUL = (
    "(Tensor x1, Tensor x2, Tensor scale, *, Tensor? offset=None, Tensor? pertoken_scale=None, Tensor? bias=None, "
)

TORCH_NPU: dict[str, dict[str, str]] = {
    "npu_dynamic_quant": {
        "7.1.0": "(Tensor input, *, Tensor? smooth_scales=None, Tensor? group_index=None, ScalarType? dst_type=None)"
        " -> (Tensor, Tensor)",
        "26.0.0": "(Tensor input, *, Tensor? smooth_scales=None, Tensor? group_index=None, int? dst_type=None, "
        "str quant_mode='pertoken', float dst_type_max=0.0) -> (Tensor, Tensor)",
    },
    "npu_fused_infer_attention_score": {"7.1.0": _FUSED},
    "npu_grouped_matmul": {
        "7.1.0": _GROUPED.format(dtypes="ScalarType? output_dtype=None"),
        "26.0.0": _GROUPED.format(
            dtypes="int? output_dtype=None, int? x_dtype=None, int? weight_dtype=None, int? scale_dtype=None, "
            "int? per_token_scale_dtype=None"
        ),
    },
    "npu_grouped_matmul_swiglu_quant": {
        "7.1.0": "(Tensor x, Tensor weight, Tensor group_list, Tensor weight_scale, Tensor x_scale, *, "
        "Tensor? bias=None, Tensor? offset=None) -> (Tensor, Tensor, Tensor)"
    },
    "npu_interleave_rope": {"7.1.0": "(Tensor x, Tensor cos, Tensor sin) -> Tensor"},
    "npu_kv_rmsnorm_rope_cache": {
        "7.1.0": _KV_CACHE.format(v=""),
        "7.3.0": _KV_CACHE.format(v="Tensor? v=None, "),
    },
    "npu_lightning_indexer": {
        "7.3.0": "(Tensor query, Tensor key, Tensor weights, *, Tensor? actual_seq_lengths_query=None, "
        "Tensor? actual_seq_lengths_key=None, Tensor? block_table=None, str layout_query='BSND', "
        "str layout_key='BSND', int sparse_count=2048, int sparse_mode=3, int pre_tokens=9223372036854775807, "
        "int next_tokens=9223372036854775807, bool return_value=False) -> (Tensor, Tensor)"
    },
    "npu_moe_token_permute": {
        "7.1.0": "(Tensor tokens, Tensor indices, int? num_out_tokens=None, bool padded_mode=False) -> (Tensor, Tensor)"
    },
    "npu_moe_token_unpermute": {
        "7.1.0": "(Tensor permuted_tokens, Tensor sorted_indices, Tensor? probs=None, bool padded_mode=False, "
        "int[]? restore_shape=None) -> Tensor"
    },
    "npu_quant_matmul": {
        "7.1.0": f"{_QUANT_MATMUL}ScalarType? output_dtype=None, SymInt[]? group_sizes=None) -> Tensor",
        "26.0.0": f"{_QUANT_MATMUL}int? output_dtype=None, int? x1_dtype=None, int? x2_dtype=None, "
        "int? pertoken_scale_dtype=None, int? scale_dtype=None, int[]? group_sizes=None, Tensor? y_scale=None) "
        "-> Tensor",
    },
    "npu_quantize": {
        "7.1.0": "(Tensor self, Tensor scales, Tensor? zero_points, ScalarType dtype, int axis=1, bool div_mode=True)"
        " -> Tensor",
        "26.0.0": "(Tensor self, Tensor scales, Tensor? zero_points, int dtype, int axis=1, bool div_mode=True)"
        " -> Tensor",
    },
    "npu_rms_norm": {"7.1.0": "(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)"},
    "npu_scatter_nd_update_": {"7.1.0": "(Tensor(a!) self, Tensor indices, Tensor updates) -> Tensor(a!)"},
    "npu_slice": {"7.1.0": "(Tensor self, int[] offsets, int[] size) -> Tensor"},
    "npu_swiglu": {"7.1.0": "(Tensor self, int dim=-1) -> Tensor"},
    "npu_transpose_batchmatmul": {
        "7.1.0": "(Tensor input, Tensor weight, *, Tensor? bias=None, Tensor? scale=None, int[]? perm_x1=None, "
        "int[]? perm_x2=None, int[]? perm_y=None, int? batch_split_factor=1) -> Tensor"
    },
    "npu_format_cast": {
        "7.1.0": "(Tensor self, int acl_format, *, int? customize_dtype=None, int? input_dtype=None) -> Tensor"
    },
    "_npu_reshape_and_cache": {
        "7.1.0": "(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor slot_indices) -> ()"
    },
    "npu_ring_mla": {
        "7.1.0": "(Tensor q_nope, Tensor q_rope, Tensor k_nope, Tensor k_rope, Tensor value, Tensor mask, "
        "Tensor seqlen, int head_num, int kv_head_num, *, Tensor? pre_out=None, Tensor? prev_lse=None, "
        "float qk_scale=1, "
        "str? kernel_type=None, str? mask_type=None, str? input_layout=None, str? calc_type=None, "
        "Tensor(a!) output, "
        "Tensor(b!) softmax_lse) -> (Tensor(a!), Tensor(b!))"
    },
}
"""Functions of torch_npu; the last two are ATB's, the latter with its ``out`` arguments below ``atb``."""

_INDEXED = "Tensor? block_table=None, Tensor? actual_seq_lengths_query=None, Tensor? actual_seq_lengths_kv=None, "
_ROPES = "Tensor? query_rope=None, Tensor? key_rope=None, "
_DISPATCH = (
    "(Tensor x, {w} weight1, {w} weight2, Tensor expert_idx, {w} scale1, {w} scale2, {bias}Tensor probs, str group, "
    "int max_output_size, Tensor! out{counts}) -> {result}"
)
_COUNTS = ", Tensor! expert_token_nums"
_BOTH = "(Tensor out, Tensor expert_token_nums)"

C_ASCEND: dict[str, dict[str, str]] = {
    "dispatch_ffn_combine": {
        "0.12.0": _DISPATCH.format(w="Tensor", bias="", counts="", result="Tensor"),
        "0.13.0": _DISPATCH.format(w="Tensor[]", bias="", counts="", result="Tensor"),
        "0.15.0": _DISPATCH.format(w="Tensor[]", bias="", counts=_COUNTS, result=_BOTH),
        "0.19.1": _DISPATCH.format(
            w="Tensor[]",
            bias="Tensor[]? bias1, Tensor[]? bias2, ",
            counts=f"{_COUNTS}, Tensor? x_active_mask=None",
            result=_BOTH,
        ),
        "0.20.2": _DISPATCH.format(
            w="Tensor[]",
            bias="Tensor[] bias1, Tensor[] bias2, ",
            counts=f"{_COUNTS}, Tensor? x_active_mask=None, float swiglu_limit=1000000.0",
            result=_BOTH,
        ),
    },
    "npu_add_rms_norm_bias": {
        "0.13.0": "(Tensor x1, Tensor x2, Tensor gamma, Tensor? beta=None, float epsilon=1e-6)"
        " -> (Tensor y, Tensor rstd, Tensor x)"
    },
    "npu_sparse_flash_attention": {
        "0.12.0": "(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, float scale_value, "
        f"int sparse_block_size, *, {_INDEXED}{_ROPES}str layout_query='BSND', str layout_kv='BSND', "
        "int sparse_mode=3) -> Tensor",
        "0.21.0": "(Tensor query, Tensor key, Tensor value, Tensor sparse_indices, float scale_value, *, "
        f"{_INDEXED}{_ROPES}int sparse_block_size=1, str layout_query='BSND', str layout_kv='BSND', int sparse_mode=3, "
        "int pre_tokens=9223372036854775807, int next_tokens=9223372036854775807, int attention_mode=2, "
        "bool return_softmax_lse=False) -> (Tensor attention_out, Tensor softmax_max, Tensor softmax_sum)",
    },
}
"""vllm-ascend's operators below torch.ops._C_ascend."""

_QKV = (
    "(Tensor input, {angles}, Tensor q_weight, Tensor k_weight, int q_hidden_size, int kv_hidden_size, int head_dim, "
    "float eps, Tensor? q_bias=None, Tensor? k_bias=None) -> (Tensor, Tensor, Tensor)"
)
VLLM: dict[str, dict[str, str]] = {
    "qkv_rmsnorm_rope": {
        "0.13.0": _QKV.format(angles="Tensor sin, Tensor cos"),
        "0.15.0": _QKV.format(angles="Tensor cos_sin_cache, Tensor positions"),
    }
}
"""vllm-ascend's Triton operators below torch.ops.vllm."""

RANKS: dict[tuple[str, str], tuple[int, ...]] = {
    ("npu_dynamic_quant", "input"): (2, 3, 4),
    ("npu_fused_infer_attention_score", "query"): (3, 4),
    ("npu_fused_infer_attention_score", "key"): (3, 4),
    ("npu_fused_infer_attention_score", "atten_mask"): (2,),
    ("npu_fused_infer_attention_score", "block_table"): (2,),
    ("npu_grouped_matmul", "x"): (2,),
    ("npu_grouped_matmul", "weight"): (3,),
    ("npu_grouped_matmul", "scale"): (2,),
    ("npu_grouped_matmul", "per_token_scale"): (1,),
    ("npu_grouped_matmul", "group_list"): (1,),
    ("npu_grouped_matmul_swiglu_quant", "x"): (2,),
    ("npu_grouped_matmul_swiglu_quant", "weight"): (3,),
    ("npu_grouped_matmul_swiglu_quant", "weight_scale"): (2,),
    ("npu_grouped_matmul_swiglu_quant", "x_scale"): (1,),
    ("npu_interleave_rope", "x"): (4,),
    ("npu_interleave_rope", "cos"): (4,),
    ("npu_kv_rmsnorm_rope_cache", "kv"): (4,),
    ("npu_kv_rmsnorm_rope_cache", "gamma"): (1,),
    ("npu_kv_rmsnorm_rope_cache", "index"): (1,),
    ("npu_kv_rmsnorm_rope_cache", "k_cache"): (4,),
    ("npu_lightning_indexer", "query"): (3,),
    ("npu_lightning_indexer", "key"): (4,),
    ("npu_lightning_indexer", "weights"): (2,),
    ("npu_lightning_indexer", "actual_seq_lengths_query"): (1,),
    ("npu_lightning_indexer", "block_table"): (2,),
    ("npu_moe_token_permute", "tokens"): (2,),
    ("npu_moe_token_permute", "indices"): (1, 2),
    ("npu_moe_token_unpermute", "permuted_tokens"): (2,),
    ("npu_moe_token_unpermute", "sorted_indices"): (1,),
    ("npu_moe_token_unpermute", "probs"): (2,),
    ("npu_quant_matmul", "x1"): (2,),
    ("npu_quant_matmul", "x2"): (2,),
    ("npu_quant_matmul", "scale"): (1,),
    ("npu_quant_matmul", "bias"): (1,),
    ("npu_quant_matmul", "pertoken_scale"): (1,),
    ("npu_quantize", "scales"): (1,),
    ("npu_rms_norm", "gamma"): (1,),
    ("npu_scatter_nd_update_", "indices"): (2,),
    ("npu_transpose_batchmatmul", "input"): (3,),
    ("npu_transpose_batchmatmul", "weight"): (3,),
    ("_npu_reshape_and_cache", "key"): (3,),
    ("_npu_reshape_and_cache", "key_cache"): (4,),
    ("_npu_reshape_and_cache", "slot_indices"): (1,),
    ("npu_ring_mla", "q_nope"): (3,),
    ("npu_ring_mla", "mask"): (2,),
    ("npu_ring_mla", "seqlen"): (1, 2),
    ("dispatch_ffn_combine", "x"): (2,),
    ("dispatch_ffn_combine", "weight1"): (3,),
    ("dispatch_ffn_combine", "expert_idx"): (2,),
    ("dispatch_ffn_combine", "probs"): (2,),
    ("npu_add_rms_norm_bias", "gamma"): (1,),
    ("npu_sparse_flash_attention", "query"): (3,),
    ("npu_sparse_flash_attention", "key"): (4,),
    ("npu_sparse_flash_attention", "sparse_indices"): (3,),
    ("npu_sparse_flash_attention", "block_table"): (2,),
    ("qkv_rmsnorm_rope", "input"): (2,),
    ("qkv_rmsnorm_rope", "q_weight"): (1,),
}
"""Dimensions that an argument may have, as the operators' documentation says."""


def schema_in(history: dict[str, str], releases: tuple[str, ...], release: str) -> str | None:
    """The signature that a release has, ``None`` before the function came."""
    position = releases.index(release)
    known = [since for since in history if releases.index(since) <= position]
    return history[known[-1]] if known else None
