from __future__ import annotations

from typing import Any

import pytest

from tensor_cast.evaluation.kernel_rows import row_from_dict, row_to_dict, rows_of_trace


def _event(name: str, duration_us: float, scope: str = "layers.0", **args: Any) -> dict[str, Any]:
    every = {
        "scope": scope,
        "part": "mlp",
        "inputs": [{"shape": [8, 64], "dtype": "bfloat16"}],
        "outputs": [{"shape": [8, 32], "dtype": "bfloat16"}],
        "bound": "memory",
        **args,
    }
    return {"ph": "X", "name": name, "cat": "MatMul", "ts": 0.0, "dur": duration_us, "args": every}


def test_launches_of_equal_shapes_are_one_row() -> None:
    events = [
        {"ph": "M", "name": "process_name"},
        _event("matmul", 2.0),
        _event("matmul", 4.0, "layers.1"),
        _event("matmul", 1.0, inputs=[{"shape": [9, 64], "dtype": "bfloat16"}]),
        {"ph": "X", "name": "without a kernel", "cat": "Idle", "ts": 7.0, "dur": 5.0},
    ]
    first, second = rows_of_trace({"traceEvents": events})
    assert (first.count, first.total_s, first.average_s) == (2.0, pytest.approx(6e-6), pytest.approx(3e-6))
    assert first.inputs == ((8, 64),)
    assert second.inputs == ((9, 64),)


def test_a_block_that_is_drawn_once_counts_as_often_as_it_runs() -> None:
    (row,) = rows_of_trace({"traceEvents": [_event("matmul", 12.0, "layers x 40")]})
    assert (row.count, row.average_s) == (40.0, pytest.approx(0.3e-6))


def test_the_bound_is_that_of_most_of_the_time() -> None:
    (row,) = rows_of_trace({"traceEvents": [_event("matmul", 1.0), _event("matmul", 2.0, bound="matrix")]})
    assert row.bound == "matrix"


def test_a_row_reads_back_from_json() -> None:
    (row,) = rows_of_trace({"traceEvents": [_event("all_reduce", 1.0, group_size=8)]})
    assert row_from_dict(row_to_dict(row)) == row
