"""Shape text: what is equal, what is absent, reading and writing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.shapes import (
    Tensor,
    canonical_dtypes,
    canonical_formats,
    canonical_shapes,
    is_missing,
    parse_shapes,
    parse_tensors,
    quoted_shapes,
    row_key,
)

DTYPES = st.sampled_from(["BF16", "FLOAT", "FLOAT16", "INT8", "INT32", "INT64", "BOOL"])
FORMATS = st.sampled_from(["ND", "NCHW", "FRACTAL_NZ"])
SHAPES = st.lists(st.integers(0, 200_000), max_size=5).map(tuple)
TENSORS = st.lists(st.none() | st.builds(Tensor, SHAPES, DTYPES, FORMATS), min_size=1, max_size=8)


def cells_of(tensors: list[Tensor | None]) -> tuple[str, str, str]:
    return (
        quoted_shapes(";".join("" if tensor is None else ",".join(map(str, tensor.shape)) for tensor in tensors)),
        ";".join("DT_UNDEFINED" if tensor is None else tensor.dtype for tensor in tensors),
        ";".join("NULL" if tensor is None else tensor.format for tensor in tensors),
    )


@settings(deadline=None)
@given(TENSORS)
def test_reading_gives_back_what_was_written(tensors: list[Tensor | None]) -> None:
    assert parse_tensors(*cells_of(tensors)) == tuple(tensors)


@settings(deadline=None)
@given(TENSORS, TENSORS, st.integers(0, 2))
def test_key_ignores_prefixes_quotes_spaces_and_trailing_absent_operands(
    inputs: list[Tensor | None], outputs: list[Tensor | None], absent: int
) -> None:
    shapes, dtypes, formats = cells_of(inputs)
    plain = row_key(shapes, dtypes, formats, *cells_of(outputs))
    respelt = row_key(
        shapes.strip('"').replace(",", ", ") + ";" * absent,
        ";".join(f"DT_{name.removeprefix('DT_')}" for name in dtypes.split(";")) + ";DT_UNDEFINED" * absent,
        ";".join(name if name == "NULL" else f"FORMAT_{name}" for name in formats.split(";")) + ";NULL" * absent,
        *cells_of(outputs),
    )
    assert respelt == plain


@settings(deadline=None)
@given(TENSORS, TENSORS)
def test_keys_differ_when_operands_do(one: list[Tensor | None], other: list[Tensor | None]) -> None:
    def without_trailing_absent(tensors: list[Tensor | None]) -> list[Tensor | None]:
        kept = list(tensors)
        while kept and kept[-1] is None:
            kept.pop()
        return kept

    same = without_trailing_absent(one) == without_trailing_absent(other)
    nothing = ("", "", "")
    assert (row_key(*cells_of(one), *nothing) == row_key(*cells_of(other), *nothing)) == same


def test_scalars_of_different_dtypes_are_different_rows() -> None:
    # A profile adds FLOAT and INT64 scalars; both shapes are "4096;".
    float_add = row_key('"4096;"', "FLOAT;FLOAT", "ND;ND", '"4096"', "FLOAT", "ND")
    int_add = row_key('"4096;"', "INT64;INT64", "ND;ND", '"4096"', "INT64", "ND")
    assert float_add != int_add


@pytest.mark.parametrize("nothing", ["N/A", " n/a ", '"N/A"', "NA"])
def test_shapes_that_the_profiler_does_not_know(nothing: str) -> None:
    assert is_missing(nothing)


@pytest.mark.parametrize("something", ["", '""', '";"', "1,2"])
def test_empty_shapes_are_known(something: str) -> None:
    assert not is_missing(something)


def test_canonical_text() -> None:
    assert canonical_shapes('"1, 2;();N/A;3;;"') == "1,2;;;3"
    assert canonical_dtypes("DT_BF16;float;DT_UNDEFINED;INT8;DT_UNDEFINED") == "BF16;FLOAT;;INT8"
    assert canonical_formats("FORMAT_ND;NULL;fractal_nz;NULL") == "ND;;FRACTAL_NZ"


def test_scalar_and_absent_operand_look_the_same_but_for_the_dtype() -> None:
    assert parse_tensors('"4096;;"', "FLOAT;FLOAT;DT_UNDEFINED", "ND;ND;NULL") == (
        Tensor((4096,), "FLOAT", "ND"),
        Tensor((), "FLOAT", "ND"),
        None,
    )


def test_short_dtype_cells_leave_the_rest_without_one() -> None:
    assert parse_tensors("2;3", "FLOAT", "ND") == (Tensor((2,), "FLOAT", "ND"), Tensor((3,), "", ""))


def test_quotes_are_added_once() -> None:
    assert quoted_shapes("1,2;3") == '"1,2;3"'
    assert quoted_shapes('"1,2;3"') == '"1,2;3"'
    assert quoted_shapes("") == '""'


def test_unreadable_shape_is_named() -> None:
    with pytest.raises(ModelingError, match=r"'12x4' cannot be read"):
        parse_shapes("12x4")
