"""Which request a published generation is, and which rows stand apart."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from benchmarks.measured_kernels import is_fitted
from benchmarks.video_accuracy import compare, page
from benchmarks.video_rows import APART, DEVICES, MODELS, Request, priced, requests
from tensor_cast.devices import get_device
from tensor_cast.models.catalog import catalog_ids
from tensor_cast.models.diffusion.wan import WanDenoiser

COLUMNS = ("device", "num_devices", "model", "parallelism", "framework", "metric", "value")
STEP = {
    "name": "wan",
    "kind": "video",
    "model": "Wan-AI/Wan2.2-T2V-A14B-Diffusers",
    "measured_s": 7.698,
    "device": "ATLAS_800_A2_376T_64G",
    "seq_len": 128,
    "batch_size": 1,
    "height": 720,
    "width": 1280,
    "frame_num": 81,
    "sample_step": 1,
    "dtype": "float16",
    "use_cfg": True,
    "world_size": 8,
    "ulysses_size": 4,
    "cfg_parallel": True,
    "quantize_linear_action": "DISABLED",
}


def rows(directory: Path, *records: tuple[object, ...]) -> list[Request]:
    with (directory / "e2e.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerows((COLUMNS, *records))
    (directory / "ascend_steps.json").write_text(json.dumps({"cases": [STEP, {"kind": "text"}]}), encoding="utf-8")
    return list(requests(directory))


WAN22 = ("NVIDIA H20", 4, "Wan2.2-I2V-A14B 480P", "FSDP + Ulysses", "Wan2.2 repo", "E2E time", 305.4)
WAN21 = ("NVIDIA H20", 8, "Wan2.1-T2V-14B 720P", "FSDP + xDiT USP (Ulysses/Ring)", "Wan2.1 repo", "E2E time", 980.5)
FLUX = ("NVIDIA H100", 2, "FLUX.1-dev 1024px 28 steps", "Ring2", "xDiT, torch.compile", "E2E time", 2.6)
CACHED = (
    "Atlas 800I A2 (64 GB)",
    1,
    "Wan2.1-T2V-14B 832x480",
    "1",
    "MindIE-SD, attention cache ratio 1.6",
    "E2E",
    631.7,
)
LANGUAGE = ("NVIDIA H20", 1, "Qwen3-8B", "1", "SGLang", "TPOT", 10.0)


def test_wans_own_code(tmp_path: Path) -> None:
    newer, older, step = rows(tmp_path, WAN22, WAN21, LANGUAGE)
    assert (newer.profile, newer.stages, newer.apart) == ("H20_96GB", ("text", "vae"), "")
    assert (newer.workload.sample_step, newer.workload.use_cfg, newer.workload.seq_len) == (40, True, 512)
    deployment = newer.deployment
    assert (deployment.ulysses_size, deployment.compile, deployment.vae_dtype) == (4, False, "float32")
    assert (deployment.attention_backend, older.deployment.attention_backend) == (
        "flash_attention",
        "flash_attention_2",
    )
    structure = newer.structure()
    assert not isinstance(structure, str)
    for _, denoiser in structure.denoisers:
        assert isinstance(denoiser, WanDenoiser)
        assert (denoiser.token_timesteps, denoiser.replicated_time) == (True, "float32")
    assert older.structure() == "Wan-AI/Wan2.1-T2V-14B-Diffusers"
    assert (step.ranks, step.metric, step.stages) == (8, "DiT time", ("denoise",))
    assert step.deployment.cfg_parallel


def test_compiled_images_and_rows_apart(tmp_path: Path) -> None:
    compiled, cached, _ = rows(tmp_path, FLUX, CACHED)
    assert compiled.deployment.compile
    assert (compiled.workload.use_cfg, compiled.workload.sample_step) == (False, 28)
    assert "reuses attention between steps" in cached.apart
    unnamed, split, _ = rows(
        tmp_path,
        ("Ascend NPU (model not stated)", 1, "Wan2.1-T2V-1.3B", "Ulysses1 Ring1", "SGLang", "denoise time", 239.3),
        ("Atlas 800I A2 (64 GB)", 4, "Wan2.1-T2V-14B 832x480", "CFG2 TP2", "MindIE-SD, baseline", "E2E time", 175.8),
    )
    assert (unnamed.apart, split.apart) == (
        "The device is not named.",
        "Tensor parallelism of a denoiser is not modelled.",
    )
    assert all(why.endswith(".") and why.count(". ") == 0 for _, _, why in APART)


def test_the_page_separates_fitted_held_out_and_apart(tmp_path: Path) -> None:
    found = rows(tmp_path, WAN22, FLUX, CACHED)
    compared = compare(found)
    assert [row.request.measured_s for row in compared] == [305.4, 2.6, 7.698]
    assert [row.fitted for row in compared] == [is_fitted(row.request.key) for row in compared]
    for row in compared:
        assert row.error == pytest.approx(row.predicted_s / row.request.measured_s - 1.0)
    text = page(found)
    counts = [sum(row.fitted is fitted for row in compared) for fitted in (False, True)]
    assert f"| held out | {counts[0]} |" in text
    assert f"| fitted | {counts[1]} |" in text
    assert "| all | 3 |" in text
    assert text.index("## Not compared") < text.index("attention cache ratio 1.6")


def test_an_estimate_of_the_vae_alone(tmp_path: Path) -> None:
    name = "HunyuanVideo 720x1280x129f, 50 steps"
    decode, _ = rows(tmp_path, ("Atlas A3", 1, name, "1", "cann-recipes; fused ops", "VAE decode time", 39.66))
    seconds, estimate = priced(decode, str(decode.profile))
    assert seconds == float(estimate.stage_times_s["vae"]) < 0.1 * float(estimate.total_time_s)


def test_every_profile_and_model_exists() -> None:
    assert [get_device(profile).name for profile in DEVICES.values()] == list(DEVICES.values())
    assert {model for model, _ in MODELS.values()} <= set(catalog_ids())
