"""Measured times of a model's ops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tensor_cast.deployment import Deployment
from tensor_cast.devices import get_device
from tensor_cast.errors import ModelingError
from tensor_cast.ops import Collective, Elementwise, Op, Tensor
from tensor_cast.performance_model.analytic import analytic_time
from tensor_cast.performance_model.empirical import EmpiricalTimer, packaged_database
from tensor_cast.performance_model.profiling_database.kernel_table import FORMS, forms
from tensor_cast.performance_model.profiling_database.kernels import Kernel
from tensor_cast.performance_model.profiling_database.kernels_vector import DYNAMIC_QUANT, SWIGLU, SWIGLU_QUANT
from tensor_cast.performance_model.profiling_database.merge import ProfiledRow
from tensor_cast.performance_model.profiling_database.store import update_database
from tensor_cast.performance_model.timing import SOURCES
from tensor_cast.simulator import simulate
from tensor_cast.unmeasured import kernels_to_measure, unmeasured_kernels
from tensor_cast.workload import TextWorkload

A3 = get_device("ATLAS_800_A3_752T_128G_DIE")
DECODE = TextWorkload(num_queries=64, query_length=1, context_length=4096, decode=True)
DEEPSEEK = Deployment(world_size=16, tp_size=8, dp_size=2, ep_size=16, quantize_linear="W8A8_DYNAMIC", compile=True)


def rows(kernel: Kernel, points: Sequence[tuple[float, float]], width: float) -> list[ProfiledRow]:
    return [
        ProfiledRow(
            ("", "", *kernel.layouts[0].render({"t": t, "d": width}, {"x": "bfloat16", "q": "int8"})),
            (f"{duration:.6f}", "", "", *[""] * 25, "1"),
        )
        for t, duration in points
    ]


def swiglu_quant(tokens: object) -> Op:
    t = np.asarray(tokens, dtype=np.float64)
    return Elementwise(
        name="swiglu_quant",
        part="mlp.activation",
        inputs=(Tensor((t, 64), "bfloat16"),),
        outputs=(Tensor((t, 32), "int8"), Tensor((t, 1.0), "float32")),
        flops=9.0 * 32 * t,
    )


def test_a_fused_op_is_the_sum_of_the_kernels_it_is_launched_as(tmp_path: Path) -> None:
    update_database(
        tmp_path, {"SwiGlu": rows(SWIGLU, [(16, 4.0)], 32), "DynamicQuant": rows(DYNAMIC_QUANT, [(16, 3.0)], 32)}
    )
    timer = EmpiricalTimer(A3, tmp_path)
    timing = timer(swiglu_quant(16))
    assert timing.time.total_s == pytest.approx(7e-6)
    assert timing.source == "measured"
    assert timing.kernel_types == ("SwiGlu", "DynamicQuant")
    # 32 tokens: both parts extrapolated; 1000: neither known, so the op itself is timed.
    sweep = timer(swiglu_quant([16, 32, 1000]))
    assert sweep.source == "measured + extrapolated + analytic"
    analytic = analytic_time(swiglu_quant([16, 32, 1000]), A3)
    assert np.asarray(sweep.time.total_s)[2] == pytest.approx(np.asarray(analytic.total_s)[2])


def test_one_fused_kernel_is_preferred_to_its_parts(tmp_path: Path) -> None:
    parts = {"SwiGlu": rows(SWIGLU, [(16, 4.0)], 32), "DynamicQuant": rows(DYNAMIC_QUANT, [(16, 3.0)], 32)}
    update_database(tmp_path, {**parts, "SwiGluQuant": rows(SWIGLU_QUANT, [(16, 5.0)], 32)})
    assert EmpiricalTimer(A3, tmp_path)(swiglu_quant(16)).time.total_s == pytest.approx(5e-6)


def test_half_a_fused_op_is_not_enough(tmp_path: Path) -> None:
    update_database(tmp_path, {"SwiGlu": rows(SWIGLU, [(16, 4.0)], 32)})
    timing = EmpiricalTimer(A3, tmp_path)(swiglu_quant(16))
    assert timing.source == "analytic"
    assert timing.time.total_s == pytest.approx(analytic_time(swiglu_quant(16), A3).total_s)


def test_packaged_collectives_by_bytes_and_group() -> None:
    def gathered(size: int) -> str:
        # Each of `size` dies gives 1024 bytes: 6.40 us among 8 (hcom_allGather_.csv).
        op = Collective(
            name="all_gather", part="", kind="all_gather", inputs=(), outputs=(), message_bytes=1024.0 * size,
            group_size=size,
        )  # fmt: skip
        timing = EmpiricalTimer(A3)(op)
        assert size != 8 or timing.time.total_s == pytest.approx(6.4e-6)
        return timing.source

    assert [gathered(8), gathered(4), gathered(2)] == ["measured", "extrapolated", "analytic"]


def test_a_sweep_is_its_points() -> None:
    queries = np.array([2.0, 32.0, 200.0, 5000.0])

    def profiled(count: object) -> object:
        workload = TextWorkload(num_queries=count, query_length=1, context_length=4096, decode=True)  # type: ignore[arg-type]
        return simulate(
            "deepseek-ai/DeepSeek-V3", device=A3, workload=workload, deployment=DEEPSEEK, performance_model="profiling"
        )

    sweep = profiled(queries)
    for index, count in enumerate(queries):
        single = profiled(float(count))
        assert np.asarray(sweep.total_time_s)[index] == pytest.approx(single.total_time_s)  # type: ignore[attr-defined]
        for source in SOURCES:
            many, one = sweep.sources_s[source], single.sources_s[source]  # type: ignore[attr-defined]
            assert np.broadcast_to(many, queries.shape)[index] == pytest.approx(float(one))


def test_every_op_of_well_known_models_has_its_forms() -> None:
    """Ops that no kernel is known for are named here, so that a new one is not overlooked."""
    unknown = set()
    for model, deployment in (
        ("deepseek-ai/DeepSeek-V3", DEEPSEEK),
        ("Qwen/Qwen3-32B", Deployment(compile=True)),
        ("Qwen/Qwen3-32B", Deployment()),
        ("Qwen/Qwen3-30B-A3B", Deployment(compile=True, quantize_linear="W8A8_STATIC")),
    ):
        for workload in (DECODE, TextWorkload(num_queries=2, query_length=512)):
            estimate = simulate(model, device=A3, workload=workload, deployment=deployment)
            unknown |= {
                kernel.op.name
                for kernel in estimate.kernels
                if not isinstance(kernel.op, Collective) and not forms(kernel.op)
            }
    assert unknown == {"rope", "split_qkv"}


def test_the_table_names_ops_that_models_emit() -> None:
    assert {"matmul", "quant_matmul", "flash_attention", "add_rms_norm", "swiglu", "embedding"} <= FORMS.keys()


def test_the_heaviest_kernels_that_are_not_measured() -> None:
    estimate = simulate(
        "deepseek-ai/DeepSeek-V3", device=A3, workload=DECODE, deployment=DEEPSEEK, performance_model="profiling"
    )
    heaviest = unmeasured_kernels(estimate.kernels)
    assert [row.seconds for row in heaviest] == sorted((row.seconds for row in heaviest), reverse=True)
    assert all(row.source != "measured" for row in heaviest)
    total = sum(float(seconds) for seconds in estimate.sources_s.values())
    unmeasured = sum(row.seconds for row in heaviest)
    assert unmeasured == pytest.approx(total - float(estimate.sources_s["measured"]))
    kernels = kernels_to_measure(heaviest)
    assert {"GroupedMatmulSwigluQuant", "FusedInferAttentionScore", "GroupedMatmul"} <= set(kernels[:3])
    assert not any(name.startswith("hcom_") for name in kernels)


def test_a_device_without_a_database_is_refused() -> None:
    with pytest.raises(ModelingError, match="No measured times of TEST_DEVICE come with the package"):
        packaged_database("TEST_DEVICE")
    with pytest.raises(ModelingError, match="but performance_model is analytic"):
        simulate("Qwen/Qwen3-32B", device=A3, workload=DECODE, database="anywhere")
    with pytest.raises(ModelingError, match="Did you mean profiling"):
        simulate("Qwen/Qwen3-32B", device=A3, workload=DECODE, performance_model="profilng")
