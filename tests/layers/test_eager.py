"""Kernels of eager PyTorch, counted by hand: what each reads and writes of 10 rows of 64 in bfloat16."""

from __future__ import annotations

import pytest

from tensor_cast.graph import Graph
from tensor_cast.layers import eager
from tensor_cast.layers.dit import DenoiserBuild, gated_add, layer_norm, modulated_norm
from tensor_cast.video_deployment import VideoDeployment

ROWS, WIDTH = 10.0, 64
ELEMENTS = 640


@pytest.fixture
def build() -> DenoiserBuild:
    return DenoiserBuild(graph=Graph(), dtype="bfloat16", deployment=VideoDeployment(), batch=1.0)


def moved(build: DenoiserBuild) -> list[tuple[str, float]]:
    """Each kernel with its bytes an element, vectors of a row or a column left out."""
    found = []
    for _, node in build.graph.nodes():
        tensors = [t for t in (*node.op.inputs, *node.op.outputs) if t.elements >= ELEMENTS / 2]
        found.append((node.op.name, sum(float(t.bytes) for t in tensors) / ELEMENTS))
    return found


def test_rms_norm(build: DenoiserBuild) -> None:
    with build.graph.block("b"):
        out = eager.rms_norm(build, build.activation(ROWS, WIDTH), build.weight("w", (WIDTH,)), "p")
    assert out.dtype == "bfloat16"
    # float() 2 -> 4, squares 4 -> 4, mean 4, product 2 -> 4, back 4 -> 2, product with the weight 2 -> 2.
    assert moved(build) == [("cast", 6), ("pow", 8), ("mean", 4), ("mul", 6), ("cast", 6), ("mul", 4)]


def test_rotation(build: DenoiserBuild) -> None:
    with build.graph.block("b"):
        out = eager.rotate(build, build.activation(ROWS, WIDTH), "p")
    assert out.dtype == "bfloat16"
    # Half the elements are negated and all put together, then each operand is copied to float32 and multiplied.
    assert moved(build) == [
        ("neg", 2), ("stack", 4), ("cast", 6), ("mul", 8), ("cast", 6), ("mul", 8), ("add", 12), ("cast", 6)
    ]  # fmt: skip


def test_modulated_norm_in_the_models_dtype_and_in_float32(build: DenoiserBuild) -> None:
    x, vector = build.activation(ROWS, WIDTH), build.activation(1.0, WIDTH)
    with build.graph.block("b"):
        modulated_norm(build, x, vector, vector, "p")
    assert moved(build) == [("layer_norm", 4), ("mul", 4), ("add", 4)]
    with build.graph.block("c"):
        out = modulated_norm(build, x, vector, vector, "p", float32=True)
    assert out.dtype == "bfloat16"
    assert moved(build)[3:] == [("cast", 6), ("layer_norm", 8), ("mul", 8), ("add", 8), ("cast", 6)]


def test_norm_and_residual_in_float32(build: DenoiserBuild) -> None:
    x, y, gate = build.activation(ROWS, WIDTH), build.activation(ROWS, WIDTH), build.activation(1.0, WIDTH)
    with build.graph.block("b"):
        layer_norm(build, x, "p", float32=True)
        gated_add(build, x, y, gate, "p", float32=True)
    assert moved(build) == [
        ("cast", 6), ("layer_norm", 8), ("cast", 6), ("mul", 6), ("cast", 6), ("add", 12), ("cast", 6)
    ]  # fmt: skip


def test_a_float32_model_has_nothing_to_cast() -> None:
    build = DenoiserBuild(graph=Graph(), dtype="float32", deployment=VideoDeployment(), batch=1.0)
    with build.graph.block("b"):
        eager.rotate(build, build.activation(ROWS, WIDTH), "p")
    assert [name for name, _ in moved(build)] == ["neg", "stack", "mul", "mul", "add"]


def test_wans_norm_over_channels(build: DenoiserBuild) -> None:
    with build.graph.block("b"):
        eager.normalize(build, build.activation(ROWS, WIDTH), build.weight("w", (WIDTH,)), "p")
    assert moved(build) == [("norm", 2), ("div", 4), ("mul", 4), ("mul", 4)]
