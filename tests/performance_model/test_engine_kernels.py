"""Expert kernels that engines bring along, in place of a profile's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensor_cast import Deployment, TextWorkload, simulate
from tensor_cast.devices import KernelCost, get_device
from tensor_cast.devices.schema import Kernels
from tensor_cast.ops import GroupedMatMul
from tensor_cast.performance_model.engine import Engine, engines, get_engine
from tensor_cast.performance_model.engine_kernels import own_rows, priced_by, with_own_kernels

H200 = get_device("H200_SXM_141GB")
FP8, FP4 = "grouped_matmul_fp8", "grouped_matmul_bfloat16_fp4"
ROWS = {FP8: {"matrix_efficiency": 0.3}, FP4: {"matrix_efficiency": 0.4, "overlap": 0.9}}
SOURCES = {f"kernels.nvidia_hopper.{key}": "measured" for key in ROWS}
ENGINE = Engine("e", 0.0, 0.0, 0.0, 0.0, 1.0, 0.5, 0.0, SOURCES, {"nvidia_hopper": ROWS})


def test_a_row_is_that_of_the_profile_but_for_the_engines_figures() -> None:
    found = with_own_kernels(H200, ENGINE)
    assert found.kernels[FP8] == replace(H200.kernels[FP8], matrix_efficiency=0.3)
    # The profile has no row of BF16 experts with FP4 weights: they cost what BF16 experts do.
    assert FP4 not in H200.kernels
    assert priced_by(FP4, H200) == "grouped_matmul"
    assert found.kernels[FP4] == replace(H200.kernels["grouped_matmul"], matrix_efficiency=0.4, overlap=0.9)
    assert found.sources[f"kernels.{FP4}.overlap"] == "e: measured"
    assert own_rows(found, ENGINE) == [FP8, FP4]
    others = {key: cost for key, cost in found.kernels.items() if key not in ROWS}
    assert others == {key: cost for key, cost in H200.kernels.items() if key not in ROWS}


def test_other_families_and_no_engine_change_nothing() -> None:
    b200 = get_device("B200_SXM")
    assert with_own_kernels(b200, ENGINE) is b200
    assert with_own_kernels(H200, None) is H200
    assert own_rows(b200, ENGINE) == []


def test_what_was_measured_on_a_device_of_ones_own_stays() -> None:
    calibrated = replace(H200.kernels[FP8], matrix_efficiency=0.55)
    mine = replace(H200, name="MINE", kernels={**H200.kernels, FP8: calibrated})
    found = with_own_kernels(mine, ENGINE)
    assert found.kernels[FP8] == calibrated
    assert own_rows(found, ENGINE) == [FP4]


@pytest.mark.parametrize("name", engines())
def test_packaged_rows_are_of_rows_that_price_kernels(name: str) -> None:
    engine = get_engine(name)
    for family, rows in engine.kernels.items():
        device = {"nvidia_hopper": H200}[family]
        assert own_rows(with_own_kernels(device, engine), engine) == list(rows)
        for key, figures in rows.items():
            assert priced_by(key, device) in Kernels.__struct_fields__
            assert set(figures) <= set(KernelCost.__dataclass_fields__)


def test_an_engine_prices_its_experts_by_its_own_kernels() -> None:
    workload = TextWorkload(num_queries=4, query_length=8192)

    def experts_s(engine: str, model: str, scheme: str) -> float:
        deployment = Deployment(engine=engine, quantize_linear=scheme)
        estimate = simulate(model, device=H200, workload=workload, deployment=deployment)
        found = [k.time.matrix_s * k.count for k in estimate.kernels if isinstance(k.op, GroupedMatMul)]
        assert found
        return float(sum(found))

    own = get_engine("vllm").kernels["nvidia_hopper"]
    for model, scheme, key in (("openai/gpt-oss-120b", "CHECKPOINT", FP4), ("Qwen/Qwen3-30B-A3B", "FP8", FP8)):
        # Bound by the matrix units, but for what each wave of tiles costs.
        rate = H200.kernels[priced_by(key, H200)].matrix_efficiency / own[key]["matrix_efficiency"]
        slower = experts_s("vllm", model, scheme) / experts_s("none", model, scheme)
        assert slower == pytest.approx(rate, rel=0.25)
        assert 1.0 < slower < rate
