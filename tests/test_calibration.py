"""Costs are found again from rows that the analytic model itself timed, and rows that tell nothing change nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensor_cast.calibration import Calibration, _residuals, calibrate
from tensor_cast.calibration_file import check_request, device_text
from tensor_cast.calibration_rows import best_rates, read_rows
from tensor_cast.calibration_search import Bound, minimise
from tensor_cast.devices import KernelCost, get_device, load_device_file
from tensor_cast.devices.loader import PROFILES
from tensor_cast.devices.profile import CollectiveCost
from tensor_cast.errors import ModelingError
from tensor_cast.ops import CollectiveKind
from tensor_cast.performance_model.collective_measurements import whole_bytes
from tensor_cast.performance_model.collectives import collective_time
from tensor_cast.performance_model.profiling_database.communication import COMMUNICATION_FILES
from tensor_cast.performance_model.profiling_database.paths import DEFAULT_DEVICE, database_directory
from tests.calibration_databases import BF16, write_database, write_kernel
from tests.collective_ops import collective

A3 = database_directory(DEFAULT_DEVICE, "0.15.0", "2.9.0", "8.5")
BASE = get_device("TEST_DEVICE")
TILES = ((64, 64), (128, 64), (128, 128), (256, 128), (128, 256))
TRUTH = replace(
    BASE,
    name="TRUTH",
    kernels={
        **BASE.kernels,
        "matmul": KernelCost(0.8, 0.7, 1.0, 6e-6, TILES, wave_s=1e-6, step_s=2e-7, overlap=0.9),
        "matmul_int8": KernelCost(0.6, 0.9, 1.0, 11e-6, TILES, wave_s=5e-7, step_s=3e-7, overlap=0.8),
        "attention_prefill": KernelCost(0.5, 0.6, 0.9, 14e-6, ((128, 128),), overlap=0.95),
        "vector": KernelCost(1.0, 0.55, 0.5, 3e-6, start_s=3e-7),
    },
)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_database(tmp_path_factory.mktemp("known") / "database", TRUTH)


@pytest.fixture(scope="module")
def on_base(database: Path) -> Calibration:
    return calibrate(database, "FOUND", BASE)


@pytest.fixture(scope="module")
def alone(database: Path) -> Calibration:
    return calibrate(database, "ALONE", memory_bytes=2.0**36)


def test_known_costs_are_found_again(on_base: Calibration) -> None:
    found = on_base
    fits = {fit.key: fit for fit in found.classes}
    for key in ("matmul", "matmul_int8", "attention_prefill", "vector"):
        assert fits[key].kept == ""
        assert fits[key].after.median < 0.02 < fits[key].before.median
    assert found.profile.kernels["matmul"].fixed_s == pytest.approx(6e-6, rel=0.2)
    assert found.profile.kernels["vector"].memory_efficiency == pytest.approx(0.55, rel=0.05)
    # Square products read as two kernels count once: 4 widths of 12 rows.
    assert fits["matmul_int8"].fitted_rows + fits["matmul_int8"].other_rows == 48
    # No row has these: the base's costs, whose source says whose they are.
    for key in ("grouped_matmul", "attention_decode"):
        assert fits[key].kept == "no rows"
        assert found.profile.kernels[key] == BASE.kernels[key]
        assert found.profile.sources[f"kernels.{key}.fixed_s"].startswith("as TEST_DEVICE: ")
    assert found.profile.matrix_flops == BASE.matrix_flops
    assert found.profile.interconnect == BASE.interconnect


def test_rows_of_the_truth_are_priced_as_they_were_timed(database: Path) -> None:
    for parts in read_rows(database).rows.values():
        for rows in parts:
            # Durations are written in microseconds: what is left is their rounding.
            np.testing.assert_allclose(rows.log_errors(TRUTH), 0.0, atol=1e-12)
            assert 0 < rows.fitted.sum() < len(rows.fitted)


def test_without_a_base_rates_are_the_best_seen(database: Path, alone: Calibration) -> None:
    best = best_rates(rows for parts in read_rows(database).rows.values() for rows in parts)
    profile = alone.profile
    assert profile.matrix_flops["int8"] == pytest.approx(best.matrix_flops["int8"], rel=1e-3)
    # 0.8 of 100 TFLOP/s is what large products tend to.
    assert 0.6 * 80e12 < profile.matrix_flops["bfloat16"] < 80e12
    assert profile.sources["matrix_flops.bfloat16"].startswith("best rate seen in the rows of ")
    assert profile.sources["memory_bandwidth"].startswith("best rate seen in the rows of ")
    assert (profile.memory_bytes, profile.sources["memory_bytes"]) == (2.0**36, "given by the user")
    assert profile.matrix_cores == 1
    for fit in alone.classes:
        assert fit.kept == "no rows" or fit.after.median < 0.15


def test_the_file_loads_as_the_profile(
    database: Path, on_base: Calibration, alone: Calibration, tmp_path: Path
) -> None:
    for profile in (on_base.profile, alone.profile):
        path = tmp_path / "found.yaml"
        path.write_text(device_text(profile), encoding="utf-8")
        (loaded,) = load_device_file(path)
        assert replace(loaded, sources={}) == replace(profile, sources={})
        assert loaded.sources["kernels.matmul.fixed_s"] == profile.sources["kernels.matmul.fixed_s"]
        assert "fit of " in loaded.sources["kernels.matmul.fixed_s"]
        assert str(database) in loaded.sources["kernels.matmul.fixed_s"]
        assert all(loaded.sources.values())


def test_packaged_database_calibrates_the_same_way_twice() -> None:
    device = get_device(DEFAULT_DEVICE)
    found = calibrate(A3, "A3", device)
    assert {fit.key for fit in found.classes} >= {"matmul", "matmul_int8", "vector", "attention_prefill"}
    for fit in found.classes:
        if fit.key == "attention_prefill":
            assert fit.kept == "too few rows"
            assert found.profile.kernels[fit.key] == device.kernels[fit.key]
    fits = {fit.key: fit for fit in found.classes}
    assert fits["matmul"].fitted_rows + fits["matmul"].other_rows == 38
    assert calibrate(A3, "A3", device).profile == found.profile


def test_few_rows_keep_the_cost(tmp_path: Path) -> None:
    write_kernel(
        tmp_path, "MatMulV2", [([((m, 512), BF16), ((256, 512), BF16)], [((m, 256), BF16)]) for m in (1, 2, 4)]
    )
    found = calibrate(tmp_path, "FEW", BASE)
    assert found.profile.kernels == BASE.kernels
    assert found.classes[0].kept == "too few rows"


def test_databases_that_tell_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelingError, match="has no kernel CSV files"):
        calibrate(tmp_path, "NONE")
    gated = [([((8, 64), BF16)], [((8, 32), BF16)])]
    write_kernel(tmp_path, "SwiGlu", gated, duration="nan")
    with pytest.raises(ModelingError, match="has a valid duration: measure the rows"):
        calibrate(tmp_path, "NONE")
    write_kernel(tmp_path, "SwiGlu", gated)
    with pytest.raises(ModelingError, match="has no matrix product"):
        calibrate(tmp_path, "NONE")
    (tmp_path / "SwiGlu.csv").rename(tmp_path / "Unheard.csv")
    with pytest.raises(ModelingError, match="The layout of no row"):
        calibrate(tmp_path, "NONE")


def test_no_packaged_profile_is_touched(tmp_path: Path) -> None:
    with pytest.raises(ModelingError, match="among the packaged profiles"):
        check_request("MINE", PROFILES / "mine.yaml")
    with pytest.raises(ModelingError, match="is no device name"):
        check_request("my card", tmp_path / "mine.yaml")


def test_search_finds_the_least_of_a_curved_valley() -> None:
    # Rosenbrock's function has its least, 0, at (1, 1), along a valley that coordinate searches creep through.
    def loss(figures: object) -> float:
        x, y = figures  # type: ignore[misc]
        return float((1.0 - x) ** 2 + 100.0 * (y - x * x) ** 2)

    bounds = [Bound(0.01, 2.0), Bound(0.0, 2.0)]
    found, least = minimise(loss, bounds, [0.1, 2.0])
    assert found == pytest.approx([1.0, 1.0], abs=0.02)
    assert least < 1e-3
    assert minimise(loss, bounds, [0.1, 2.0]) == (found, least)


@pytest.mark.parametrize("bound", [Bound(0.01, 1.0), Bound(0.0, 4e-6), Bound(0.0, 1.0, 1.0)])
def test_places_are_figures_and_back(bound: Bound) -> None:
    for place in (0.0, 0.3, 1.0):
        assert bound.place(bound.at(place)) == pytest.approx(place, abs=1e-9)
    assert bound.place(bound.high * 2) == pytest.approx(1.0)


def test_the_factor_weighs_too_short_and_too_long_alike() -> None:
    """A tenth and ten times are both off by 10; their relative errors are 90 % and 900 %."""
    residuals = _residuals(np.log(np.array([0.1, 10.0])))
    assert residuals.factor == pytest.approx(10.0)
    assert (residuals.median, residuals.p90) == pytest.approx((4.95, 0.9 + 0.9 * 8.1))


def test_collectives_are_found_again(tmp_path: Path) -> None:
    truth = replace(TRUTH, collective=CollectiveCost(0.6, 4e-6, 1e-6))
    database = write_database(tmp_path / "database", truth)
    kinds: tuple[CollectiveKind, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    for kind in kinds:
        lines = ["message_bytes,num_devices,topology_tier,Duration(us)"]
        for ranks, tier in ((4, 1), (8, 1), (32, 0)):
            for size in 2.0 ** np.arange(10, 28, 2):
                whole = whole_bytes(kind, size, ranks)
                seconds = float(collective_time(collective(kind, whole, ranks), truth).total_s)
                lines.append(f"{size:.0f},{ranks},{tier},{seconds * 1e6:.6f}")
        (database / COMMUNICATION_FILES[kind]).write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = calibrate(database, "FOUND", BASE)
    fit = found.classes[-1]
    assert (fit.key, fit.kept) == ("collective", "")
    assert fit.fitted_rows + fit.other_rows == 4 * 3 * 9
    assert fit.after.median < 0.02 < fit.before.median
    assert found.profile.collective.link_efficiency == pytest.approx(0.6, rel=0.02)
    assert found.profile.collective.fixed_s == pytest.approx(4e-6, rel=0.1)
    assert found.profile.sources["collective.link_efficiency"].startswith("fit of ")
    # Without a base nothing joins devices, so that no group fits its links.
    assert [fit.key for fit in calibrate(database, "ALONE", memory_bytes=2.0**36).classes][-1] != "collective"
