"""Measured, interpolated, extrapolated, or left to the analytic model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tensor_cast.devices import get_device
from tensor_cast.ops import Op
from tensor_cast.performance_model.analytic import analytic_time
from tensor_cast.performance_model.profiling_database.accuracy import accuracy
from tensor_cast.performance_model.profiling_database.kernel_table import KERNELS
from tensor_cast.performance_model.profiling_database.kernels import Kernel, Launch
from tensor_cast.performance_model.profiling_database.kernels_attention import DECODE_ATTENTION, LATENT_ATTENTION
from tensor_cast.performance_model.profiling_database.kernels_matmul import (
    DYNAMIC_QUANT_MATMUL,
    GROUPED_MATMUL_SWIGLU_QUANT,
    MATMUL,
    STATIC_QUANT_MATMUL,
)
from tensor_cast.performance_model.profiling_database.kernels_vector import RMS_NORM
from tensor_cast.performance_model.profiling_database.lookup import Lookup
from tensor_cast.performance_model.profiling_database.merge import ProfiledRow
from tensor_cast.performance_model.profiling_database.schema import REPLAY_DURATION
from tensor_cast.performance_model.profiling_database.store import Database, update_database
from tensor_cast.performance_model.profiling_database.table import Table, read_table, table_bytes
from tensor_cast.performance_model.timing import ANALYTIC, EXTRAPOLATED, INTERPOLATED, MEASURED
from tensor_cast.quantity import Quantity

BF16 = {"x": "bfloat16", "y": "bfloat16"}
Point = tuple[dict[str, float], float]


def work(op: Op) -> Quantity:
    """An analytic model of one nanosecond a matrix FLOP and one a byte."""
    return (op.matrix_flops + op.bytes) * 1e-9


def rows(kernel: Kernel, layout: int, points: Sequence[Point], **runtime: Sequence[str]) -> list[ProfiledRow]:
    """A row for each (sizes, microseconds)."""
    dtypes = {"x": "bfloat16", "y": "bfloat16", "w": "int8", "q": "int8"}
    found = []
    for index, (sizes, duration) in enumerate(points):
        cells = kernel.layouts[layout].render(sizes, dtypes)
        profile = (f"{duration:.6f}", f"{duration:.6f}", "0.100000", *["0.000000"] * 25, "3")
        named = {f"Runtime {name}": values[index] for name, values in runtime.items()}
        found.append(ProfiledRow(("dynamic", "AI_CORE", *cells), profile, named))
    return found


@pytest.fixture
def lookup(tmp_path: Path) -> Callable[..., Lookup]:
    def build(kernel_rows: dict[str, list[ProfiledRow]], *, interpolate: bool = True) -> Lookup:
        update_database(tmp_path, kernel_rows)
        return Lookup(Database(tmp_path), work, interpolate)

    return build


def sizes(m: float, k: float = 64.0, n: float = 32.0) -> dict[str, float]:
    return {"m": m, "k": k, "n": n}


def seconds(m: float, k: float = 64.0, n: float = 32.0) -> float:
    """``work`` of a product of bfloat16: 2mkn FLOPs and 2 (mk + kn + mn) bytes."""
    return (2.0 * m * k * n + 2.0 * (m * k + k * n + m * n)) * 1e-9


def test_one_kernel_is_answered_for_all_points_at_once(lookup: Callable[..., Lookup]) -> None:
    # Measured: twice the model at 16 rows, 8 times at 256. The kernel changes from V2 to V3 on the way.
    small = rows(MATMUL, 1, [(sizes(16.0), 2e6 * seconds(16.0))])
    large = rows(MATMUL, 1, [(sizes(256.0), 8e6 * seconds(256.0))])
    m = np.array([[16.0, 64.0], [1024.0, 1025.0]])
    answer = lookup({"MatMulV2": small, "MatMulV3": large}).time(Launch(MATMUL, sizes(m), BF16))  # type: ignore[arg-type]
    assert answer.codes.tolist() == [[MEASURED, INTERPOLATED], [EXTRAPOLATED, ANALYTIC]]
    # 64 lies halfway by logarithm: sqrt(2 x 8) = 4 times the model; beyond 256 it stays 8 times, up to 1024.
    expected = [2.0 * seconds(16.0), 4.0 * seconds(64.0), 8.0 * seconds(1024.0)]
    assert answer.seconds.ravel()[:3] == pytest.approx(expected, rel=1e-6)
    assert np.isnan(answer.seconds[1, 1])
    assert answer.error.ravel().tolist() == sorted(answer.error.ravel().tolist())


def test_exact_rows_alone_without_interpolation(lookup: Callable[..., Lookup]) -> None:
    points = [(sizes(16.0), 10.0), (sizes(64.0), 20.0)]
    found = lookup({"MatMulV2": rows(MATMUL, 0, points)}, interpolate=False)
    answer = found.time(Launch(MATMUL, {**sizes(0.0), "m": np.array([16.0, 32.0, 64.0])}, BF16))
    assert answer.codes.tolist() == [MEASURED, ANALYTIC, MEASURED]
    assert answer.seconds[[0, 2]] == pytest.approx([10e-6, 20e-6])


def test_dtypes_never_mix_and_formats_do_not_meet(lookup: Callable[..., Lookup]) -> None:
    nd = rows(MATMUL, 1, [(sizes(16.0), 10.0), (sizes(64.0), 20.0)])
    nz = rows(MATMUL, 0, [(sizes(32.0), 99.0)])
    found = lookup({"MatMulV2": [*nd, *nz]})
    assert found.time(Launch(MATMUL, sizes(16.0), {"x": "float16"})).codes == ANALYTIC
    # At 32 rows the fractal format is measured, at 16 the plain one; neither bends the other's curve.
    answer = found.time(Launch(MATMUL, {**sizes(0.0), "m": np.array([16.0, 32.0])}, BF16))
    assert answer.codes.tolist() == [MEASURED, MEASURED]
    assert answer.seconds == pytest.approx([10e-6, 99e-6])


def test_other_widths_are_extrapolation_and_near(lookup: Callable[..., Lookup]) -> None:
    found = lookup({"MatMulV2": rows(MATMUL, 1, [(sizes(16.0), 3e6 * seconds(16.0))])})
    near = found.time(Launch(MATMUL, sizes(16.0, n=64.0), BF16))
    assert near.codes == EXTRAPOLATED
    assert near.seconds == pytest.approx(3.0 * seconds(16.0, n=64.0), rel=1e-6)
    # Twice as wide and a quarter as deep: three octaves.
    assert found.time(Launch(MATMUL, sizes(16.0, k=16.0, n=64.0), BF16)).codes == ANALYTIC


def test_of_rows_that_repeat_the_first_counts(lookup: Callable[..., Lookup], tmp_path: Path) -> None:
    found = lookup({"MatMulV2": rows(MATMUL, 1, [(sizes(16.0), 10.0)])})
    path = tmp_path / "MatMulV2.csv"
    header, first = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\r\n".join([header, first, first.replace("10.000000", "30.000000"), ""]), encoding="utf-8")
    assert found.time(Launch(MATMUL, sizes(16.0), BF16)).seconds == pytest.approx(10e-6)


def test_heads_of_a_norm_are_another_kernel_than_rows(lookup: Callable[..., Lookup]) -> None:
    heads = rows(RMS_NORM, 0, [({"t": 16.0, "h": 4.0, "d": 128.0}, 13.7)])
    plain = rows(RMS_NORM, 1, [({"t": 64.0, "d": 128.0}, 6.0)])
    found = lookup({"RmsNorm": [*heads, *plain]})
    assert found.time(Launch(RMS_NORM, {"t": 16.0, "h": 4.0, "d": 128.0}, BF16)).seconds == pytest.approx(13.7e-6)
    assert found.time(Launch(RMS_NORM, {"t": 64.0, "h": 1.0, "d": 128.0}, BF16)).seconds == pytest.approx(6e-6)


def test_a_scale_a_token_tells_dynamic_products(lookup: Callable[..., Lookup]) -> None:
    found = lookup({"QuantBatchMatmulV3": rows(DYNAMIC_QUANT_MATMUL, 0, [(sizes(16.0), 5.0)])})
    assert found.time(Launch(DYNAMIC_QUANT_MATMUL, sizes(16.0), {"w": "int8"})).codes == MEASURED
    assert found.time(Launch(DYNAMIC_QUANT_MATMUL, sizes(16.0), {"w": "fp8"})).codes == ANALYTIC


def test_a_square_product_with_scales_a_token_is_not_static(lookup: Callable[..., Lookup]) -> None:
    # 64 rows of 64 columns: the fourth operand could be an offset a column by its length.
    found = lookup({"QuantBatchMatmulV3": rows(DYNAMIC_QUANT_MATMUL, 1, [(sizes(64.0, n=64.0), 5.0)])})
    assert found.time(Launch(DYNAMIC_QUANT_MATMUL, sizes(64.0, n=64.0), {"w": "int8"})).codes == MEASURED
    assert found.time(Launch(STATIC_QUANT_MATMUL, sizes(64.0, n=64.0), {"w": "int8"})).codes == ANALYTIC


@pytest.mark.parametrize("weight", ["2,2,4,16,32", "2,64,4,16"])
def test_an_experts_product_is_found_in_the_slots_of_shape_grids_too(
    lookup: Callable[..., Lookup], weight: str
) -> None:
    # Two experts of (64, 64): the first product of 32 gated columns. (2, 64, 4, 16) names the blocks of N alone.
    cells = (f'"8,64;{weight};;2,64;;;;2;8"', "INT8;INT8;;FLOAT;;;;INT64;FLOAT", "ND;FRACTAL_NZ;;ND;;;;ND;ND")
    profile = ("7.000000", "7.000000", "0.100000", *["0.000000"] * 25, "3")
    row = ProfiledRow(("dynamic", "AI_CORE", *cells, '"8,64"', "DT_BF16", "ND"), profile, {})
    found = lookup({"GroupedMatmulSwigluQuant": [row]})
    launch = Launch(GROUPED_MATMUL_SWIGLU_QUANT, {"m": 8.0, "e": 2.0, "k": 64.0, "i": 32.0}, {"w": "int8"})
    answer = found.time(launch)
    assert (answer.codes, answer.seconds) == (MEASURED, pytest.approx(7e-6))


LATENT = {"b": 8.0, "h": 16.0, "s": 1.0, "c": 512.0, "r": 64.0, "nb": 1000.0, "bs": 128.0, "mb": 64.0, "mask": 2048.0}


def test_attention_lengths_come_from_runtime_columns(lookup: Callable[..., Lookup]) -> None:
    points = [(LATENT, 50.0), (LATENT, 80.0), (LATENT, 99.0)]
    measured = rows(
        LATENT_ATTENTION,
        1,
        points,
        actual_seq_lengths_kv_values=["1000;1000;1000;1000;1048;1048;1048;1048", "", ""],
        avg_seq_len=["7", "4096.000000", ""],
    )
    found = lookup({"FusedInferAttentionScore": measured})
    lengths: Quantity = np.array([1024.0, 2048.0, 4096.0])
    query = {"kv": lengths, "q": 1.0, "b": 8.0, "h": 16.0, "c": 512.0, "r": 64.0}
    answer = found.time(Launch(LATENT_ATTENTION, query, {"x": "bfloat16"}))
    # The mean of the values is 1024 whatever the average says; a row without lengths says nothing.
    assert answer.codes.tolist() == [MEASURED, INTERPOLATED, MEASURED]
    assert answer.seconds[[0, 2]] == pytest.approx([50e-6, 80e-6])


def test_a_paged_decode_takes_its_kv_heads_from_the_row(lookup: Callable[..., Lookup]) -> None:
    shapes = {"t": 16.0, "h": 4.0, "d": 128.0, "b": 16.0, "nb": 500.0, "bs": 128.0, "wk": 128.0, "wv": 128.0}
    shapes |= {"mb": 32.0, "mask": 2048.0, "v": 128.0}
    measured = rows(
        DECODE_ATTENTION, 1, [(shapes, 64.0)], actual_seq_lengths_kv_values=["4096"], num_key_value_heads=["1"]
    )
    query = {"kv": 4096.0, "q": 1.0, "b": 16.0, "h": 4.0, "g": 1.0, "d": 128.0, "v": 128.0}
    answer = lookup({"FusedInferAttentionScore": measured}).time(Launch(DECODE_ATTENTION, query, {"x": "bfloat16"}))
    assert answer.codes == MEASURED
    assert answer.seconds == pytest.approx(64e-6)


def test_a_replay_of_a_row_without_lengths_fills_its_blocks(lookup: Callable[..., Lookup], tmp_path: Path) -> None:
    found = lookup({"FusedInferAttentionScore": rows(LATENT_ATTENTION, 1, [(LATENT, 50.0)])})
    path = tmp_path / "FusedInferAttentionScore.csv"
    profiled = read_table(path)
    # 64 blocks of 128 tokens a sequence; the launch that was profiled may have had fewer in them.
    query = {"kv": 8192.0, "q": 1.0, "b": 8.0, "h": 16.0, "c": 512.0, "r": 64.0}
    launch = Launch(LATENT_ATTENTION, query, {"x": "bfloat16"})
    assert found.time(launch).codes == ANALYTIC
    table = Table([*profiled.columns, REPLAY_DURATION], [[*row, "70.000000"] for row in profiled.rows])
    path.write_bytes(table_bytes(table))
    answer = Lookup(Database(tmp_path), work).time(launch)
    assert (answer.codes, answer.seconds) == (MEASURED, pytest.approx(70e-6))


def test_leave_one_out_by_hand(tmp_path: Path) -> None:
    # Three points of a straight ratio: the middle one is predicted exactly; the ends keep the neighbour's ratio.
    ratios = {16.0: 1.0, 64.0: 2.0, 256.0: 4.0}
    points = [(sizes(m), ratio * seconds(m) * 1e6) for m, ratio in ratios.items()]
    update_database(tmp_path, {"MatMulV2": rows(MATMUL, 1, points), "Unheard": rows(MATMUL, 1, points[:1])})
    matmul, unheard = accuracy(tmp_path, work)
    assert [row.source for row in matmul.rows] == ["extrapolated", "interpolated", "extrapolated"]
    assert [row.error for row in matmul.rows] == pytest.approx([1.0, 0.0, 0.5], abs=1e-4)
    assert [row.analytic_error for row in matmul.rows] == pytest.approx([0.0, 0.5, 0.75], abs=1e-4)
    assert (unheard.rows, unheard.unknown) == ((), 1)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: "-".join((kernel.name, *kernel.widths)))
def test_every_kernel_has_an_analytic_time(kernel: Kernel) -> None:
    """Rows of many sizes are timed at once, whatever their layout."""
    device = get_device("ATLAS_800_A3_752T_128G_DIE")
    dtypes = {"x": "bfloat16", "y": "bfloat16", "z": "bfloat16", "w": "int8", "q": "int8"}
    for layout in kernel.layouts:
        names = dict.fromkeys((*layout.written_names, *kernel.sizes))
        named = {name: np.array([96.0, 192.0, 9600.0]) for name in names}
        seconds = np.asarray(analytic_time(kernel.op_at(layout, named, dtypes), device).total_s)
        assert (np.broadcast_to(seconds, 3) > 0.0).all()
