"""Whole steps, checked against figures worked out by hand from the models' structure."""

from __future__ import annotations

import numpy as np
import pytest

from tensor_cast import Deployment, DeviceProfile, Estimate, ModelingError, ModelSpec, TextWorkload, simulate
from tests.small_models import dense, latent, sparse

DEVICE = DeviceProfile.all_device_profiles["TEST_DEVICE"]
PREFILL = TextWorkload(num_queries=2, query_length=512)
DECODE = TextWorkload(num_queries=16, query_length=1, context_length=1000, decode=True)


def price(
    spec: str | ModelSpec, workload: TextWorkload, device: str | DeviceProfile = DEVICE, **deployment: object
) -> Estimate:
    return simulate(spec, device=device, workload=workload, deployment=Deployment(**deployment))  # type: ignore[arg-type]


def matrix_flops(estimate: Estimate) -> float:
    return float(sum(kernel.op.matrix_flops * kernel.count for kernel in estimate.kernels))


def test_prefill_flops_of_a_dense_model() -> None:
    # A layer: qkv 1024 x (1024 + 2 x 256), output 1024 x 1024, gate and up 1024 x 8192, down 4096 x 1024.
    layer = 1024 * 1536 + 1024 * 1024 + 1024 * 8192 + 4096 * 1024
    head = 1024 * 32000  # the last token of each query alone
    tokens, queries = 1024, 2
    pairs = queries * 512 * 513 / 2
    expected = 2 * tokens * 4 * layer + 2 * queries * head + 4 * 4 * pairs * 8 * 128
    assert matrix_flops(price(dense(), PREFILL)) == expected


def test_decode_flops_of_a_latent_model_are_absorbed() -> None:
    # Attention sees (128 latent + 32 rotary) for the score and 128 for the value, over 1001 tokens, 8 heads, 4 layers.
    attention = [k for k in price(latent(), DECODE).kernels if k.op.name == "flash_attention"]
    flops = sum(float(k.op.matrix_flops) * k.count for k in attention)
    assert flops == 2 * 16 * 1001 * 8 * (128 + 32 + 128) * 4


def test_equal_layers_are_built_once() -> None:
    few, many = price(dense(num_hidden_layers=4), DECODE), price(dense(num_hidden_layers=400), DECODE)
    assert len(few.kernels) == len(many.kernels)
    per_layer = (many.total_time_s - few.total_time_s) / 396
    assert many.total_time_s == pytest.approx(few.total_time_s + 396 * per_layer)


def test_rows_add_up_to_the_total_and_to_the_categories() -> None:
    for spec, workload in ((dense(), PREFILL), (sparse(), DECODE), (latent(), PREFILL)):
        estimate = price(spec, workload, compile=True)
        assert sum(op.total_s for op in estimate.ops) == pytest.approx(estimate.total_time_s)
        assert sum(estimate.categories.values()) == pytest.approx(estimate.total_time_s)
        assert sum(op.share for op in estimate.ops) == pytest.approx(1.0)


def test_analytic_rows_hold_the_gaps_of_their_launches() -> None:
    estimate = price(dense(), DECODE, "ATLAS_800_A3_752T_128G_DIE", compile=True)
    assert estimate.device.launch_gap_s > 0
    for op in estimate.ops:
        assert op.parts_s["wait"] == pytest.approx(estimate.device.launch_gap_s * op.count)
    assert sum(op.parts_s["wait"] for op in estimate.ops) == pytest.approx(estimate.idle_s)
    assert sum(op.total_s for op in estimate.ops) == pytest.approx(estimate.total_time_s)
    assert sum(estimate.categories.values()) == pytest.approx(estimate.total_time_s)


def test_a_pipelines_wait_is_no_launch() -> None:
    estimate = price(dense(), PREFILL, "ATLAS_800_A3_752T_128G_DIE", world_size=2, pp_size=2)
    assert sum(op.total_s for op in estimate.ops) == pytest.approx(estimate.total_time_s, rel=1e-12)


