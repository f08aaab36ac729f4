from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.graph import Block
from tensor_cast.models.stages import pipeline_stages


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"),
    [
        (20, 4, [5, 5, 5, 5]),
        # Of 61 layers one is left over: the last stage has the head, so the stage before it takes the layer.
        (61, 4, [15, 15, 16, 15]),
        (7, 5, [1, 1, 2, 2, 1]),
        (7, 4, [2, 2, 2, 1]),
        (3, 1, [3]),
    ],
)
def test_layers_left_over_spare_the_last_stage(layers: int, stages: int, sizes: list[int]) -> None:
    assert [len(stage.layers) for stage in pipeline_stages(layers, stages)] == sizes


@given(st.integers(1, 100), st.integers(1, 16))
def test_every_layer_is_of_one_stage(layers: int, stages: int) -> None:
    found = pipeline_stages(layers, stages)
    assert [layer for stage in found for layer in stage.layers] == list(range(layers))
    sizes = [len(stage.layers) for stage in found]
    assert max(sizes) - min(sizes) <= 1
    assert [stage.first for stage in found] == [True] + [False] * (stages - 1)
    assert [stage.last for stage in found] == [False] * (stages - 1) + [True]


def test_every_run_of_a_block_is_of_one_stage() -> None:
    stages = pipeline_stages(7, 3)  # 2, 3 and 2 layers
    even = Block("layers.0-6", 4, (0, 2, 4, 6), 4)
    between = Block("pipeline", 2, (), 2, place="between")
    first, last = Block("embedding", 1, (), 1, place="first"), Block("mtp.next", 3, (), 1)
    assert [stage.runs(even) for stage in stages] == [1, 2, 1]
    assert [stage.runs(between) for stage in stages] == [1, 1, 0]
    assert [stage.runs(first) for stage in stages] == [1, 0, 0]
    assert [stage.runs(last) for stage in stages] == [0, 0, 3]
    assert [stage.weight_copies(last) for stage in stages] == [0, 0, 1]
