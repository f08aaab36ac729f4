"""The packaged figures: exact where a source fixes them, and none without a source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tensor_cast.devices import KERNEL_CLASSES, DeviceProfile, DeviceRegistry, get_device
from tensor_cast.devices.figures import list_figures
from tensor_cast.devices.loader import PROFILES, load_file

ASCEND = {
    "ATLAS_800_A2_376T_64G",
    "ATLAS_800_A2_313T_64G",
    "ATLAS_800_A2_280T_64G",
    "ATLAS_800_A2_280T_64G_PCIE",
    "ATLAS_800_A2_280T_32G_PCIE",
    "ATLAS_800_A3_752T_128G_DIE",
    "ATLAS_800_A3_560T_128G_DIE",
    "ATLAS_800_A3_560T_128G_DIE_ROCE",
    "ATLAS_350_425T_112G",
    "ATLAS_350_425T_84G",
}
OTHERS = {
    "A100_SXM_80GB",
    "A100_SXM_40GB",
    "A100_PCIE_80GB",
    "A800_SXM_80GB",
    "H100_SXM_80GB",
    "H100_PCIE_80GB",
    "H800_SXM_80GB",
    "H20_96GB",
    "H200_SXM_141GB",
    "B200_SXM",
    "B300_SXM",
    "GB200",
    "GB300",
    "L40S",
    "L4",
    "L20_48GB",
    "RTX_4090",
    "RTX_5090",
    "RTX_PRO_6000",
    "MI300X",
    "MI325X",
    "MI355X",
    "TEST_DEVICE",
}


def test_every_device_has_a_profile() -> None:
    assert set(DeviceProfile.all_device_profiles) >= ASCEND | OTHERS


@pytest.mark.parametrize("name", list(DeviceRegistry()))
def test_every_figure_has_a_source(name: str) -> None:
    profile = DeviceProfile.all_device_profiles[name]
    figures = list_figures(profile)
    assert set(profile.kernels) >= set(KERNEL_CLASSES)
    assert {figure.path for figure in figures} <= set(profile.sources)
    assert not [figure.path for figure in figures if figure.source.startswith(("stated in", "assumed: about"))]


@pytest.mark.parametrize("name", list(DeviceRegistry()))
def test_quantised_rates_are_never_assumed_from_bfloat16(name: str) -> None:
    profile = DeviceProfile.all_device_profiles[name]
    for dtype in {"int8", "fp8", "fp4", "int4"} & set(profile.matrix_flops):
        source = profile.sources[f"matrix_flops.{dtype}"]
        assert not source.startswith("assumed") or "assumed: as the MI300X" in source


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_quick_scan_finds_what_the_parser_finds(path: Path) -> None:
    registry = DeviceRegistry()
    profiles, aliases = load_file(path)
    assert [profile.family for profile in profiles] == [path.stem] * len(profiles)
    assert [name for name in registry if registry._paths[name] == path] == [profile.name for profile in profiles]
    assert {alias: name for alias, name in registry.aliases.items() if registry._paths[name] == path} == aliases


@pytest.mark.parametrize("path", sorted(PROFILES.glob("*.yaml")), ids=lambda path: path.stem)
def test_measured_devices_are_in_their_file(path: Path) -> None:
    fitted_on = re.search(r"fitted_on: \[(.*)\]", path.read_text(encoding="utf-8"))
    if fitted_on:
        names = fitted_on[1].split(", ")
        assert set(names) <= {profile.name for profile in load_file(path)[0]}
        assert not get_device(names[0]).sources["kernels.matmul.matrix_efficiency"].startswith("assumed")


def test_costs_measured_on_another_generation_are_assumed() -> None:
    for name in ("ATLAS_800_A2_376T_64G", "ATLAS_350_425T_112G"):
        costs = {path: text for path, text in get_device(name).sources.items() if path.startswith("kernels.")}
        assert [path for path, text in costs.items() if "910C" in text and not text.startswith("assumed")] == []


def test_a3_die_as_published() -> None:
    device = get_device("ATLAS_800_A3_752T_128G_DIE")
    # 24 cores x 1.8 GHz x 8192 FLOP/cycle = 353.9 TFLOP/s; 128 GB and 3200 GB/s a package of two dies.
    assert device.matrix_flops["bfloat16"] == pytest.approx(24 * 1.8e9 * 8192, rel=1e-4)
    assert device.matrix_flops == {
        "bfloat16": 353.9e12, "float16": 376e12, "float32": 99.5e12, "int8": 752e12,
    }  # fmt: skip
    assert device.memory_bytes == 64 * 2**30
    assert device.memory_bandwidth == 1600e9
    assert (device.matrix_cores, device.vector_cores) == (24, 48)
    assert device.interconnect.shape == (48, 8, 2)
    assert [level.bandwidth for level in device.interconnect.levels] == [196e9, 196e9, 224e9]
    assert [level.latency_s for level in device.interconnect.levels] == [5.5e-6, 0.5e-6, 0.2e-6]


def test_a2_server_is_a_mesh_of_eight() -> None:
    cluster, server = get_device("ATLAS_800_A2_376T_64G").interconnect.levels
    assert (server.size, server.topology) == (8, "full_mesh")
    assert server.group_bandwidth(2) == 28e9  # One of seven links: 196 / 7.
    assert (cluster.bandwidth, cluster.latency_s) == (25e9, 1.5e-6)


@pytest.mark.parametrize(
    ("name", "bfloat16", "memory_gib", "bandwidth"),
    [
        ("ATLAS_800_A2_313T_64G", 294.9e12, 64, 1600e9),
        ("ATLAS_800_A2_280T_32G_PCIE", 245.8e12, 32, 800e9),
        ("ATLAS_800_A3_560T_128G_DIE", 245.8e12, 64, 1600e9),
        ("ATLAS_350_425T_112G", 378e12, 112, 1400e9),
        ("A100_SXM_80GB", 312e12, 80, 2039e9),
        ("H100_SXM_80GB", 989e12, 80, 3350e9),
        ("H20_96GB", 148e12, 96, 4000e9),
        ("H200_SXM_141GB", 989e12, 141, 4800e9),
        ("B200_SXM", 2250e12, 180, 7700e9),
        ("MI300X", 1307e12, 192, 5300e9),
    ],
)
def test_published_peaks(name: str, bfloat16: float, memory_gib: float, bandwidth: float) -> None:
    device = get_device(name)
    assert device.matrix_rate("bfloat16") == bfloat16
    assert device.memory_bytes == memory_gib * 2**30
    assert device.memory_bandwidth == bandwidth


def test_the_test_device_is_round() -> None:
    device = get_device("TEST_DEVICE")
    assert device.matrix_flops["bfloat16"] == 100e12
    assert device.matrix_flops["int8"] == device.matrix_flops["fp8"] == 200e12
    assert device.matrix_flops["fp4"] == 400e12
    assert device.vector_flops == {"float32": 1e12, "bfloat16": 1e12, "float16": 1e12}
    assert (device.memory_bytes, device.memory_bandwidth) == (64 * 2**30, 1e12)
    assert device.interconnect.shape == (4, 8)
    assert all(
        (cost.matrix_efficiency, cost.memory_efficiency, cost.vector_efficiency, cost.fixed_s) == (1, 1, 1, 0)
        for cost in device.kernels.values()
    )
