"""Arithmetic of a profile, by hand."""

from __future__ import annotations

import pytest

from tensor_cast.devices import Interconnect, LinkLevel, get_device
from tensor_cast.errors import ModelingError

MESH = LinkLevel("server", 8, "full_mesh", 70e9, 0.0)
SWITCH = LinkLevel("cluster", 4, "switched", 10e9, 0.0)


@pytest.mark.parametrize(("group", "bandwidth"), [(1, 0.0), (2, 10e9), (4, 30e9), (8, 70e9)])
def test_a_full_mesh_gives_a_group_its_own_links(group: int, bandwidth: float) -> None:
    # 70 GB/s are 7 links of 10 GB/s; a group of g uses g - 1 of them.
    assert MESH.group_bandwidth(group) == bandwidth


@pytest.mark.parametrize("group", [2, 3, 4])
def test_a_switch_gives_any_group_everything(group: int) -> None:
    assert SWITCH.group_bandwidth(group) == 10e9


def test_the_grid_joins_the_product_of_its_levels() -> None:
    grid = Interconnect((SWITCH, MESH))
    assert grid.shape == (4, 8)
    assert grid.device_count == 32


def test_a_missing_rate_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        ModelingError, match="A100_SXM_80GB has no fp8 matrix rate; it has bfloat16, float16, float32, int8"
    ):
        get_device("A100").matrix_rate("fp8")


def test_vector_work_without_a_rate_runs_in_float32() -> None:
    device = get_device("ATLAS_800_A3_752T_128G_DIE")
    assert device.vector_rate("bfloat16") == 22e12
    assert device.vector_rate("int8") == device.vector_rate("float32") == 11e12
