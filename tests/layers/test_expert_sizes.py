"""Errors about the sizes of routed experts name flags that would help."""

from __future__ import annotations

import pytest

from tensor_cast.deployment import Deployment
from tensor_cast.errors import ModelingError
from tensor_cast.models.decoder import build
from tensor_cast.workload import TextWorkload
from tests.small_models import dense, latent, sparse

ONE = TextWorkload(num_queries=1, query_length=1)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        # 512 columns of an expert over all 6 ranks, which the user has not asked for.
        ({"world_size": 6, "tp_size": 2}, "^A moe_tp of 6, which follows from the sizes given, .*: give --ep-size.$"),
        ({"world_size": 6, "tp_size": 2, "moe_tp_size": 3}, "^--moe-tp-size 3 does not divide the 512 columns"),
        ({"world_size": 6, "tp_size": 2, "ep_size": 3, "moe_tp_size": 2}, "^--ep-size 3 does not divide the 16 routed"),
    ],
)
def test_only_flags_that_decide_are_named(sizes: dict[str, int], says: str) -> None:
    with pytest.raises(ModelingError, match=says):
        build(sparse(), ONE, Deployment(**sizes))  # type: ignore[arg-type]


def test_ranks_of_shared_experts_are_taken_off() -> None:
    with pytest.raises(ModelingError, match=r"^--ep-size less --shared-expert-ranks = 7 does not divide the 16 routed"):
        build(latent(), ONE, Deployment(world_size=8, dp_size=8, tp_size=1, ep_size=8, shared_expert_ranks=1))


def test_a_dense_block_names_the_flag_that_splits_it() -> None:
    model = dense(intermediate_size=4100, num_attention_heads=16, num_key_value_heads=8)
    with pytest.raises(ModelingError, match=r"^--tp-size 8 does not divide the 4100 columns"):
        build(model, ONE, Deployment(world_size=8, tp_size=8))
    with pytest.raises(ModelingError, match=r"^--mlp-tp-size 8 does not divide the 4100 columns"):
        build(model, ONE, Deployment(world_size=8, tp_size=4, mlp_tp_size=8))
