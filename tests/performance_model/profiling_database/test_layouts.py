"""Layouts read what profilers report and write it back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_cast.performance_model.profiling_database.blocks import blocks
from tensor_cast.performance_model.profiling_database.kernel_table import KERNELS
from tensor_cast.performance_model.profiling_database.kernels import Kernel
from tensor_cast.performance_model.profiling_database.layouts import Layout, Match
from tensor_cast.performance_model.profiling_database.shapes import RowKey, row_key

NZ = Layout("m,k:x ; k/16,n/16,16,16:x@NZ ; n? -> m,n:y")
ND = Layout("m,k:x ; n,k:x ; n? -> m,n:y")


def matched(layout: Layout, *keys: RowKey) -> Match | None:
    (block,) = blocks(keys)
    return layout.match(block)


def key(shapes: str, dtypes: str, formats: str, out: str, out_dtypes: str = "DT_BF16") -> RowKey:
    return row_key(shapes, dtypes, formats, out, out_dtypes, "ND")


def test_sizes_are_read_from_a_fractal_weight() -> None:
    # 320 x 16 = 5120 columns of the left operand, 48 x 16 = 768 of the result.
    match = matched(NZ, key("16,5120;320,48,16,16", "DT_BF16;DT_BF16", "ND;FRACTAL_NZ", "16,768"))
    assert match is not None
    assert {name: values.tolist() for name, values in match.coordinates.items()} == {
        "m": [16.0],
        "k": [5120.0],
        "n": [768.0],
    }
    assert match.dtypes == {"x": "bfloat16", "y": "bfloat16"}


def test_a_width_that_fills_no_fractal_is_that_of_the_result() -> None:
    match = matched(NZ, key("4,512;32,594,16,16", "BF16;BF16", "ND;FRACTAL_NZ", "4,9496"))
    assert match is not None
    assert match.coordinates["n"].tolist() == [9496.0]  # ceil(9496 / 16) = 594


@pytest.mark.parametrize(
    ("shapes", "dtypes", "formats", "out"),
    [
        ("16,5120;320,48,16,16", "BF16;BF16", "ND;ND", "16,768"),  # four dimensions, but not NZ
        ("16,5120;320,48,16,16", "BF16;FLOAT", "ND;FRACTAL_NZ", "16,768"),  # x is two dtypes
        ("16,5120;321,48,16,16", "BF16;BF16", "ND;FRACTAL_NZ", "16,768"),  # 321 x 16 is not 5120
        ("16,5120;320,48,16,16;1,768", "BF16;BF16;BF16", "ND;FRACTAL_NZ;ND", "16,769"),
        ("16,5120", "BF16", "ND", "16,768"),
    ],
)
def test_other_operands_are_not_taken(shapes: str, dtypes: str, formats: str, out: str) -> None:
    assert matched(NZ, key(shapes, dtypes, formats, out)) is None


def test_a_dtype_of_new_rows_does_not_choose_among_old_ones() -> None:
    layout = Layout("t,d:x ; b~:=INT64 -> t,d:x")
    for lengths in ("INT64", "INT32"):
        match = matched(layout, key("8,64;2", f"BF16;{lengths}", "ND;ND", "8,64"))
        assert match is not None
        assert match.dtypes == {"x": "bfloat16"}
    assert layout.render({"t": 8.0, "d": 64.0, "b": 2.0}, {"x": "float16"})[1] == "FLOAT16;INT64"


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_every_operand_of_a_new_row_says_its_dtype(kernel: Kernel) -> None:
    for layout in kernel.layouts:
        written = [operand for side in layout.written_sides for operand in side if not operand.optional]
        assert all(operand.dtype for operand in written if operand.dimensions is not None), layout.text


def test_a_bias_changes_nothing() -> None:
    with_bias = matched(ND, key("4,8;6,8;6", "BF16;BF16;FLOAT", "ND;ND;ND", "4,6"))
    assert with_bias is not None
    assert with_bias.coordinates["n"].tolist() == [6.0]


def test_dimensions_of_one_may_lead_but_heads_may_not() -> None:
    layout = Layout("t,d:x -> t,d:x")
    rows = [key(shape, "BF16", "ND", shape) for shape in ("1,4096,64", "4096,1,64", "4096,4,64")]
    match = matched(layout, *rows)
    assert match is not None
    assert match.rows.tolist() == [True, True, False]
    assert match.coordinates["t"][:2].tolist() == [4096.0, 4096.0]


def test_an_absent_operand_is_no_scalar() -> None:
    absent, scalar = Layout("t:x ; - -> t:x"), Layout("t:x ; ? -> t:x")
    with_scalar = key("4096;", "FLOAT;FLOAT", "ND;ND", "4096", "FLOAT")
    with_nothing = key("4096;", "FLOAT;DT_UNDEFINED", "ND;NULL", "4096", "FLOAT")
    assert matched(absent, with_scalar) is None
    assert matched(scalar, with_scalar) is not None
    assert matched(absent, with_nothing) is not None


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: "-".join((kernel.name, *kernel.widths)))
@settings(max_examples=5)
@given(data=st.data())
def test_what_a_layout_writes_it_reads(kernel: Kernel, data: st.DataObject) -> None:
    for layout in kernel.layouts:
        # Multiples of 96 fill every fractal; distinct sizes keep one name from passing for another.
        sizes = data.draw(
            st.lists(
                st.integers(1, 400).map(lambda n: 96.0 * n),
                min_size=len(layout.written_names),
                max_size=len(layout.written_names),
                unique=True,
            )
        )
        coordinates = dict(zip(layout.written_names, sizes, strict=True))
        names = {operand.dtype for side in layout.written_sides for operand in side if operand.dtype[:1].islower()}
        dtypes = dict.fromkeys(sorted(names), "int8")
        match = matched(layout, row_key(*layout.render(coordinates, dtypes)))
        assert match is not None
        assert {name: values.tolist() for name, values in match.coordinates.items()} == {
            name: [coordinates[name]] for name in layout.names
        }
        assert match.dtypes.items() <= dtypes.items()