def test_prefill_reports_ttft_and_decode_tpot() -> None:
    prefill, decode = price(dense(), PREFILL), price(dense(), DECODE)
    assert prefill.ttft_s == prefill.total_time_s
    assert prefill.tpot_s is None
    assert decode.tpot_s == decode.total_time_s
    assert decode.ttft_s is None
    assert prefill.tokens_per_s_per_device == pytest.approx(1024 / prefill.total_time_s)
    assert decode.tokens_per_s_per_device == pytest.approx(16 / decode.total_time_s)


def test_compiling_fuses_and_saves_time() -> None:
    a3 = "ATLAS_800_A3_752T_128G_DIE"
    eager, compiled = price(dense(), DECODE, a3), price(dense(), DECODE, a3, compile=True)
    assert {op.name for op in compiled.ops} >= {"add_rms_norm", "split_qkv_rope", "swiglu"}
    assert {op.name for op in eager.ops} >= {"add", "rms_norm", "silu", "mul", "rope"}
    assert compiled.total_time_s < eager.total_time_s


def test_a_dynamic_scheme_pays_for_its_quantise_kernels() -> None:
    names = {op.name for op in price(dense(), DECODE, quantize_linear="W8A8_DYNAMIC").ops}
    assert {"dynamic_quant", "quant_matmul"} <= names
    names = {op.name for op in price(dense(), DECODE, quantize_linear="W8A8_DYNAMIC", compile=True).ops}
    assert {"add_rms_norm_dynamic_quant", "swiglu_quant", "dynamic_quant", "quant_matmul"} <= names
    assert "dynamic_quant" not in {op.name for op in price(dense(), DECODE, quantize_linear="W8A16_STATIC").ops}


def test_quantised_weights_and_their_scales() -> None:
    linear = 4 * (1024 * 1536 + 1024 * 1024 + 1024 * 8192 + 4096 * 1024)
    columns = 4 * (1536 + 1024 + 8192 + 1024)
    rest = 2 * (2 * 32000 * 1024 + 9 * 1024)  # embedding, head, norms
    for scheme, bits in (("DISABLED", 16), ("W8A8_DYNAMIC", 8), ("W4A8_DYNAMIC", 4)):
        scales = 0 if scheme == "DISABLED" else 4 * columns
        estimate = price(dense(), DECODE, quantize_linear=scheme)
        assert estimate.memory.weights_bytes == linear * bits / 8 + scales + rest


def test_a_quantised_cache_is_half_the_size() -> None:
    plain, quantised = price(dense(), DECODE), price(dense(), DECODE, quantize_attention="INT8")
    # K and V of 2 heads of 128 in 4 layers, bf16, for 16 sequences of 1001 tokens.
    assert plain.memory.kv_cache_bytes == 16 * 1001 * 2 * 4 * 2 * 128 * 2
    assert quantised.memory.kv_cache_bytes == plain.memory.kv_cache_bytes / 2


def test_whole_blocks_of_the_cache() -> None:
    estimate = price(dense(), DECODE, block_size=128)
    assert estimate.memory.kv_cache_bytes == 16 * 1024 * 2 * 4 * 2 * 128 * 2


def test_kv_heads_fewer_than_ranks_are_replicated() -> None:
    estimate = price(dense(), DECODE, world_size=8, tp_size=8)
    assert estimate.memory.kv_cache_bytes == 16 * 1001 * 2 * 4 * 1 * 128 * 2


def test_context_parallel_ranks_share_out_the_tokens() -> None:
    shared = price(dense(), DECODE, world_size=8, tp_size=8, dcp_size=4)
    whole = price(dense(), DECODE, world_size=8, tp_size=8)
    assert shared.memory.kv_cache_bytes == whole.memory.kv_cache_bytes / 4
    with pytest.raises(ModelingError, match="each is on 4 ranks"):
        price(dense(), DECODE, world_size=8, tp_size=8, dcp_size=8)


