from __future__ import annotations

import numpy as np
import pytest

from tensor_cast.graph import Graph
from tensor_cast.ops import Elementwise, Op, Tensor


def op(inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> Op:
    return Elementwise(name="op", part="p", inputs=inputs, outputs=outputs)


def tensor(size: float) -> Tensor:
    return Tensor((size,), "int8")


def test_an_activation_lives_from_its_producer_to_its_last_reader() -> None:
    graph = Graph()
    a, b, c, d = tensor(10), tensor(20), tensor(5), tensor(1)
    with graph.block("only"):
        graph.emit(op((), (a,)))  # a: 10
        graph.emit(op((a,), (b,)))  # a, b: 30
        graph.emit(op((b,), (c,)))  # b, c, and a which the last op reads: 35
        graph.emit(op((a, c), (d,)))  # a, c, d: 16
    assert graph.peak_activation_bytes() == 35


def test_weights_caches_and_views_take_no_activation_memory() -> None:
    graph = Graph()
    x = tensor(10)
    weight, cache = Tensor((1000,), "int8", "weight"), Tensor((1000,), "int8", "cache")
    with graph.block("only"):
        graph.emit(op((), (x,)))
        graph.emit(op((x.view(4.0), weight), (cache,)))
    assert graph.peak_activation_bytes() == 10


def test_a_view_keeps_its_base_alive() -> None:
    graph = Graph()
    a, b = tensor(10), tensor(7)
    with graph.block("only"):
        graph.emit(op((), (a,)))
        graph.emit(op((), (b,)))
        graph.emit(op((a.view(2.0),), ()))
    assert graph.peak_activation_bytes() == 17


def test_the_peak_is_taken_point_by_point() -> None:
    graph = Graph()
    small_then_large = Tensor((np.array([1.0, 100.0]),), "int8")
    with graph.block("first"):
        graph.emit(op((), (small_then_large,)))
    with graph.block("second"):
        graph.emit(op((), (tensor(50),)))
    np.testing.assert_array_equal(graph.peak_activation_bytes(), [50.0, 100.0])


def test_sections_and_streams_are_recorded() -> None:
    graph = Graph()
    with graph.block("only"):
        with graph.section():
            with graph.side_stream():
                graph.emit(op((), (tensor(1),)))
            graph.emit(op((), (tensor(1),)))
        graph.emit(op((), (tensor(1),)))
    assert [(node.stream, node.section) for _, node in graph.nodes()] == [(1, 1), (0, 1), (0, None)]


def test_captured_kernels_are_not_in_the_graph() -> None:
    graph = Graph()
    with graph.block("only"):
        with graph.capture() as captured:
            graph.emit(op((), (tensor(1),)))
        graph.emit(op((), (tensor(1),)))
    assert len(captured) == 1
    assert len(list(graph.nodes())) == 1


def test_a_block_lists_each_weight_once() -> None:
    graph = Graph()
    weight = Tensor((3,), "int8", "weight", "w")
    with graph.block("only", count=4) as block:
        graph.emit(op((weight,), ()))
        graph.emit(op((weight,), ()))
    assert list(block.weights()) == [weight]
    assert block.weight_copies == 4


def test_a_kernel_outside_of_any_block_is_no_kernel_of_the_last() -> None:
    graph = Graph()
    with graph.block("only"):
        graph.emit(op((), (tensor(1),)))
    with pytest.raises(AssertionError):
        graph.emit(op((), (tensor(1),)))
