"""Fits of made-up collectives whose figures are known, and what comes of the published A3 times."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_cast.devices import get_device
from tensor_cast.ops import CollectiveKind
from tensor_cast.performance_model.collective_accuracy import CollectiveErrors, leave_one_size_out
from tensor_cast.performance_model.collective_fit import CollectiveFit, Protocol, fit_collective
from tensor_cast.performance_model.collective_measurements import (
    TierRows,
    group_tier,
    measured_collectives,
    sent_bytes,
    whole_bytes,
)
from tensor_cast.performance_model.collective_times import packaged_directory
from tensor_cast.performance_model.collectives import outermost_link
from tensor_cast.performance_model.profiling_database.communication import COMMUNICATION_FILES

A3 = get_device("ATLAS_800_A3_752T_128G_DIE")
KINDS: list[CollectiveKind] = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
SIZES = 2.0 ** np.arange(10, 30)
SHARED = Path(__file__).resolve().parents[3] / "shared" / "measured" / "comm_a3.csv"


def rows(kind: CollectiveKind, groups: list[int], sizes: np.ndarray, model: CollectiveFit) -> TierRows:
    """What ``model`` says of every group and size."""
    return TierRows(
        kind,
        np.tile(sizes, len(groups)),
        np.repeat(np.array(groups), len(sizes)),
        np.concatenate([np.asarray(model.time(sizes, group)) for group in groups]),
    )


@pytest.mark.parametrize(
    ("kind", "whole", "sent"),
    [
        # 1000 bytes over 4 ranks. all_reduce: two passes of 3/4. all_gather: 3 others' 1000. reduce_scatter: 3 parts of
        # 1000 away. all_to_all: 3/4 of the own buffer.
        ("all_reduce", 1000.0, 1500.0),
        ("all_gather", 4000.0, 3000.0),
        ("reduce_scatter", 4000.0, 3000.0),
        ("all_to_all", 1000.0, 750.0),
    ],
)
def test_what_a_file_means_by_a_size(kind: CollectiveKind, whole: float, sent: float) -> None:
    assert whole_bytes(kind, 1000.0, 4) == whole
    assert sent_bytes(kind, 1000.0, 4) == sent


@pytest.mark.parametrize(
    ("size", "stride", "tier"), [(2, 1, 2), (2, 2, 1), (8, 2, 1), (16, 1, 1), (2, 16, 0), (17, 1, 0)]
)
def test_the_tier_of_a_group(size: int, stride: int, tier: int) -> None:
    assert group_tier((48, 8, 2), size, stride) == tier


@given(st.sampled_from([1, 2, 4, 8, 16, 32]), st.sampled_from([2, 4, 8, 16]))
def test_the_tier_is_the_farthest_link(stride: int, size: int) -> None:
    from tests.collective_ops import collective

    link = outermost_link(A3, collective("all_gather", 1.0, size, stride))
    assert A3.interconnect.levels[group_tier(A3.interconnect.shape, size, stride)] == link


def test_a_protocol_is_latency_and_bandwidth() -> None:
    # 5 us, 2 us a peer, 100 GB/s: 1e6 bytes of input over 4 ranks send 3e6, 30 us, after 5 + 3 * 2 us.
    fit = CollectiveFit("all_gather", (Protocol(0.0, 5e-6, 2e-6, 1e-11),))
    assert fit.time(1e6, 4) == pytest.approx(41e-6)
    assert fit.latency(1e6, 4) == pytest.approx(11e-6)


def test_a_step_is_at_its_size_and_never_downwards() -> None:
    fit = CollectiveFit("all_to_all", (Protocol(0.0, 10e-6, 0.0, 1e-9), Protocol(1000.0, 1e-6, 0.0, 1e-10)))
    # Up to 1000 bytes of which half are sent: 10 us + 0.5 us. Then 1 us + 0.05 us, less, so the time stays.
    assert fit.time(np.array([0.0, 999.0, 1000.0, 2000.0]), 2) == pytest.approx([10e-6, 10.4995e-6, 10.5e-6, 10.5e-6])


@pytest.mark.parametrize("kind", KINDS)
def test_one_protocol_is_found_again(kind: CollectiveKind) -> None:
    truth = CollectiveFit(kind, (Protocol(0.0, 7e-6, 3e-6, 1 / 150e9),))
    fit = fit_collective(rows(kind, [2, 4, 8, 16], SIZES, truth))
    assert fit is not None
    (protocol,) = fit.protocols
    assert protocol.latency_s == pytest.approx(7e-6)
    assert protocol.peer_latency_s == pytest.approx(3e-6)
    assert protocol.seconds_per_byte == pytest.approx(1 / 150e9)


def test_a_change_of_protocol_is_found_between_the_sizes_around_it() -> None:
    # Half a megabyte: 6 us and 100 GB/s below, 20 us + 5 us a peer and 200 GB/s above, as the A3's all-gather.
    truth = CollectiveFit("all_gather", (Protocol(0.0, 6e-6, 0.0, 1e-11), Protocol(5e5, 20e-6, 5e-6, 5e-12)))
    fit = fit_collective(rows("all_gather", [8, 16], SIZES, truth))
    assert fit is not None
    small, large = fit.protocols
    assert 2**18 <= large.from_bytes <= 2**19
    assert (small.latency_s, small.seconds_per_byte) == pytest.approx((6e-6, 1e-11))
    assert (large.latency_s, large.peer_latency_s, large.seconds_per_byte) == pytest.approx((20e-6, 5e-6, 5e-12))


def test_noise_makes_no_protocols() -> None:
    truth = CollectiveFit("all_reduce", (Protocol(0.0, 7e-6, 0.0, 1 / 150e9),))
    clean = rows("all_reduce", [8], SIZES, truth)
    noise = np.exp(np.random.default_rng(0).normal(0.0, 0.03, len(clean)))
    fit = fit_collective(TierRows(clean.kind, clean.message_bytes, clean.group_size, clean.duration_s * noise))
    assert fit is not None
    assert len(fit.protocols) == 1
    assert fit.time(SIZES, 8) == pytest.approx(clean.duration_s, rel=0.05)


def links(message_bytes: np.ndarray, group_size: int) -> np.ndarray:
    """A prior of 100 GB/s and no latency, for messages of which each rank sends as much as they have."""
    return message_bytes * 1e-11


def test_far_from_all_measurements_the_prior_has_a_say() -> None:
    # 1 and 2 MB over 2 ranks in 100 and 110 us: 10 us a MB are the prior's 100 GB/s after 90 us of latency. Alone they
    # are too near each other to tell a bandwidth.
    measured = TierRows("all_reduce", np.array([1e6, 2e6]), np.array([2, 2]), np.array([100e-6, 110e-6]))
    fit = fit_collective(measured, links)
    assert fit is not None
    assert fit.time(np.array([1e6, 2e6]), 2) == pytest.approx([100e-6, 110e-6], rel=0.1)
    assert fit.time(1e9, 2) == pytest.approx(1e-2 + 90e-6, rel=0.15)
    assert fit_collective(measured) is None


def test_a_prior_of_other_links_is_not_asked() -> None:
    # 1 to 4 MB at 1 GB/s; the prior says 100 GB/s.
    measured = TierRows("all_reduce", np.array([1e6, 4e6]), np.array([2, 2]), np.array([1e-3, 4e-3]))
    fit = fit_collective(measured, links)
    assert fit is not None
    assert fit.time(np.array([1e3, 1e9]), 2) == pytest.approx([1e-6, 1.0])


def test_near_measurements_the_prior_has_none() -> None:
    # Measured from 1 KiB to 512 MiB, a factor of ten from the prior.
    truth = CollectiveFit("all_reduce", (Protocol(0.0, 7e-6, 0.0, 1e-10),))
    fit = fit_collective(rows("all_reduce", [2], SIZES, truth), links)
    assert fit is not None
    assert fit.protocols[0].seconds_per_byte == pytest.approx(1e-10)


def test_nothing_measured_gives_no_fit() -> None:
    empty = TierRows("all_reduce", np.array([]), np.array([], dtype=np.int64), np.array([]))
    assert fit_collective(empty, links) is None


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(KINDS),
    st.lists(
        st.tuples(st.sampled_from([2, 4, 8, 16]), st.integers(7, 29), st.floats(1e-6, 1.0)),
        min_size=1,
        max_size=12,
        unique_by=lambda row: row[:2],
    ),
)
def test_any_measurements_give_times_that_are_positive_and_never_fall(
    kind: CollectiveKind, measured: list[tuple[int, int, float]]
) -> None:
    groups, powers, seconds = zip(*sorted(measured), strict=True)
    fit = fit_collective(TierRows(kind, 2.0 ** np.array(powers), np.array(groups), np.array(seconds)), links)
    assert fit is not None
    for group in (2, 3, 16, 64):
        times = np.asarray(fit.time(2.0 ** np.arange(0, 36, 0.25), group))
        assert (times >= 0.0).all()
        assert (np.diff(times) >= -1e-12 * times[1:]).all()
        assert (np.asarray(fit.latency(2.0 ** np.arange(0, 36, 0.25), group)) <= times).all()


def packaged() -> list[TierRows]:
    directory = packaged_directory(A3)
    assert directory is not None
    return [tier for kind in KINDS for tier in measured_collectives(directory, kind, (48, 8, 2)).values()]


def published() -> list[TierRows]:
    """Medians inside running models, without those whose sizes are mixed."""
    names = {Path(name).stem.removeprefix("hcom_").strip("_"): kind for kind, name in COMMUNICATION_FILES.items()}
    found: dict[str, dict[tuple[int, float], list[float]]] = {}
    with SHARED.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            kind = names.get(row["op"])
            if (
                kind
                and row["message_bytes"]
                and row["statistic"] == "median"
                and row["measurement"].startswith("in-mod")
            ):
                key = (int(row["num_devices"]), float(row["message_bytes"]))
                found.setdefault(kind, {}).setdefault(key, []).append(float(row["duration_us"]) * 1e-6)
    return [
        TierRows(
            kind,  # type: ignore[arg-type]
            np.array([size for _, size in sorted(cells)]),
            np.array([group for group, _ in sorted(cells)]),
            np.array([np.median(cells[key]) for key in sorted(cells)]),
        )
        for kind, cells in found.items()
    ]


def quantiles(errors: np.ndarray) -> tuple[float, float]:
    return float(np.median(errors)), float(np.quantile(errors, 0.9))


@pytest.fixture(params=["packaged", "published"])
def errors(request: pytest.FixtureRequest) -> CollectiveErrors:
    if request.param == "published" and not SHARED.exists():
        return leave_one_size_out(packaged(), A3)
    return leave_one_size_out(packaged() if request.param == "packaged" else published(), A3)


def test_sizes_left_out_are_predicted_better_than_without_measurements(errors: CollectiveErrors) -> None:
    """18 rows. Median and 90 % of |error|: 3 to 5 % and 30 %; analytic, fitted to half of them, 7 % and 23 %."""
    assert len(errors) == 18
    median, p90 = quantiles(errors.predicted)
    analytic_median, analytic_p90 = quantiles(errors.analytic)
    assert median < 0.06 < analytic_median
    assert analytic_p90 < p90 < 0.32
    assert quantiles(errors.fitted)[0] < 0.06


def test_between_measured_sizes_the_fit_carries_the_curve_better_than_a_straight_line(errors: CollectiveErrors) -> None:
    """Eight rows have a neighbour of their group on both sides."""
    assert len(errors.interpolated) == 8
    inside = errors.predicted[errors.has_neighbours]
    assert len(inside) == 8
    assert np.median(inside) < 0.05 < 0.07 < np.median(errors.interpolated)
    assert np.quantile(inside, 0.9) < 0.25 < 0.35 < np.quantile(errors.interpolated, 0.9)


def test_the_packaged_all_gather_has_two_protocols() -> None:
    """The report behind the figures saw HCCL change its protocol between 0.5 and 0.8 MB over 8 dies."""
    (gather,) = (tier for tier in packaged() if tier.kind == "all_gather")
    fit = fit_collective(gather)
    assert fit is not None
    small, large = fit.protocols
    assert 0.28e6 < large.from_bytes < 0.8e6
    assert large.latency(16) > large.latency(8) > small.latency(8)
