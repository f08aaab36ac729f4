"""Every kernel's implementation in torch against its reference in float64."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402

from tests.tools.op_replay.small_rows import SMALL_ROWS, Cells, row  # noqa: E402
from tools.perf_data_collection.op_replay import catalog  # noqa: E402
from tools.perf_data_collection.op_replay.backends import CpuBackend  # noqa: E402
from tools.perf_data_collection.op_replay.errors import RowError  # noqa: E402
from tools.perf_data_collection.op_replay.layouts import logical_shape, torch_dtype  # noqa: E402
from tools.perf_data_collection.op_replay.operands import OperandMaker  # noqa: E402

EXACT = {torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool}
RELATIVE = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 2e-3}
QUANTISING = {"DynamicQuant", "AscendQuantV2", "GroupedMatmulSwigluQuant"}
"""float32 and float64 may round a number on the border differently: by one."""
ALL_ROWS = [(kernel, number) for kernel, rows in SMALL_ROWS.items() for number in range(len(rows))]


def evaluated(kernel_name: str, given: Cells) -> tuple[list[Any], list[Any], Any]:
    kernel = catalog.load(kernel_name)
    small = row(kernel_name, given)
    operands = kernel.operands(small, OperandMaker(CpuBackend()))
    expected = kernel.reference(*copy.deepcopy(operands))
    with torch.inference_mode():
        results = kernel.host(*operands)
    return _listed(results), _listed(expected), small


def _listed(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple | list) else [results]


def test_all_thirty_six_kernels_have_a_script_and_small_rows():
    assert sorted(SMALL_ROWS) == sorted(catalog.operators())
    assert len(SMALL_ROWS) == 36


@pytest.mark.parametrize(("kernel", "number"), ALL_ROWS)
def test_host_gives_what_the_reference_says(kernel, number):
    results, expected, small = evaluated(kernel, SMALL_ROWS[kernel][number])
    assert len(results) >= len(expected) > 0
    precision = max(RELATIVE.get(torch_dtype(spec.dtype), 0.0) for spec in (*small.inputs, *small.outputs) if spec)
    for result, right in zip(results, expected, strict=False):
        found = result.double().numpy()
        assert found.shape == np.shape(right)
        if result.dtype in EXACT:
            assert np.abs(found - right).max() <= (1 if kernel in QUANTISING else 0)
        else:
            size = max(np.abs(right).max(), 1e-6)
            tolerance = 3e-2 if kernel == "DispatchFFNCombine" else precision
            assert np.abs(found - right).max() <= tolerance * size


@pytest.mark.parametrize(("kernel", "number"), ALL_ROWS)
def test_host_gives_the_rows_output(kernel, number):
    results, _, small = evaluated(kernel, SMALL_ROWS[kernel][number])
    first = small.outputs[0]
    assert tuple(results[0].shape) == logical_shape(first)
    if (kernel, first.dtype) not in {("ArgMaxV2", "INT32")}:
        assert results[0].dtype is torch_dtype(first.dtype)


def test_paged_keys_have_the_heads_that_their_width_holds():
    """Keys of 32 under queries of 16 are two heads: nothing else can be launched, whatever a column says."""
    from tests.tools.op_replay.small_rows import attention

    slots = {0: "2,4,16 FLOAT", 1: "6,8,32 FLOAT", 2: "6,8,32 FLOAT", 14: "2,3 INT32"}
    make = OperandMaker(CpuBackend())
    [call] = catalog.load("FusedInferAttentionScore").operands(
        row("FusedInferAttentionScore", attention(slots, ["2,4,16 FLOAT"])), make
    )
    assert call.keywords()["num_key_value_heads"] == 2
    wrong = attention(slots, ["2,4,16 FLOAT"], Runtime_num_key_value_heads="4")
    with pytest.raises(RowError, match="does not hold 4 heads of the query's D 16"):
        catalog.load("FusedInferAttentionScore").operands(row("FusedInferAttentionScore", wrong), make)


def test_results_are_not_trivial():
    for kernel, rows in SMALL_ROWS.items():
        _, expected, _ = evaluated(kernel, rows[0])
        assert np.unique(expected[0]).size > 2, kernel


@pytest.mark.parametrize(
    ("kernel", "inputs", "outputs", "message"),
    [
        ("MatMulV2", ["3,8 FLOAT", "5,9 FLOAT"], ["3,5 FLOAT"], "the shapes are no product"),
        ("RmsNorm", ["3,8 FLOAT"], ["3,8 FLOAT"], "Input 1 (gamma) is absent"),
        ("Index", ["3,8 FLOAT", "1 INT64", "2 INT64", "5 INT64"], ["5,8 FLOAT"], "cannot be taken out of 3"),
        ("PadV3", ["3,8 FLOAT"], ["2,8 FLOAT"], "cannot be padded"),
        ("AddRmsNormBias", ["3,8 FLOAT"] * 3, ["3,8 FLOAT"], "has 4 inputs and the row 3"),
        ("QuantBatchMatmulV3", ["3,8 FLOAT", "8,8 FLOAT", "8 FLOAT"], ["3,8 FLOAT"], "only int8"),
        ("GatherV2", ["10,8 FLOAT", "5 DT_BF16"], ["5,8 FLOAT"], "Indices and lengths are BF16 in the row"),
        ("Add", ["3 COMPLEX64"], ["3 COMPLEX64"], "Dtype COMPLEX64 cannot be made"),
        ("MatMulV2", ["3,32 FLOAT16", "2,1,16,8 FLOAT16 FRACTAL_NZ"], ["3,16 FLOAT16"], "does not end in 16,16"),
    ],
)
def test_a_row_that_makes_no_sense_says_why(kernel, inputs, outputs, message):
    from tests.tools.op_replay.small_rows import cells

    with pytest.raises(RowError, match=message.replace("(", r"\(").replace(")", r"\)")):
        catalog.load(kernel).operands(row(kernel, cells(inputs, outputs)), OperandMaker(CpuBackend()))