def test_a_prefill_does_not_share_out_a_cache_that_no_two_ranks_hold() -> None:
    # Two KV heads over eight ranks: each head is on four, so four may share its tokens, in a prefill as in a decode.
    shared = price(dense(), PREFILL, world_size=8, tp_size=8, dcp_size=4)
    whole = price(dense(), PREFILL, world_size=8, tp_size=8)
    assert shared.memory.kv_cache_bytes == whole.memory.kv_cache_bytes / 4
    for step in (PREFILL, DECODE):
        with pytest.raises(ModelingError, match="each is on 4 ranks"):
            price(dense(), step, world_size=8, tp_size=8, dcp_size=8)
        with pytest.raises(ModelingError, match="sparse attention picks its tokens"):
            price("deepseek-ai/DeepSeek-V3.2", step, world_size=8, tp_size=8, dcp_size=2)
        with pytest.raises(ModelingError, match="sparse attention picks its tokens"):
            price("MiniMaxAI/MiniMax-M3", step, world_size=8, tp_size=8, dcp_size=2)


def test_tensor_parallelism_reduces_twice_a_layer_and_once_for_the_embedding() -> None:
    estimate = price(dense(), DECODE, world_size=4, tp_size=4, dp_size=1)
    reduces = [c for c in estimate.collectives if c.name == "all_reduce"]
    assert sum(c.count for c in reduces) == 2 * 4 + 1
    assert {float(c.bytes) for c in reduces} == {16 * 1024 * 2.0}
    assert {c.group_size for c in reduces} == {4}


def test_sequence_parallelism_scatters_and_gathers_instead() -> None:
    estimate = price(dense(), DECODE, world_size=4, tp_size=4, enable_sequence_parallel=True)
    names = [c.name for c in estimate.collectives]
    assert "all_reduce" not in names
    assert {"reduce_scatter", "all_gather"} <= set(names)
    norms = [k for k in estimate.kernels if k.op.part == "input_norm" and k.op.name == "rms_norm"]
    assert norms[0].op.outputs[0].shape[0] == 4


def test_fused_matmul_all_reduce_hides_communication() -> None:
    apart = price(dense(), PREFILL, world_size=4, tp_size=4, compile=True)
    fused = price(dense(), PREFILL, world_size=4, tp_size=4, compile=True, enable_matmul_allreduce=True)
    assert fused.total_time_s < apart.total_time_s
    assert "matmul_all_reduce" in {op.name for op in fused.ops}
    assert any(c.fused for c in fused.collectives)


def test_data_parallel_ranks_share_the_queries() -> None:
    one = price(dense(), DECODE)
    two = price(dense(), DECODE, world_size=2, dp_size=2)
    assert two.memory.kv_cache_bytes == one.memory.kv_cache_bytes / 2
    assert two.memory.weights_bytes == one.memory.weights_bytes


def test_expert_parallelism_travels_by_all_to_all() -> None:
    estimate = price(sparse(), DECODE, world_size=8, tp_size=2, dp_size=4, ep_size=8)
    exchanges = [c for c in estimate.collectives if c.name == "all_to_all"]
    assert {c.group_size for c in exchanges} == {8}
    # 16 queries over 4 data-parallel ranks, halved over the TP pair, 4 experts each: 8 rows of 1024 bf16.
    assert {float(c.bytes) for c in exchanges} == {2 * 4 * 1024 * 2.0}
    experts = [k for k in estimate.kernels if k.op.name == "grouped_matmul"]
    assert experts[0].op.inputs[1].shape[0] == 2  # 16 experts over 8 ranks


def test_scales_travel_beside_the_values_that_they_belong_to() -> None:
    estimate = price(sparse(), DECODE, world_size=8, dp_size=8, ep_size=8, quantize_linear="W8A8_DYNAMIC", compile=True)
    exchanges = [c for c in estimate.collectives if c.part == "moe.dispatch"]
    # 16 queries over 8 ranks, 4 experts each: 8 rows of 1024 int8 and a float32 scale, in one message.
    assert [float(c.bytes) for c in exchanges] == [8 * (1024 + 4.0)]


