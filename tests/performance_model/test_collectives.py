"""Collectives on the device of round figures: 8 in a full mesh (10 GB/s a link), 4 such servers on a 10 GB/s switch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.devices import get_device
from tensor_cast.devices.profile import CollectiveCost, Interconnect
from tensor_cast.errors import ModelingError
from tensor_cast.ops import Collective, MatMul, Overlapped, Tensor
from tensor_cast.performance_model.analytic import analytic_time
from tensor_cast.performance_model.collectives import collective_time, levels_of_group, outermost_link
from tensor_cast.quantity import Quantity

DEVICE = get_device("TEST_DEVICE")
KINDS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "p2p"]


def collective(kind: str, size: Quantity, group: int, stride: int = 1) -> Collective:
    return Collective(
        name=kind,
        part="p",
        kind=kind,  # type: ignore[arg-type]
        inputs=(),
        outputs=(),
        message_bytes=size,
        group_size=group,
        stride=stride,
    )


def test_two_devices_of_a_full_mesh_share_one_link() -> None:
    # Half of 1 GB each way over one link of 10 GB/s.
    assert collective_time(collective("all_gather", 1e9, 2), DEVICE).total_s == pytest.approx(0.5e9 / 10e9)


def test_a_whole_full_mesh_uses_all_links() -> None:
    # 7/8 of 1 GB over 7 links of 10 GB/s.
    assert collective_time(collective("all_gather", 1e9, 8), DEVICE).total_s == pytest.approx(0.875e9 / 70e9)


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    gather = collective_time(collective("all_gather", 1e9, 8), DEVICE).total_s
    assert collective_time(collective("all_reduce", 1e9, 8), DEVICE).total_s == pytest.approx(2 * gather)


def test_every_hand_over_costs_time() -> None:
    # 8 peers hand over 7 times in a gather, 14 times in an all-reduce; in an all-to-all all send at once.
    device = replace(DEVICE, collective=CollectiveCost(1.0, 1e-6, peer_s=1e-7))
    for kind, expected in (("all_gather", 1.7e-6), ("all_reduce", 2.4e-6), ("all_to_all", 1.1e-6)):
        assert collective_time(collective(kind, 8.0, 8), device).fixed_s == pytest.approx(expected)


def test_a_small_all_reduce_is_taken_at_one_go() -> None:
    # One go sends 7 times the tensor over 70 GB/s in 1 us; the two passes send 2 x 7/8 of it in 5 us.
    device = replace(DEVICE, collective=CollectiveCost(1.0, 5e-6, one_shot_s=1e-6))
    small, large = (collective_time(collective("all_reduce", size, 8), device) for size in (1e3, 1e9))
    assert small.total_s == pytest.approx(1e-6 + 7e3 / 70e9)
    assert large.total_s == pytest.approx(5e-6 + 1.75e9 / 70e9)


def test_a_collective_too_large_for_one_kernel_is_scheduled_first() -> None:
    # One kernel takes 1 kB of each of 8 ranks, 2 kB where it adds: 8 and 16 kB in all.
    cost = CollectiveCost(1.0, 0.0, direct_bytes=1e3, direct_reduce_bytes=2e3, schedule_s=5e-6)
    device = replace(DEVICE, collective=cost)
    for kind, limit in (("all_gather", 8e3), ("all_to_all", 8e3), ("reduce_scatter", 16e3), ("all_reduce", 16e3)):
        sizes = np.array([limit, limit + 8.0])
        np.testing.assert_allclose(collective_time(collective(kind, sizes, 8), device).fixed_s, [0.0, 5e-6])
    assert collective_time(collective("p2p", 1e6, 8), device).fixed_s == 0.0
    # Without a limit everything is one kernel.
    assert collective_time(collective("all_gather", 1e6, 8), DEVICE).fixed_s == 0.0


def test_levels_work_one_after_another_in_a_gather() -> None:
    # 16 devices: 8 inside (7/8 of 1 GB at 70 GB/s), then 2 servers with an eighth of the data (1/2 of it at 10 GB/s).
    expected = 0.875e9 / 70e9 + 0.5 * 0.125e9 / 10e9
    assert collective_time(collective("reduce_scatter", 1e9, 16), DEVICE).total_s == pytest.approx(expected)


def test_levels_work_at_the_same_time_in_an_all_to_all() -> None:
    # 16 devices: 7 of 16 shares stay inside (70 GB/s), 8 of 16 leave the server (10 GB/s), which takes longer.
    time = collective_time(collective("all_to_all", 1.6e9, 16), DEVICE).total_s
    assert time == pytest.approx(max(0.7e9 / 70e9, 0.8e9 / 10e9))


def test_levels_of_shared_ports_send_one_after_the_other() -> None:
    outer, inner = DEVICE.interconnect.levels
    shared = Interconnect((replace(outer, shares_ports=True), inner))
    time = collective_time(collective("all_to_all", 1.6e9, 16), replace(DEVICE, interconnect=shared)).total_s
    assert time == pytest.approx(0.7e9 / 70e9 + 0.8e9 / 10e9)


def test_ranks_a_server_apart_meet_only_outside() -> None:
    levels = levels_of_group(DEVICE, 4, 8)
    assert [(share.link.name, share.peers) for share in levels] == [("cluster", 4)]
    assert outermost_link(DEVICE, collective("all_gather", 1.0, 4, 8)).name == "cluster"


def test_ranks_four_apart_pair_up_inside_a_server() -> None:
    levels = levels_of_group(DEVICE, 8, 4)
    assert [(share.link.name, share.peers, share.reached) for share in levels] == [("server", 2, 2), ("cluster", 4, 8)]


def test_a_group_beyond_the_grid_is_refused() -> None:
    with pytest.raises(ModelingError, match="spans 64 devices, but the interconnect of TEST_DEVICE joins 32"):
        levels_of_group(DEVICE, 64, 1)


def test_fixed_cost_and_latency_are_added() -> None:
    links = tuple(replace(level, latency_s=1e-6) for level in DEVICE.interconnect.levels)
    device = replace(
        DEVICE,
        collective=CollectiveCost(link_efficiency=0.5, fixed_s=1e-5),
        interconnect=replace(DEVICE.interconnect, levels=links),
    )
    time = collective_time(collective("all_reduce", 1e9, 8), device)
    assert time.comm_s == pytest.approx(2 * 0.875e9 / 35e9)
    assert time.fixed_s == pytest.approx(1e-5 + 2e-6)


@given(
    st.sampled_from(KINDS),
    st.sampled_from([2, 4, 8, 16, 32]),
    st.floats(1.0, 1e9),
    st.floats(0.0, 1e9),
)
def test_more_bytes_never_take_less_time(kind: str, group: int, size: float, more: float) -> None:
    less_time = collective_time(collective(kind, size, group), DEVICE).total_s
    more_time = collective_time(collective(kind, size + more, group), DEVICE).total_s
    assert more_time >= less_time


def test_a_fused_kernel_hides_the_shorter_under_the_longer() -> None:
    x, w, out = Tensor((1024, 1024), "bfloat16"), Tensor((1024, 1280), "bfloat16"), Tensor((1024, 1280), "bfloat16")
    product = MatMul(name="matmul", part="p", inputs=(x, w), outputs=(out,), m=1024.0, k=1024, n=1280)
    message = collective("all_reduce", 1e9, 8)
    fused = Overlapped(name="f", part="p", inputs=(), outputs=(), compute=(product,), collectives=(message,))
    apart = [analytic_time(part, DEVICE).total_s for part in (product, message)]
    assert analytic_time(fused, DEVICE).total_s == pytest.approx(max(apart))
