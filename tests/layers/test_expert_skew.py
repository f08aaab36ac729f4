"""An unbalanced router: the busiest expert-parallel rank sets the time."""

from __future__ import annotations

import pytest

from tensor_cast.deployment import Deployment
from tensor_cast.errors import ModelingError
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
    assert Deployment().expert_skew == 1.0
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
