from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.deployment import Deployment
from tensor_cast.errors import ModelingError


def test_sizes_left_out_follow_from_the_others() -> None:
    plan = Deployment(world_size=16, tp_size=4).parallelism(has_experts=True)
    assert (plan.tp, plan.dp, plan.pp) == (4, 4, 1)
    # Without expert parallelism the experts' columns are split over the whole stage.
    assert (plan.ep, plan.moe_tp, plan.moe_dp) == (1, 16, 1)
    assert (plan.mlp_tp, plan.o_proj_tp, plan.lmhead_tp, plan.dcp) == (4, 4, 4, 1)


def test_expert_parallelism_takes_the_stage() -> None:
    plan = Deployment(world_size=32, tp_size=2, pp_size=2, ep_size=16).parallelism(has_experts=True)
    assert (plan.dp, plan.stage, plan.ep, plan.moe_tp, plan.moe_dp) == (8, 16, 16, 1, 1)
    assert plan.moe_group == 16


def test_a_data_parallel_size_alone_leaves_tensor_parallelism_the_rest() -> None:
    plan = Deployment(world_size=8, dp_size=2).parallelism(has_experts=False)
    assert (plan.tp, plan.dp) == (4, 2)


@pytest.mark.parametrize(
    ("changes", "experts", "says"),
    [
        ({"world_size": 4}, False, "needs a strategy"),
        ({"world_size": 8, "tp_size": 3}, False, "^--tp-size 3 does not divide --world-size 8,"),
        ({"world_size": 8, "tp_size": 2, "dp_size": 2}, False, "^--tp-size 2 x --dp-size 2 = 4 is not --world-size 8,"),
        ({"world_size": 2, "tp_size": 4}, False, "^--tp-size 4 does not divide --world-size 2,"),
        ({"world_size": 8, "tp_size": 8, "ep_size": 8}, False, "no experts"),
        ({"world_size": 8, "tp_size": 8, "ep_size": 3}, True, "^--ep-size 3 does not divide the 8 ranks"),
        ({"world_size": 8, "tp_size": 8, "moe_tp_size": 3}, True, "^--moe-tp-size 3 does not divide the 8 ranks"),
        (
            {"world_size": 8, "tp_size": 8, "ep_size": 2, "moe_dp_size": 3},
            True,
            "^--ep-size 2 x --moe-dp-size 3 = 6 does not divide",
        ),
        ({"world_size": 8, "tp_size": 8, "ep_size": 2, "moe_tp_size": 2, "moe_dp_size": 1}, True, "= 4"),
        ({"world_size": 8, "tp_size": 4, "mlp_tp_size": 3}, False, "do not nest"),
        ({"world_size": 8, "tp_size": 4, "o_proj_tp_size": 2}, False, "less than --tp-size 4"),
        ({"world_size": 8, "tp_size": 4, "lmhead_tp_size": 16}, False, "does not divide the 8 ranks"),
        ({"world_size": 8, "tp_size": 8, "dcp_size": 3}, False, "--dcp-size 3"),
        ({"enable_redundant_experts": True}, False, "no experts"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_with_the_numbers(
    changes: dict[str, object], experts: bool, says: str
) -> None:
    with pytest.raises(ModelingError, match=says):
        Deployment(**changes).parallelism(has_experts=experts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"world_size": 0}, "world_size"),
        ({"tp_size": -1}, "tp_size"),
        ({"tp_size": True}, "tp_size"),
        ({"tp_size": 2.0}, "tp_size"),
        ({"quantize_linear": "W8A9"}, "Unknown quantisation"),
        ({"quantize_non_expert_linear": "INT8"}, "Unknown quantisation"),
        ({"quantize_attention": "INT4"}, "for attention"),
        ({"dtype": "int8"}, "not one of hidden states"),
        ({"dtype": "bfloat15"}, "Unknown dtype"),
        ({"enable_multistream": True}, "--compile"),
    ],
)
def test_wrong_values_are_refused_at_once(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ModelingError, match=says):
        Deployment(**changes)  # type: ignore[arg-type]


@given(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.sampled_from([1, 2, 4, 8])
)
def test_sizes_always_multiply_to_the_world(tp: int, dp: int, pp: int, ep: int) -> None:
    world = tp * dp * pp
    deployment = Deployment(world_size=world, tp_size=tp, dp_size=dp, pp_size=pp, ep_size=ep)
    if (tp * dp) % ep:
        with pytest.raises(ModelingError):
            deployment.parallelism(has_experts=True)
        return
    plan = deployment.parallelism(has_experts=True)
    assert plan.tp * plan.dp * plan.pp == world
    assert plan.ep * plan.moe_tp * plan.moe_dp * plan.pp == world


@given(*[st.sampled_from([None, 1, 2, 3, 4, 8])] * 3, st.sampled_from([1, 4, 8, 12]))
def test_expert_sizes_keep_what_is_given_and_fill_the_stage(
    ep: int | None, moe_tp: int | None, moe_dp: int | None, stage: int
) -> None:
    sizes = {"ep_size": ep, "moe_tp_size": moe_tp, "moe_dp_size": moe_dp}
    deployment = Deployment(world_size=stage, tp_size=stage, **sizes)
    given = [size for size in sizes.values() if size is not None]
    fits = prod(given) == stage if len(given) == 3 else stage % prod(given) == 0
    if not fits:
        with pytest.raises(ModelingError) as refused:
            deployment.parallelism(has_experts=True)
        named = {name for name in sizes if f"--{name.replace('_', '-')}" in str(refused.value)}
        assert named == {name for name, size in sizes.items() if size is not None}
        return
    plan = deployment.parallelism(has_experts=True)
    found = (plan.ep, plan.moe_tp, plan.moe_dp)
    assert all(size in (None, made) for size, made in zip(sizes.values(), found, strict=True))
    assert prod(found) == stage