def test_a_head_over_several_data_parallel_ranks_gives_each_its_own_logits_back() -> None:
    estimate = price(dense(), DECODE, world_size=8, tp_size=2, dp_size=4, lmhead_tp_size=8)
    found = [(c.name, float(c.bytes), c.group_size, c.stride) for c in estimate.collectives if c.part == "lm_head"]
    # 4 tokens a data-parallel rank, hidden 1024, vocabulary 32,000 = 8 x 4,000. Hidden states of 4 ranks meet, each
    # rank's 16 x 4,000 logits go back, and the TP pair completes its 4 x 32,000.
    assert found == [
        ("all_gather", 16 * 1024 * 2.0, 4, 2),
        ("all_to_all", 16 * 4000 * 2.0, 4, 2),
        ("all_gather", 4 * 32000 * 2.0, 2, 1),
    ]
    sampled = next(k.op for k in estimate.kernels if k.op.name == "arg_max")
    assert sampled.inputs[0].shape == (4.0, 32000)


def test_a_draft_follows_only_the_last_token_of_a_sequence() -> None:
    workload = TextWorkload(num_queries=16, query_length=3, context_length=9, decode=True, num_mtp_tokens=2)
    kernels = price(latent(), workload).kernels
    heads = {k.block: k.op.inputs[0].shape[0] for k in kernels if k.op.name == "matmul" and "lm_head" in k.op.part}
    assert heads == {"head": 48.0, "mtp.first": 16.0, "mtp.next": 16.0}


def test_a_step_that_verifies_other_tokens_than_it_drafts_says_so() -> None:
    def warnings(query_length: int) -> str:
        workload = TextWorkload(
            num_queries=1, query_length=query_length, context_length=9, decode=True, num_mtp_tokens=2
        )
        return " ".join(price(latent(), workload).warnings)

    assert "drafts 2 tokens verifies 3 a query" in warnings(1)
    assert "verifies" not in warnings(3)


