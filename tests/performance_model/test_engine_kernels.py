"""Expert kernels that engines bring along, in place of a profile's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tensor_cast import Deployment, TextWorkload, simulate
from tensor_cast.devices import DeviceProfile, KernelCost, get_device, load_device_file
from tensor_cast.devices.schema import Kernels
from tensor_cast.ops import GroupedMatMul
from tensor_cast.performance_model.engine import Engine, engines, get_engine
from tensor_cast.performance_model.engine_kernels import own_rows, priced_by, with_own_kernels
from tensor_cast.performance_model.timing import MEASURED
from tensor_cast.unmeasured import used_rows
from tests.small_models import sparse

H200 = get_device("H200_SXM_141GB")
FP8, FP4 = "grouped_matmul_fp8", "grouped_matmul_bfloat16_fp4"
ROWS = {FP8: {"matrix_efficiency": 0.3}, FP4: {"matrix_efficiency": 0.4, "overlap": 0.9}}
SOURCES = {f"kernels.nvidia_hopper.{key}": "measured" for key in ROWS}
ENGINE = Engine("e", 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.5, 0.0, SOURCES, {"nvidia_hopper": ROWS})


def test_a_row_is_that_of_the_profile_but_for_the_engines_figures() -> None:
    found = with_own_kernels(H200, ENGINE)
    assert found.kernels[FP8] == replace(H200.kernels[FP8], matrix_efficiency=0.3)
    # The profile has no row of BF16 experts with FP4 weights: they cost what BF16 experts do.
    assert FP4 not in H200.kernels
    assert priced_by(FP4, H200) == "grouped_matmul"
    assert found.kernels[FP4] == replace(H200.kernels["grouped_matmul"], matrix_efficiency=0.4, overlap=0.9)
    assert found.sources[f"kernels.{FP4}.overlap"] == "e: measured"
    assert found.sources[f"kernels.{FP4}.fixed_s"] == H200.sources["kernels.grouped_matmul.fixed_s"]
    assert own_rows(H200, ENGINE) == ROWS
    others = {key: cost for key, cost in found.kernels.items() if key not in ROWS}
    assert others == {key: cost for key, cost in H200.kernels.items() if key not in ROWS}


def test_other_families_and_no_engine_change_nothing() -> None:
    b200 = get_device("B200_SXM")
    assert with_own_kernels(b200, ENGINE) is b200
    assert with_own_kernels(H200, None) is H200
    assert own_rows(b200, ENGINE) == own_rows(H200, None) == {}


def test_an_estimate_has_the_device_that_was_asked_for() -> None:
    workload = TextWorkload(num_queries=4, query_length=512)
    served = simulate(sparse(), device=H200, workload=workload, deployment=Deployment(engine="vllm"))
    assert served.device is H200


def device_file(path: Path, kernels: str = "", sources: str = "") -> DeviceProfile:
    text = "name: MINE\nfamily: nvidia_hopper\nmatrix_flops: {bfloat16: 989e12, fp8: 1978e12}\n"
    target = path / "mine.yaml"
    target.write_text(f"{text}memory_bytes: 1e11\nmemory_bandwidth: 4e12\n{kernels}{sources}", encoding="utf-8")
    return load_device_file(target)[0]


@pytest.mark.parametrize(
    ("stated", "matrix", "memory"),
    [
        ("", 0.3, H200.kernels[FP8].memory_efficiency),
        (f"{FP8}: {{memory_efficiency: 0.5}}", 0.3, 0.5),
        (f"{FP8}: {{matrix_efficiency: 0.6}}", 0.6, H200.kernels[FP8].memory_efficiency),
        # The family's own figure, stated: it was chosen all the same.
        (f"{FP8}: {{matrix_efficiency: {H200.kernels[FP8].matrix_efficiency}}}",
         H200.kernels[FP8].matrix_efficiency, H200.kernels[FP8].memory_efficiency),
    ],
)  # fmt: skip
def test_a_figure_of_ones_own_stays(tmp_path: Path, stated: str, matrix: float, memory: float) -> None:
    mine = device_file(tmp_path, f"kernels:\n  {stated}\n" if stated else "")
    found = with_own_kernels(mine, ENGINE)
    assert (found.kernels[FP8].matrix_efficiency, found.kernels[FP8].memory_efficiency) == (matrix, memory)
    assert found.sources[f"kernels.{FP8}.matrix_efficiency"].startswith("assumed: e: ") == (matrix == 0.3)


def test_a_row_that_engines_alone_have_may_be_stated(tmp_path: Path) -> None:
    mine = device_file(tmp_path, f"kernels:\n  {FP4}: {{matrix_efficiency: 0.2}}\n")
    assert own_rows(mine, ENGINE) == {FP8: {"matrix_efficiency": 0.3}, FP4: {"overlap": 0.9}}


def test_a_calibrated_figure_stays_and_one_handed_down_does_not() -> None:
    path = f"kernels.{FP8}.matrix_efficiency"
    handed_down = replace(H200, name="MINE", sources={**H200.sources, path: f"as H200: {H200.sources[path]}"})
    assert with_own_kernels(handed_down, ENGINE).kernels[FP8].matrix_efficiency == 0.3
    calibrated = replace(H200.kernels[FP8], matrix_efficiency=0.55)
    mine = replace(H200, name="MINE", kernels={**H200.kernels, FP8: calibrated})
    assert with_own_kernels(mine, ENGINE).kernels[FP8] == calibrated
    assert list(own_rows(mine, ENGINE)) == [FP4]


def test_slow_matrix_units_keep_up_with_any_kernel() -> None:
    h20 = get_device("H20_96GB")
    served = with_own_kernels(h20, ENGINE)
    assert served.kernels[FP8] == h20.kernels[FP8]
    assert own_rows(h20, ENGINE) == {FP4: {"overlap": 0.9}}


def warnings(engine: str, device: str) -> str:
    workload = TextWorkload(num_queries=4, query_length=4096)
    deployment = Deployment(engine=engine, quantize_linear="FP8")
    return " ".join(simulate(sparse(), device=device, workload=workload, deployment=deployment).warnings)


def test_kernels_that_were_seen_with_another_engine_or_device_are_named() -> None:
    words = "from runs of other engines or devices: FP8 matrix products of experts."
    assert f"Assumed of sglang on H200_SXM_141GB, {words}" in warnings("sglang", "H200")
    assert f"Assumed of vllm on H800_SXM_80GB, {words}" in warnings("vllm", "H800")
    assert "Assumed of" not in warnings("vllm", "H200")
    assert "Assumed of" not in warnings("trtllm", "H200")


@pytest.mark.parametrize("name", engines())
def test_packaged_rows_are_of_rows_that_price_kernels(name: str) -> None:
    engine = get_engine(name)
    for family, rows in engine.kernels.items():
        device = {"nvidia_hopper": H200}[family]
        changed = own_rows(device, engine)
        assert list(changed) == list(rows)
        for key, figures in rows.items():
            assert priced_by(key, device) in Kernels.__struct_fields__
            assert set(figures) <= set(KernelCost.__dataclass_fields__)
            assert changed[key].items() <= figures.items()


def test_a_measured_time_owes_the_engine_nothing() -> None:
    workload = TextWorkload(num_queries=4, query_length=4096)
    deployment = Deployment(engine="vllm", quantize_linear="FP8")
    kernels = simulate(sparse(), device=H200, workload=workload, deployment=deployment).kernels
    vllm = get_engine("vllm")
    assert list(used_rows(kernels, H200, vllm)) == [FP8]
    measured = [replace(kernel, timing=replace(kernel.timing, codes=MEASURED)) for kernel in kernels]
    assert used_rows(measured, H200, vllm) == {}


@pytest.mark.parametrize("guide", ["text-generate.md", "text-generate.zh.md"])
def test_the_guides_say_what_the_kernels_reach(guide: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / guide).read_text(encoding="utf-8")
    engines_own = get_engine("vllm").kernels["nvidia_hopper"][FP8]["matrix_efficiency"]
    for share in (engines_own, H200.kernels["matmul_fp8"].matrix_efficiency):
        assert f"{share * 100:.0f} %" in text


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
