"""Bands of kernels and of totals, combined by hand."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from tensor_cast import Deployment, TextWorkload, simulate
from tensor_cast.devices import get_device
from tensor_cast.devices.registry import DeviceRegistry
from tensor_cast.evaluation.chinese_warnings import translated
from tensor_cast.ops import Elementwise, GroupedMatMul, MatMul, Op, Overlapped, Tensor
from tensor_cast.performance_model.engine import engines, get_engine
from tensor_cast.performance_model.engine_kernels import with_own_kernels
from tensor_cast.performance_model.error import (
    UNKNOWN,
    Band,
    class_of,
    error_band,
    residuals,
    row_band,
    to_plain,
    total_band,
    unmeasured_band,
)
from tensor_cast.performance_model.roofline import KernelTime
from tensor_cast.performance_model.timing import MEASURED, Timing
from tensor_cast.timed_kernels import KernelEstimate, TimedKernels
from tensor_cast.unmeasured import beyond_measurements, class_words
from tests.small_models import dense, sparse

KNOWN = residuals()
A3, H100 = get_device("ATLAS_800_A3_752T_128G_DIE"), get_device("H100")
DECODE = TextWorkload(num_queries=16, query_length=1, context_length=1000, decode=True)


def product(dtype: str = "bfloat16") -> MatMul:
    x, w = Tensor((8.0, 64.0), dtype), Tensor((64.0, 64.0), dtype, "weight")
    return MatMul(name="m", part="p", inputs=(x, w), outputs=(), m=8.0, k=64.0, n=64.0, matrix_dtype=dtype)


def timing(seconds: object) -> Timing:
    return Timing(KernelTime(0.0, 0.0, seconds, 0.0, 0.0))  # type: ignore[arg-type]


def test_each_group_has_an_interval_around_its_prediction() -> None:
    families = {get_device(name).family for name in DeviceRegistry()}
    assert set(KNOWN.groups) | set(KNOWN.heirs) <= families
    for groups in KNOWN.groups.values():
        for group in groups.values():
            assert -1 < group.short.low < 0 < group.short.high
            assert -1 < group.long.low < 0 < group.long.high
            assert 0 < group.shortest_s < group.longest_s


def test_a_dtype_with_costs_of_its_own_has_errors_of_its_own() -> None:
    assert class_of(product(), H100) == "matmul"
    assert class_of(product("fp8"), H100) == "matmul_fp8"
    assert class_of(product("int8"), H100) == "matmul"  # no row of its own on this device


def test_short_and_long_kernels_have_different_bands() -> None:
    group = KNOWN.groups["nvidia_hopper"]["matmul"]
    low, high = error_band(product(), timing(np.array([KNOWN.split_s / 2, KNOWN.split_s * 2])), H100)
    np.testing.assert_allclose(low, [group.short.low, group.long.low])
    np.testing.assert_allclose(high, [group.short.high, group.long.high])


def test_a_device_without_measurements_has_a_wider_band() -> None:
    measured, _ = error_band(product(), timing(1e-3), A3)
    inherited, _ = error_band(product(), timing(1e-3), get_device("ATLAS_800_A2_376T_64G"))
    assert inherited == pytest.approx(KNOWN.widening * measured)


def test_weights_of_another_format_widen_the_band_of_their_products() -> None:
    # FP4 experts on a BF16 matrix unit have a row of their own with vLLM, and no group: BF16 experts have one.
    x, w = Tensor((8.0, 64.0), "bfloat16"), Tensor((4.0, 64.0, 64.0), "fp4", "weight")
    experts = GroupedMatMul(
        name="m", part="p", inputs=(x, w), outputs=(), m=8.0, k=64.0, n=64.0, groups=4.0, active_groups=4.0,
        matrix_dtype="bfloat16",
    )  # fmt: skip
    served = with_own_kernels(H100, get_engine("vllm"))
    assert class_of(experts, served) == "grouped_matmul_bfloat16_fp4"
    assert class_of(experts, served) not in KNOWN.groups["nvidia_hopper"]
    plain, _ = error_band(experts, timing(1e-3), H100)
    assert plain == KNOWN.groups["nvidia_hopper"]["grouped_matmul"].long.low
    assert error_band(experts, timing(1e-3), served)[0] == pytest.approx(KNOWN.widening * plain)
    h800 = with_own_kernels(get_device("H800"), get_engine("vllm"))
    assert error_band(experts, timing(1e-3), h800)[0] == pytest.approx(KNOWN.widening**2 * plain)
    # On the A3 INT8 products have a group of their own, and so have those with INT4 weights as far off.
    int4 = replace(experts, matrix_dtype="int8", inputs=(replace(x, dtype="int8"), replace(w, dtype="int4")))
    int8 = KNOWN.groups["ascend_a3"]["grouped_matmul_int8"].long
    assert class_of(int4, A3) == "grouped_matmul_int8_int4"
    assert error_band(int4, timing(1e-3), A3)[1] == pytest.approx(KNOWN.widening * int8.high)


def test_a_fused_kernel_is_of_the_class_of_its_product() -> None:
    x = Tensor((8.0, 64.0), "bfloat16")
    permute = Elementwise(name="permute", part="p", inputs=(x,), outputs=(x,))
    fused = Overlapped(name="f", part="p", inputs=(), outputs=(), compute=(permute, product("fp8")), collectives=())
    assert class_of(fused, H100) == "matmul_fp8"
    alone = replace(fused, compute=(permute,))
    assert class_of(alone, H100) == "vector"


def test_measured_points_have_the_error_of_their_source() -> None:
    four = replace(timing(np.full(4, 1e-3)), codes=np.arange(4, dtype=np.int8))
    low, high = error_band(product(), four, H100)
    group = KNOWN.groups["nvidia_hopper"]["matmul"]
    np.testing.assert_allclose(low, [-0.06, -0.15, -0.14, group.long.low])
    np.testing.assert_allclose(high, [0.06, 0.14, 0.28, group.long.high])
    # One point alone.
    assert error_band(product(), replace(timing(1e-3), codes=MEASURED), H100) == (-0.06, 0.06)


def test_nothing_is_claimed_of_what_was_never_measured() -> None:
    x = Tensor((8.0, 64.0), "bfloat16")
    norm = Elementwise(name="norm", part="p", inputs=(x,), outputs=(x,))
    assert np.isnan(error_band(norm, timing(1e-6), H100)).all()


def test_launches_of_one_kernel_are_wrong_together() -> None:
    # A quarter of the time at -10 % / +20 %, the rest at -20 % / +40 %.
    band = row_band([(Band(-0.1, 0.2), 1.0), (Band(-0.2, 0.4), 3.0)])
    assert (band.low, band.high) == (pytest.approx(-0.175), pytest.approx(0.35))


def test_errors_of_different_kernels_partly_cancel() -> None:
    # Two seconds each with half-widths of 0.2 s and 0.4 s: r (0.4)^2 + (1 - r) (0.2^2 + 0.2^2) below, twice that above.
    r = KNOWN.correlation
    band = total_band([(Band(-0.1, 0.2), 2.0), (Band(-0.1, 0.2), 2.0)])
    assert band.low == pytest.approx(-math.sqrt(r * 0.16 + (1 - r) * 0.08) / 4)
    assert band.high == pytest.approx(math.sqrt(r * 0.64 + (1 - r) * 0.32) / 4)


def run_of(*ops: Op) -> TimedKernels:
    """One launch each, in a block of its own, of a second that may be 10 % less or 20 % more."""
    second = replace(timing(1.0), error_low=-0.1, error_high=0.2)
    return TimedKernels(tuple(KernelEstimate(op, str(index), 1, 0, None, second) for index, op in enumerate(ops)))


def test_a_kernel_of_several_blocks_and_the_products_of_an_expert_layer_are_wrong_together() -> None:
    def experts(part: str) -> GroupedMatMul:
        return GroupedMatMul(
            name="grouped_matmul", part=part, inputs=(), outputs=(), m=8.0, k=64.0, n=64.0, groups=4.0,
            active_groups=4.0,
        )  # fmt: skip

    for alike in ((product(), product()), (experts("moe.gate_up"), experts("moe.down"))):
        run = run_of(*alike)
        assert (run.error_low, run.error_high) == (pytest.approx(-0.1), pytest.approx(0.2))
    r = KNOWN.correlation
    apart = run_of(product(), replace(product(), part="q"))
    assert apart.error_low == pytest.approx(-0.1 * math.sqrt(r + (1 - r) / 2))
    # Two seconds of experts and one of another product.
    mixed = run_of(experts("moe.gate_up"), product(), experts("moe.down"))
    assert mixed.error_high == pytest.approx(0.2 * math.sqrt(r * 9 + (1 - r) * (4 + 1)) / 3)


def test_launches_of_which_nothing_is_known_stand_beside_those_of_their_kernel() -> None:
    known, unknown = replace(timing(9.0), error_low=-0.1, error_high=0.1), timing(1.0)
    launches = tuple(KernelEstimate(product(), name, 1, 0, None, t) for name, t in (("a", known), ("b", unknown)))
    run = TimedKernels(launches)
    apart = total_band([(Band(-0.1, 0.1), 9.0), (UNKNOWN, 1.0)])
    assert (run.error_low, run.error_high) == (pytest.approx(apart.low), pytest.approx(apart.high))
    # At one point of a sweep alone.
    sweep = replace(
        timing(np.array([1.0, 1.0])), error_low=np.array([-0.1, np.nan]), error_high=np.array([0.1, np.nan])
    )
    swept = TimedKernels((launches[0], KernelEstimate(product(), "b", 1, 0, None, sweep)))
    assert np.asarray(swept.error_low).tolist() == pytest.approx([-0.1, float(apart.low)])


def test_a_step_of_an_engine_adds_up_as_its_kernels_do() -> None:
    workload = TextWorkload(num_queries=1, query_length=4096)
    served = simulate(sparse(), device="H100", workload=workload, deployment=Deployment(engine="trtllm"))
    together = total_band([*served.error_parts, (unmeasured_band(), served.idle_s)])
    assert served.error_high == together.high
    each = total_band([*((k.band, k.total_s) for k in served.kernels), (unmeasured_band(), served.idle_s)])
    assert served.error_high > each.high


def test_a_total_is_unknown_when_most_of_it_is() -> None:
    assert math.isnan(float(total_band([(UNKNOWN, 3.0), (Band(-0.1, 0.1), 2.0)]).low))
    some = total_band([(UNKNOWN, 1.0), (Band(-0.1, 0.1), 9.0)])
    assert -0.15 < float(some.low) < -0.1 + 0.02


def test_a_step_carries_its_error_to_rows_total_and_json() -> None:
    estimate = simulate(dense(), device=A3, workload=DECODE)
    assert -1 < estimate.error_low < 0 < estimate.error_high
    product_row = next(op for op in estimate.ops if op.name == "matmul")
    assert -1 < product_row.error_low < 0 < product_row.error_high
    document = estimate.to_dict()
    assert document["error_low"] == estimate.error_low
    assert {"error_low", "error_high"} <= set(document["ops"][0])


def test_what_a_request_costs_its_engine_widens_a_first_token() -> None:
    prefill = TextWorkload(num_queries=1, query_length=100)
    plain, served = (
        simulate(dense(), device=H100, workload=prefill, deployment=Deployment(engine=name))
        for name in ("none", "vllm")
    )
    # Nearly all of the time of this tiny model is the engine's: half as long to twice as long.
    assert served.error_high > plain.error_high
    assert float(served.error_high) == pytest.approx(KNOWN.unmeasured.high, abs=0.1)


def test_a_sweep_has_a_band_a_point() -> None:
    many = TextWorkload(num_queries=np.array([1.0, 64.0]), query_length=1, context_length=100, decode=True)
    sweep = simulate(dense(), device=A3, workload=many)
    for index, queries in enumerate((1, 64)):
        one = TextWorkload(num_queries=queries, query_length=1, context_length=100, decode=True)
        single = simulate(dense(), device=A3, workload=one)
        assert np.asarray(sweep.error_high)[index] == pytest.approx(float(single.error_high))


def test_the_device_of_round_figures_is_not_warned_about() -> None:
    estimate = simulate(dense(), device="TEST_DEVICE", workload=DECODE)
    assert beyond_measurements(estimate.kernels, estimate.device) == []
    assert math.isnan(float(estimate.error_low))


def test_what_leaves_the_measurements_is_said_with_the_nearest() -> None:
    a2 = simulate(dense(), device="ATLAS_800_A2_376T_64G", workload=DECODE)
    assert any("rest on measurements of ATLAS_800_A3_752T_128G_DIE" in text for text in a2.warnings)
    huge = TextWorkload(num_queries=4096, query_length=4096)
    large = simulate(dense(), device=A3, workload=huge, deployment=Deployment())
    longest = r"One of the matrix products takes [\d.]+ m?s, longer than all that were measured \(at most [\d.]+ ms\)\."
    assert any(re.fullmatch(longest, text) for text in large.warnings)
    assert any(text.startswith("No measurement near this: prefill attention kernels") for text in large.warnings)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("matmul", "matrix products"),
        ("matmul_fp8", "FP8 matrix products"),
        ("matmul_conv", "convolutions"),
        ("grouped_matmul_int8_int4", "INT8 matrix products of experts with INT4 weights"),
        ("attention_prefill_state", "prefill attention kernels with a recurrent state"),
        ("attention_prefill_fa2", "FlashAttention-2's prefill attention kernels"),
        ("vector_flat", "elementwise vector kernels"),
    ],
)
def test_a_warning_names_kernels_in_words(name: str, words: str) -> None:
    assert class_words(name) == words


def test_every_class_of_the_packaged_devices_has_words_in_both_languages() -> None:
    classes = {name for device in DeviceRegistry().values() for name in (*device.kernels, "collective")}
    brought = {row for engine in engines().values() for rows in engine.kernels.values() for row in rows}
    assert len(classes) > 10
    assert brought - classes
    classes |= brought
    for name in classes:
        english = class_words(name)
        assert "_" not in english
        chinese = translated(f"No measurement near this: {english} on H100.")
        assert not re.search("kernels|products|attention|weights", chinese)


def test_the_packaged_residuals_load_as_they_are_written() -> None:
    import msgspec

    assert msgspec.convert(to_plain(KNOWN), type(KNOWN)) == KNOWN
