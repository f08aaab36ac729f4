"""An unbalanced router: the busiest expert-parallel rank sets the time."""

from __future__ import annotations

import pytest

from tensor_cast import simulate
from tensor_cast.deployment import Deployment
from tensor_cast.errors import ModelingError
from tensor_cast.layers.expert_load import expected_skew
from tensor_cast.models import load_spec
from tensor_cast.models.decoder import build
from tensor_cast.ops import Collective, GroupedMatMul
from tensor_cast.workload import TextWorkload

PREFILL = TextWorkload(num_queries=8, query_length=512)


def step(skew: float, **sizes: int) -> tuple[float, float]:
    """(rows of the busiest rank's experts, bytes of an all-to-all) in the first sparse layer."""
    deployment = Deployment(world_size=8, expert_skew=skew, **sizes)
    ops = [node.op for _, node in build(load_spec("Qwen/Qwen3-30B-A3B"), PREFILL, deployment).graph.nodes()]
    rows = next(float(op.m) for op in ops if isinstance(op, GroupedMatMul))
    sent = [float(op.message_bytes) for op in ops if isinstance(op, Collective) and op.kind == "all_to_all"]
    return rows, sent[0] if sent else 0.0


def test_balanced_by_default() -> None:
    # 8 x 512 tokens of 8 experts each over 8 ranks.
    assert Deployment().expert_skew is None
    assert step(1.0, tp_size=1, dp_size=8, ep_size=8)[0] == 8 * 512 * 8 / 8


def test_rows_and_messages_of_the_busiest_rank() -> None:
    balanced = step(1.0, tp_size=1, dp_size=8, ep_size=8)
    skewed = step(1.5, tp_size=1, dp_size=8, ep_size=8)
    assert skewed == (1.5 * balanced[0], 1.5 * balanced[1])
    # Experts that all tokens of a TP group reach without being sent.
    assert step(1.5, tp_size=8, ep_size=8)[0] == 1.5 * step(1.0, tp_size=8, ep_size=8)[0]


def test_without_expert_parallelism_there_is_nothing_to_skew() -> None:
    assert step(3.0, tp_size=8) == step(1.0, tp_size=8)


@pytest.mark.parametrize("skew", [0.5, float("inf"), float("nan"), "high"])
def test_a_ratio_below_one_is_refused(skew: object) -> None:
    with pytest.raises(ModelingError, match="expert_skew is a ratio to the mean, at least 1"):
        Deployment(expert_skew=skew)  # type: ignore[arg-type]


def test_more_than_all_tokens_is_refused() -> None:
    with pytest.raises(ModelingError, match="--expert-skew 9 is more than the 8 expert-parallel ranks"):
        step(9.0, tp_size=1, dp_size=8, ep_size=8)


def own_ranks(ranks: int, **sizes: int) -> Deployment:
    return Deployment(shared_expert_ranks=ranks, **sizes)


def test_shared_experts_on_ranks_of_their_own() -> None:
    # 288 ranks: 32 for the shared expert of DeepSeek-V3, 256 for a routed expert each.
    sizes = {"world_size": 288, "tp_size": 1, "dp_size": 288, "ep_size": 288}
    workload = TextWorkload(num_queries=288 * 16, query_length=1, context_length=1000, decode=True)
    graph = build(load_spec("deepseek-ai/DeepSeek-V3"), workload, own_ranks(32, **sizes)).graph
    ops = [(block, node) for block, node in graph.nodes() if node.op.part.startswith("moe.")]
    routed = next(node.op for _, node in ops if isinstance(node.op, GroupedMatMul))
    # 16 tokens a rank of 8 experts each, 288 ranks' over 256; a token visits one shared expert's rank, 288 over 32.
    assert routed.groups == 1
    assert routed.m == 16 * 8 * 288 / 256
    shared = [node for _, node in ops if node.op.part.startswith("moe.shared")]
    assert {float(node.op.outputs[0].shape[0]) for node in shared} == {16 * 288 / 32}
    # Both kinds of ranks work at the same time.
    sections = {node.section for _, node in ops if isinstance(node.op, GroupedMatMul)}
    assert {node.stream for node in shared} == {1}
    assert {node.section for node in shared} == sections
    sent = [node.op for _, node in ops if isinstance(node.op, Collective) and node.op.kind == "all_to_all"]
    assert {float(op.message_bytes) for op in sent} == {16 * 9 * 7168 * 2}


@pytest.mark.parametrize(
    ("model", "ranks", "sizes"),
    [
        ("Qwen/Qwen3-30B-A3B", 1, {"dp_size": 8, "ep_size": 8}),
        ("deepseek-ai/DeepSeek-V3", 8, {"dp_size": 8, "ep_size": 8}),
        ("deepseek-ai/DeepSeek-V3", 2, {"tp_size": 8, "ep_size": 8}),
    ],
)
def test_ranks_that_cannot_be_set_aside_are_refused(model: str, ranks: int, sizes: dict[str, int]) -> None:
    with pytest.raises(ModelingError, match=f"--shared-expert-ranks {ranks}"):
        build(load_spec(model), PREFILL, own_ranks(ranks, world_size=8, **sizes))


def test_the_busiest_rank_that_uneven_experts_leave() -> None:
    # An expert's tokens vary by half their mean; 8 experts a rank vary by 0.5 / sqrt(8). Blom's largest of 32 is the
    # normal quantile of 31.625 / 32.25, which tables have as 2.066.
    assert expected_skew(0.5, 256, 32) == pytest.approx(1 + 0.5 / 8**0.5 * 2.066, abs=5e-4)
    assert expected_skew(0.0, 256, 32) == 1.0
    # More experts on each rank even out; more ranks have a busier busiest.
    assert expected_skew(0.5, 512, 32) < expected_skew(0.5, 256, 32) < expected_skew(0.5, 256, 64)


def test_an_engine_leaves_experts_uneven_and_says_so() -> None:
    def prefill(**options: object) -> tuple[float, tuple[str, ...]]:
        deployment = Deployment(world_size=8, tp_size=1, dp_size=8, ep_size=8, **options)  # type: ignore[arg-type]
        device = "ATLAS_800_A3_752T_128G_DIE"
        estimate = simulate("Qwen/Qwen3-30B-A3B", device=device, workload=PREFILL, deployment=deployment)
        return float(estimate.device_time_s), estimate.warnings

    even, silent = prefill()
    uneven, said = prefill(engine="vllm-ascend")
    assert not any("--expert-skew" in message for message in silent)
    # 128 experts over 8 ranks: 1 + 0.49 / sqrt(16) x 1.43.
    assert any("The busiest of 8 expert-parallel ranks is taken to have 1.18 times" in message for message in said)
    assert uneven > even
    assert prefill(engine="vllm-ascend", expert_skew=1.0)[0] == pytest.approx(even)
