"""When two spellings are the same row, and when not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.tools.op_replay.small_rows import SMALL_ROWS, cells
from tools.perf_data_collection.op_replay.signature import MATMUL_FAMILY, signature


def test_quotes_prefixes_blanks_and_output_formats_do_not_count():
    plain = cells(["4,8 DT_BF16", "-", "8 FLOAT"], ["4,8 DT_BF16"])
    respelt = {
        **plain,
        "Input Shapes": "4, 8;;8;;",
        "Input Data Types": "BF16;DT_UNDEFINED;DT_FLOAT;DT_UNDEFINED;DT_UNDEFINED",
        "Input Formats": "FORMAT_ND;NULL;ND;NULL;NULL",
        "Output Formats": "NCHW",
    }
    assert signature("Add", plain) == signature("Add", respelt)
    assert signature("Add", plain) == ("4,8;;8", "BF16;;FLOAT", "ND;;ND", "4,8", "BF16")


def test_scalars_of_any_dtype_are_one_row():
    floats, integers = cells(["() FLOAT", "() FLOAT"], ["() FLOAT"]), cells(["() INT64", "() INT64"], ["() INT64"])
    assert signature("Add", floats) == signature("Add", integers) == ("", "", "", "", "")


def test_matrix_products_are_compared_by_m_k_n():
    # M=3, K=8, N=5: b as (N, K) and (K, N), a transposed, and with a bias
    forms = [
        ["3,8 FLOAT", "5,8 FLOAT"],
        ["3,8 FLOAT", "8,5 FLOAT"],
        ["8,3 FLOAT", "5,8 FLOAT"],
        ["3,8 FLOAT", "5,8 FLOAT", "5 FLOAT"],
    ]
    for kernel in MATMUL_FAMILY:
        found = {signature(kernel, cells(form, ["3,5 FLOAT"])) for form in forms}
        assert found == {("3,8;5,8", "FLOAT;FLOAT", "ND;ND", "3,5", "FLOAT")}
    fractal = cells(["3,32 DT_BF16", "2,1,16,16 DT_BF16 FRACTAL_NZ"], ["3,16 DT_BF16"])
    assert signature("MatMulV2", fractal)[0] == "3,32;2,1,16,16"
    assert signature("BatchMatMulV2", cells(forms[0], ["3,5 FLOAT"])) != signature(
        "BatchMatMulV2", cells(forms[1], ["3,5 FLOAT"])
    )


def test_index_slice_and_transpose_are_compared_by_what_decides_their_work():
    profiled = cells(["16,8 DT_BF16", "1 INT64", "2 INT64", "6 INT32"], ["6,8 DT_BF16"])
    replayed = cells(["16,8 DT_BF16", "1 INT64", "1 INT64", "6 INT32"], ["6,8 DT_BF16"])
    assert (
        signature("Index", profiled) == signature("Index", replayed) == ("16,8;6", "BF16;INT32", "ND;ND", "6,8", "BF16")
    )
    for kernel in ("Slice", "Transpose"):
        grid = cells(["4,8 FLOAT NCHW", "2 INT64", "2 INT64"], ["2,8 FLOAT"])
        assert signature(kernel, grid) == ("4,8", "FLOAT", "ND", "2,8", "FLOAT")


def test_the_ep_size_belongs_to_dispatch_ffn_combine_alone():
    base = SMALL_ROWS["DispatchFFNCombine"][0]
    assert signature("DispatchFFNCombine", {**base, "EP Size": "2"}) != signature(
        "DispatchFFNCombine", {**base, "EP Size": "4"}
    )
    assert signature("Add", {**base, "EP Size": "2"}) == signature("Add", {**base, "EP Size": "4"})


@given(st.sampled_from([(kernel, given) for kernel, rows in SMALL_ROWS.items() for given in rows]), st.integers(0, 3))
def test_trailing_absent_operands_never_count(sample, count):
    kernel, given_cells = sample
    if kernel == "Index":  # its last entry is the index
        return
    longer = dict(given_cells)
    longer["Input Shapes"] = '"' + given_cells["Input Shapes"].strip('"') + ";" * count + '"'
    longer["Input Data Types"] += ";DT_UNDEFINED" * count
    longer["Input Formats"] += ";NULL" * count
    assert signature(kernel, longer) == signature(kernel, given_cells)
