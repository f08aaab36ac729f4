"""Kernel times on the device of round figures: 100 TFLOP/s bf16, 1 TFLOP/s vector, 1 TB/s, ten cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.devices import DeviceProfile, get_device
from tensor_cast.errors import ModelingError
from tensor_cast.ops import Attention, Elementwise, Gather, GroupedMatMul, MatMul, Tensor
from tensor_cast.performance_model.roofline import BOUNDS, compute_time, cost_key
from tensor_cast.quantity import Quantity

DEVICE = get_device("TEST_DEVICE")


def matmul(m: float, k: int, n: int, *, dtype: str = "bfloat16", batch: float = 1.0) -> MatMul:
    x, w = Tensor((batch, m, k), "bfloat16"), Tensor((batch, k, n), "bfloat16", "weight")
    out = Tensor((batch, m, n), "bfloat16")
    return MatMul(
        name="matmul", part="p", inputs=(x, w), outputs=(out,), m=m, k=k, n=n, batch=batch, matrix_dtype=dtype
    )


def bound(time: object) -> str:
    return BOUNDS[int(time.bound)]  # type: ignore[attr-defined]


def test_a_large_product_runs_at_the_matrix_rate() -> None:
    # 80 x 80 tiles of 128 x 128 on 10 cores: 640 whole waves, so 2 x 10240^3 / 100e12 = 21.47 ms.
    time = compute_time(matmul(10240, 10240, 10240), DEVICE)
    assert time.total_s == pytest.approx(2 * 10240**3 / 100e12)
    assert bound(time) == "matrix"


def test_a_partly_filled_last_wave_costs_a_whole_one() -> None:
    # 11 tiles on 10 cores are 2 waves: as long as 20 tiles.
    eleven = compute_time(matmul(128, 8192, 11 * 128), DEVICE).matrix_s
    twenty = compute_time(matmul(128, 8192, 20 * 128), DEVICE).matrix_s
    assert eleven == pytest.approx(twenty)


def test_rows_are_computed_in_whole_fractals() -> None:
    one = compute_time(matmul(1, 4096, 1280), DEVICE).matrix_s
    sixteen = compute_time(matmul(16, 4096, 1280), DEVICE).matrix_s
    assert one == pytest.approx(sixteen)
    assert sixteen == pytest.approx(2 * 16 * 4096 * 1280 / 100e12)


def test_a_small_product_waits_for_its_weight() -> None:
    time = compute_time(matmul(1, 10240, 10240), DEVICE)
    assert time.total_s == pytest.approx(2 * (10240 + 10240**2 + 10240) / 1e12)
    assert bound(time) == "memory"


def test_each_dtype_has_its_rate() -> None:
    bf16 = compute_time(matmul(10240, 10240, 10240), DEVICE).matrix_s
    int8 = compute_time(matmul(10240, 10240, 10240, dtype="int8"), DEVICE).matrix_s
    assert int8 == pytest.approx(bf16 / 2)


def test_a_missing_rate_is_refused_by_name() -> None:
    a2 = get_device("ATLAS_800_A2_376T_64G")
    with pytest.raises(ModelingError, match="ATLAS_800_A2_376T_64G has no fp8 matrix rate"):
        compute_time(matmul(16, 16, 16, dtype="fp8"), a2)


def test_vector_work_can_be_the_bound() -> None:
    x = Tensor((1e6,), "int8")
    op = Elementwise(name="op", part="p", inputs=(x,), outputs=(), flops=5e6)
    time = compute_time(op, DEVICE)
    assert time.total_s == pytest.approx(5e-6)
    assert bound(time) == "vector"


def test_the_fixed_cost_is_added_and_can_be_the_bound() -> None:
    slow_start = {name: replace(cost, fixed_s=1e-5) for name, cost in DEVICE.kernels.items()}
    device = replace(DEVICE, kernels=slow_start)
    x = Tensor((1e6,), "int8")
    time = compute_time(Elementwise(name="op", part="p", inputs=(x,), outputs=(), flops=0.0), device)
    assert time.total_s == pytest.approx(1.1e-5)
    assert bound(time) == "fixed"


def test_efficiencies_scale_their_part() -> None:
    half = {name: replace(cost, matrix_efficiency=0.5) for name, cost in DEVICE.kernels.items()}
    device = replace(DEVICE, kernels=half)
    op = matmul(10240, 10240, 10240)
    assert compute_time(op, device).matrix_s == pytest.approx(2 * compute_time(op, DEVICE).matrix_s)


def with_cost(**changes: object) -> DeviceProfile:
    return replace(DEVICE, kernels={kind: replace(cost, **changes) for kind, cost in DEVICE.kernels.items()})  # type: ignore[arg-type]


def test_waves_and_steps_cost_time_beside_their_work() -> None:
    # 20 tiles are 2 waves of 1 us; 8192 / 64 = 128 steps of 10 ns are 1.28 us.
    op = matmul(128, 8192, 20 * 128)
    slower = compute_time(op, with_cost(wave_s=1e-6, step_s=1e-8)).matrix_s
    assert slower == pytest.approx(compute_time(op, DEVICE).matrix_s + 2e-6 + 1.28e-6)


def test_the_best_tile_is_taken() -> None:
    # 11 tiles of 128 columns are two waves on ten cores, six of 256 columns are one.
    op = matmul(128, 8192, 11 * 128)
    both = compute_time(op, with_cost(tiles=((128, 128), (128, 256)))).matrix_s
    # Six tiles on ten cores split k by 10 / 6, so all cores work on 6 x 256 columns.
    assert both == pytest.approx(2 * 128 * 8192 * 6 * 256 / 100e12)


def test_what_does_not_overlap_is_added() -> None:
    # The matrix part is 10240^2 x 1280 x 2 / 100e12 = 2684 us, memory 262 us.
    op = matmul(1280, 10240, 10240)
    time = compute_time(op, with_cost(overlap=0.25))
    assert time.total_s == pytest.approx(time.matrix_s + 0.75 * time.memory_s)
    assert bound(time) == "matrix"


def test_a_vector_kernel_starts_a_core_a_row() -> None:
    # 4 rows start 4 of the 10 cores, 1000 rows all of them.
    for rows, cores in ((4.0, 4), (1000.0, 10)):
        op = Elementwise(name="op", part="p", inputs=(Tensor((rows, 8.0), "int8"),), outputs=(), flops=0.0)
        assert compute_time(op, with_cost(start_s=1e-6)).fixed_s == pytest.approx(cores * 1e-6)


def vector(*shape: float, flat: bool = False) -> Elementwise:
    x = Tensor(shape, "int8")
    return Elementwise(name="op", part="p", inputs=(x,), outputs=(x,), flat=flat)


def test_a_core_moves_no_more_than_its_share_of_the_bandwidth() -> None:
    # A core of ten has 0.1 TB/s: 4 rows of 2 kB on 4 cores take 20 ns, 25 rows are 3 waves of them.
    device = with_cost(start_s=1e-6)
    for rows, waves in ((4.0, 1), (10.0, 1), (25.0, 3)):
        assert compute_time(vector(rows, 1000.0), device).memory_s == pytest.approx(waves * 2e3 / 0.1e12)
    # Where it is not known that cores start one by one, any row has all of the bandwidth.
    assert compute_time(vector(4.0, 1000.0), DEVICE).memory_s == pytest.approx(8e3 / 1e12)


def test_an_embedding_writes_as_many_rows_as_it_has_indices() -> None:
    # 20 rows of 1 kB, read and written by ten cores; the indices are one row of them, the table has a million.
    ids, table = Tensor((20.0,), "int32", "index"), Tensor((1e6, 1000.0), "int8", "weight")
    op = Gather(name="embedding", part="p", inputs=(ids, table), outputs=(Tensor((20.0, 1000.0), "int8"),))
    assert compute_time(op, with_cost(start_s=1e-6)).memory_s == pytest.approx((2 * 20e3 + 80) / 1e12)


def test_a_flat_kernel_shares_out_bytes_instead_of_rows() -> None:
    # One row of 10 kB in and 10 kB out: 5 cores take 4 kB each, which move half of 1 TB/s.
    cost = replace(DEVICE.kernels["vector"], start_s=1e-6, share_bytes=4000.0)
    device = replace(DEVICE, kernels={**DEVICE.kernels, "vector_flat": cost})
    time = compute_time(vector(1.0, 10000.0, flat=True), device)
    assert (time.fixed_s, time.memory_s) == pytest.approx((5e-6, 20e3 / 0.5e12))
    # A large one has all cores, all of them equally busy.
    assert compute_time(vector(1.0, 1e9, flat=True), device).memory_s == pytest.approx(2e9 / 1e12)
    # Kernels that go row by row have the cost of their class.
    assert compute_time(vector(1.0, 10000.0), device).fixed_s == 0.0


def attention(batch: float, queries: float, keys: float, *, decode: bool, kv_heads: int = 8) -> Attention:
    q, cache = Tensor((batch * queries, 32 * 128), "bfloat16"), Tensor((batch, keys, 2048), "bfloat16", "cache")
    pairs = batch * (queries * (keys - queries) + queries * (queries + 1) / 2)
    return Attention(
        name="flash_attention", part="p", inputs=(q, cache), outputs=(q,), batch=batch, query_length=queries,
        kv_length=keys, heads=32, kv_heads=kv_heads, qk_dim=128, v_dim=128, pairs=pairs, cache_bytes=cache.bytes,
        decode=decode,
    )  # fmt: skip


def test_a_prefill_block_computes_half_a_tile_beyond_the_diagonal() -> None:
    # 32 heads x 1024 / 128 = 256 blocks on 10 cores; each sees 512.5 keys on average, and 63.5 more in its last tile.
    time = compute_time(attention(1, 1024, 1024, decode=False), with_cost(tiles=((128, 128),))).matrix_s
    assert time == pytest.approx(32 * 1024 * 4 * 128 * (512.5 + 63.5) / 100e12)


def test_a_decode_packs_heads_and_splits_keys() -> None:
    # One sequence has 8 KV heads of 4 query heads each, padded to 16 rows: 8 blocks on 10 cores, whose keys are split.
    time = compute_time(attention(1, 1, 4096, decode=True), with_cost(tiles=((64, 1),))).matrix_s
    assert time == pytest.approx(8 * 16 * 4 * 128 * 4096 / 100e12)


def test_grouped_products_pad_each_active_group() -> None:
    # 8 groups of one row each take 16 rows each: 2 x 8 x 16 x 4096 x 1280 FLOPs in 80 tiles, 8 waves.
    x, out = Tensor((8.0, 4096), "bfloat16"), Tensor((8.0, 1280), "bfloat16")
    weight = Tensor((8, 4096, 1280), "bfloat16", "weight")
    op = GroupedMatMul(
        name="g", part="p", inputs=(x, weight), outputs=(out,), m=8.0, k=4096, n=1280, groups=8, active_groups=8.0
    )
    assert compute_time(op, DEVICE).matrix_s == pytest.approx(2 * 8 * 16 * 4096 * 1280 / 100e12)


DEVICES = [get_device(name) for name in ("TEST_DEVICE", "ATLAS_800_A3_752T_128G_DIE", "H100_SXM_80GB")]


@given(
    st.sampled_from(DEVICES),
    st.integers(1, 20_000),
    st.integers(1, 20_000),
    st.sampled_from([64, 1000, 4096, 18432]),
    st.sampled_from([128, 1536, 5120]),
)
def test_more_rows_never_take_less_time(device: DeviceProfile, m: int, more: int, k: int, n: int) -> None:
    few = compute_time(matmul(float(m), k, n), device).total_s
    many = compute_time(matmul(float(m + more), k, n), device).total_s
    assert many >= few * (1 - 1e-12)


@given(
    st.sampled_from(DEVICES), st.booleans(), st.integers(1, 64), st.integers(1, 5000), st.integers(0, 9000), st.data()
)
def test_more_attention_never_takes_less_time(
    device: DeviceProfile, decode: bool, batch: int, queries: int, cached: int, data: st.DataObject
) -> None:
    def seconds(batch: int, queries: int, cached: int) -> float:
        return float(compute_time(attention(batch, queries, queries + cached, decode=decode), device).total_s)

    base = seconds(batch, queries, cached)
    more = data.draw(st.integers(1, 5000))
    for larger in ((batch + more, queries, cached), (batch, queries + more, cached), (batch, queries, cached + more)):
        assert seconds(*larger) >= base * (1 - 1e-12)


@given(st.sampled_from(DEVICES), st.integers(1, 300), st.integers(1, 300), st.sampled_from([64, 1000, 4096]))
def test_more_columns_or_depth_never_take_less_time(device: DeviceProfile, size: int, more: int, other: int) -> None:
    base = compute_time(matmul(33.0, size * 16, other), device).total_s
    assert compute_time(matmul(33.0, (size + more) * 16, other), device).total_s >= base * (1 - 1e-12)
    base = compute_time(matmul(33.0, other, size * 16), device).total_s
    assert compute_time(matmul(33.0, other, (size + more) * 16), device).total_s >= base * (1 - 1e-12)


def test_arrays_give_what_single_points_give() -> None:
    rows = np.array([1.0, 17.0, 129.0, 5000.0])
    together = compute_time(matmul(rows, 4096, 5120), DEVICES[1]).total_s  # type: ignore[arg-type]
    apart = [compute_time(matmul(float(m), 4096, 5120), DEVICES[1]).total_s for m in rows]
    np.testing.assert_allclose(together, apart, rtol=1e-12)


def tokens_8192(causal: bool, name: str = "flash_attention", head_dim: int = 128) -> Attention:
    """8,192 tokens of ten heads; without a mask, as a diffusion pipeline has them."""
    q = Tensor((8192.0, 10 * head_dim), "bfloat16")
    return Attention(
        name=name,
        part="p",
        inputs=(q, q, q),
        outputs=(q,),
        batch=1.0,
        query_length=8192.0,
        kv_length=8192.0,
        heads=10,
        kv_heads=10,
        qk_dim=head_dim,
        v_dim=head_dim,
        pairs=8192.0**2,
        cache_bytes=0.0,
        decode=False,
        causal=causal,
        diffusion=not causal,
    )


def test_attention_without_a_mask_may_have_a_cost_of_its_own() -> None:
    device = get_device("ATLAS_800_A2_376T_64G")
    masked, full = (compute_time(tokens_8192(causal), device).vector_s for causal in (True, False))
    causal_cost, full_cost = device.kernels["attention_prefill"], device.kernels["attention_prefill_full"]
    # Both are as slow as their softmax; starting a block of queries is a tenth of it here.
    assert masked / full == pytest.approx(full_cost.vector_efficiency / causal_cost.vector_efficiency, rel=0.03)
    # A mask costs half a tile of 128 keys beyond those that it leaves.
    tiled = with_attention(tiles=((128, 128),))
    masked, full = (compute_time(tokens_8192(causal), tiled).matrix_s for causal in (True, False))
    assert masked / full == pytest.approx((8192 + 127 / 2) / 8192)


def with_attention(**figures: Any) -> DeviceProfile:
    """The device of round figures, its prefill attention with others."""
    cost = replace(DEVICE.kernels["attention_prefill"], **figures)
    return replace(DEVICE, kernels={**DEVICE.kernels, "attention_prefill": cost})


def test_heads_are_padded_to_the_kernels_step() -> None:
    device = with_attention(head_step=128, vector_efficiency=1.0)
    # 200 channels run as 256, 128 as they are; FLOPs stay those of the model.
    sizes = (200, 256, 128)
    padded, whole, half = (compute_time(tokens_8192(False, head_dim=size), device).matrix_s for size in sizes)
    assert padded == whole == 2 * half
    assert tokens_8192(False, head_dim=200).matrix_flops == 4 * 8192**2 * 10 * 200


def test_four_bit_weights_have_a_cost_apart() -> None:
    def product(weight: str) -> MatMul:
        x, w, y = Tensor((8, 4096), "int8"), Tensor((4096, 4096), weight, "weight"), Tensor((8, 4096), "bfloat16")
        return MatMul(name="m", part="p", inputs=(x, w), outputs=(y,), matrix_dtype="int8", m=8, k=4096, n=4096)

    device = get_device("ATLAS_800_A3_752T_128G_DIE")
    assert cost_key(product("int4"), device) == "matmul_int8_int4"
    assert cost_key(product("int8"), device) == "matmul_int8"
    whole, half = (compute_time(product(dtype), device).memory_s for dtype in ("int8", "int4"))
    assert 0.5 * whole < half < whole


def test_attention_is_as_slow_as_its_softmax_where_that_is_slower() -> None:
    def busy_s(head_dim: int, vector_efficiency: float) -> Quantity:
        time = compute_time(tokens_8192(False, head_dim=head_dim), with_attention(vector_efficiency=vector_efficiency))
        assert bound(time) == ("matrix" if vector_efficiency == 1.0 else "vector")
        return time.busy_s

    # 512 matrix FLOPs a score of heads of 128 at 100 TFLOP/s, or 5 of the softmax at 1 TFLOP/s: 5.12 against 5 ps. At a
    # tenth of the vector rate the softmax takes 50 ps, whatever the head size.
    assert busy_s(128, 1.0) == pytest.approx(5.12 / 50 * busy_s(128, 0.1))
    assert busy_s(64, 0.1) == busy_s(128, 0.1)


def test_flash_attention_2_costs_more_where_the_profile_says_so() -> None:
    # A block of 128 queries does 128 x 64 x 512 FLOPs a step of 64 keys on one of the H100's 132 cores, of 989 TFLOP/s
    # together, at 0.8 of the rate: 0.700 us, and 0.807 us beside. 8,192 queries of 10 heads are 640 blocks on 132
    # cores, past 8,192 keys.
    device, a100 = get_device("H100"), get_device("A100")

    def seconds(causal: bool, name: str, where: DeviceProfile = device) -> float:
        return float(compute_time(tokens_8192(causal, name), where).matrix_s)

    step_s = 128 * 64 * 512 * 132 / (989e12 * 0.8) + 8.07e-7
    assert seconds(False, "flash_attention_2") == pytest.approx(640 / 132 * 8192 / 64 * step_s)
    assert seconds(False, "flash_attention_2") > 1.5 * seconds(False, "flash_attention")
    # Where one kernel serves, both names mean it; a mask takes the cost of masks.
    assert seconds(False, "flash_attention_2", a100) == seconds(False, "flash_attention", a100)
    assert seconds(True, "flash_attention_2") == seconds(True, "flash_attention")


def test_convolutions_have_an_efficiency_of_their_own() -> None:
    device = get_device("H100")
    product = matmul(132 * 256, 4096, 4096)
    plain, conv = (compute_time(replace(product, name=name), device).matrix_s for name in ("matmul", "conv3d"))
    # 132 x 32 tiles of 256 x 128 are 32 whole waves; a wave and a step along k cost the same beside in both.
    tile_flops = 2 * 256 * 128 * 4096
    costs = device.kernels["matmul_conv"], device.kernels["matmul"]
    slow, fast = (32 * tile_flops * 132 / (989e12 * cost.matrix_efficiency) for cost in costs)
    assert conv - plain == pytest.approx(slow - fast)