def test_experts_without_expert_parallelism_are_split_by_columns() -> None:
    estimate = price(sparse(), DECODE, world_size=4, tp_size=4)
    experts = [k for k in estimate.kernels if k.op.part == "moe.gate_up"]
    assert experts[0].op.inputs[1].shape == (16, 1024, 2 * 512 // 4)


def test_every_way_of_sharing_experts_keeps_the_expert_flops() -> None:
    """Routed work over all ranks is the same however experts are shared out: 16 tokens, 4 experts each."""
    expected = 2 * 16 * 4 * 3 * 1024 * 512 * 4  # gate, up and down in 4 layers
    for sizes in (
        {"world_size": 1},
        {"world_size": 4, "tp_size": 4},
        {"world_size": 4, "tp_size": 4, "ep_size": 4},
        {"world_size": 4, "tp_size": 4, "ep_size": 2, "moe_tp_size": 2},
        {"world_size": 4, "tp_size": 4, "ep_size": 1, "moe_tp_size": 1, "moe_dp_size": 4},
        {"world_size": 8, "tp_size": 2, "dp_size": 4},
        {"world_size": 8, "tp_size": 2, "dp_size": 4, "ep_size": 8},
        {"world_size": 8, "tp_size": 2, "dp_size": 4, "ep_size": 4, "moe_tp_size": 2},
    ):
        estimate = price(sparse(), DECODE, **sizes)
        flops = sum(float(k.op.matrix_flops) * k.count for k in estimate.kernels if k.op.name == "grouped_matmul")
        assert flops * sizes["world_size"] == pytest.approx(expected), sizes


def test_dispatch_ffn_combine_is_one_kernel() -> None:
    sizes = {"world_size": 8, "tp_size": 2, "dp_size": 4, "ep_size": 8, "compile": True}
    apart = price(sparse(), DECODE, **sizes)
    fused = price(sparse(), DECODE, **sizes, enable_dispatch_ffn_combine=True)
    assert "grouped_matmul" not in {op.name for op in fused.ops}
    assert fused.total_time_s < apart.total_time_s
    assert fused.memory.weights_bytes == apart.memory.weights_bytes


def test_shared_experts_run_beside_the_routed_ones_on_a_second_stream() -> None:
    sizes = {"world_size": 8, "tp_size": 2, "dp_size": 4, "ep_size": 8, "compile": True}
    apart, beside = price(latent(), DECODE, **sizes), price(latent(), DECODE, **sizes, enable_multistream=True)
    assert beside.overlapped_s > 0
    assert beside.total_time_s == pytest.approx(apart.total_time_s - beside.overlapped_s)


def test_redundant_experts_cost_memory() -> None:
    sizes = {"world_size": 8, "tp_size": 2, "dp_size": 4, "ep_size": 8}
    plain, spare = price(sparse(), DECODE, **sizes), price(sparse(), DECODE, **sizes, enable_redundant_experts=True)
    assert spare.memory.weights_bytes - plain.memory.weights_bytes == 4 * 3 * 1024 * 512 * 2


def test_pipeline_stages_split_weights_and_cache() -> None:
    one, four = price(dense(), DECODE), price(dense(), DECODE, world_size=4, pp_size=4)
    assert four.memory.kv_cache_bytes == one.memory.kv_cache_bytes / 4
    embedding = 2 * 32000 * 1024
    layer = (one.memory.weights_bytes - 2 * embedding - 2 * 1024) / 4
    assert four.memory.weights_bytes == layer + embedding + 2 * 1024  # the last stage: a layer, final norm, head


def seconds_of(estimate: Estimate, *blocks: str) -> float:
    return float(sum(k.total_s for k in estimate.kernels if k.block in blocks and k.op.name != "pipeline_wait"))


def test_a_prefill_waits_for_its_slowest_stage() -> None:
    # Two prompts on two stages: the second is through one slowest stage after the first is through both.
    estimate = price(dense(num_hidden_layers=5), PREFILL, world_size=2, pp_size=2)
    layer, head = seconds_of(estimate, "layers.0-4") / 5, seconds_of(estimate, "head")
    # Three layers and the send to the next stage, or two layers and the head.
    first = seconds_of(estimate, "embedding") + 3 * layer + seconds_of(estimate, "pipeline")
    last = 2 * layer + head
    assert first > last
    assert estimate.total_time_s == pytest.approx(first + last + first)


def test_a_decode_waits_only_for_a_stage_slower_than_the_others() -> None:
    # Three stages of two layers each: a cycle of three micro-batches passes the last stage, which has the head, thrice.
    estimate = price(dense(num_hidden_layers=6), DECODE, world_size=3, pp_size=3)
    layer, head = seconds_of(estimate, "layers.0-5") / 6, seconds_of(estimate, "head")
    assert estimate.total_time_s == pytest.approx(3 * (2 * layer + head))
    # A single query is a single micro-batch, which nothing is in the way of.
    alone = TextWorkload(num_queries=1, query_length=1, context_length=1000, decode=True)
    path = price(dense(num_hidden_layers=6), alone, world_size=3, pp_size=3)
    assert path.total_time_s == pytest.approx(path.device_time_s)
    assert seconds_of(path, "embedding", "layers.0-5", "pipeline", "head") == pytest.approx(path.total_time_s)


def test_a_pipeline_hands_each_rank_its_share_of_the_hidden_state() -> None:
    estimate = price(dense(), PREFILL, world_size=4, tp_size=2, pp_size=2)
    found = [(c.name, float(c.bytes), c.group_size, c.stride) for c in estimate.collectives if c.part == "pipeline"]
    # A prompt of 512 tokens, 1024 wide: half of the block's output and of the residual, put together by the TP pair.
    assert found == [("p2p", 512 * 512 * 2.0, 2, 2), ("all_gather", 512 * 1024 * 2.0, 2, 1)] * 2


def test_wide_blocks_meet_the_tokens_of_other_data_parallel_ranks() -> None:
    sizes = {"world_size": 8, "tp_size": 2, "dp_size": 4}
    plain = price(dense(), DECODE, **sizes)
    wide = price(dense(), DECODE, **sizes, mlp_tp_size=4, o_proj_tp_size=4, lmhead_tp_size=8)
    assert wide.memory.weights_bytes < plain.memory.weights_bytes
    assert matrix_flops(wide) == pytest.approx(matrix_flops(plain))


def test_mtp_drafts_with_its_own_layer() -> None:
    workload = TextWorkload(num_queries=16, query_length=3, context_length=1000, decode=True, num_mtp_tokens=2)
    plain = TextWorkload(num_queries=16, query_length=3, context_length=1000, decode=True)
    drafting, without = price(latent(), workload), price(latent(), plain)
    assert {k.block for k in drafting.kernels} - {k.block for k in without.kernels} == {"mtp.first", "mtp.next"}
    assert drafting.total_time_s > without.total_time_s
    # One module is stored once, whatever the number of drafts: two norms, the projection, a sparse layer, a norm.
    module = drafting.memory.weights_bytes - without.memory.weights_bytes
    sparse_layer = next(k for k in without.kernels if k.block == "layers.1-3")
    assert sparse_layer
    assert module == 2 * (3 * 1024 + 2 * 1024 * 1024 + _sparse_latent_layer())
    with pytest.raises(ModelingError, match="no multi-token-prediction layer"):
        price(dense(), workload)


def _sparse_latent_layer() -> int:
    attention = 1024 * 256 + 256 + 256 * 8 * 96 + 1024 * 160 + 128 + 128 * 8 * 128 + 8 * 64 * 1024
    experts = 1024 * 16 + (16 + 1) * 3 * 1024 * 512
    return attention + experts + 2 * 1024


def test_a_sweep_equals_its_single_runs() -> None:
    queries, contexts = np.array([1.0, 7.0, 64.0])[:, None], np.array([1.0, 100.0, 3000.0, 50_000.0])
    for spec in (dense(sliding_window=512), sparse(), latent()):
        sizes = {"world_size": 8, "tp_size": 2, "dp_size": 4, "compile": True, "quantize_linear": "W8A8_DYNAMIC"}
        sweep = price(
            spec,
            TextWorkload(num_queries=queries, query_length=1, context_length=contexts, decode=True),
            "ATLAS_800_A3_752T_128G_DIE",
            **sizes,
        )
        for i, n in enumerate(queries[:, 0]):
            for j, context in enumerate(contexts):
                point = TextWorkload(num_queries=n, query_length=1, context_length=context, decode=True)
                single = price(spec, point, "ATLAS_800_A3_752T_128G_DIE", **sizes)
                assert sweep.total_time_s[i, j] == pytest.approx(single.total_time_s, rel=1e-12)
                used = np.broadcast_to(sweep.memory.used_bytes, (3, 4))[i, j]
                assert used == pytest.approx(single.memory.used_bytes, rel=1e-12)


def test_a_world_beyond_the_interconnect_is_refused() -> None:
    with pytest.raises(ModelingError, match=r"64 is more than the 32 devices .* TEST_DEVICE joins \(4 x 8\)"):
        price(dense(), DECODE, world_size=64, dp_size=64)


def test_heads_that_do_not_divide_are_refused_with_the_numbers() -> None:
    with pytest.raises(ModelingError, match="--tp-size 16 does not divide the 8 attention heads"):
        price(dense(), DECODE, world_size=16, tp_size=16)


def test_a_context_beyond_the_models_limit_is_warned_about() -> None:
    workload = TextWorkload(num_queries=1, query_length=1, context_length=5000, decode=True)
    assert any("max_position_embeddings" in warning for warning in price(dense(), workload).warnings)
    assert not price(dense(), DECODE).warnings


def test_speculation_keeps_a_recurrent_state_behind_each_token() -> None:
    def state(drafts: int) -> float:
        workload = TextWorkload(
            num_queries=8, query_length=1 + drafts, context_length=512, decode=True, num_mtp_tokens=drafts
        )
        estimate = simulate(
            "Qwen/Qwen3.5-27B",
            device="ATLAS_800_A3_752T_128G_DIE",
            workload=workload,
            deployment=Deployment(world_size=2, tp_size=2),
        )
        return float(estimate.memory.state_bytes)

    # The module that drafts has softmax attention, so that only the 48 recurrent layers keep states.
    assert state(3) == 4 * state(0) > 0
