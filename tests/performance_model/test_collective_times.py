"""Times from a directory of measured collectives: exact sizes, between and beyond them, and where it lies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.devices import get_device
from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.collective_times import (
    CollectiveTimes,
    collective_source,
    communication_directory,
)
from tensor_cast.performance_model.collectives import collective_time
from tests.collective_ops import collective

A3 = get_device("ATLAS_800_A3_752T_128G_DIE")
HEADER = "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps"
PACKAGED = collective_source(A3)


def write(directory: Path, *rows: str, name: str = "hcom_allGather_.csv", header: str = HEADER) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text("\n".join([header, *rows, ""]))
    return directory


def test_a_measured_size_has_the_measured_time(tmp_path: Path) -> None:
    # 1000 bytes of each of 4 ranks are 4000 of the whole tensor.
    times = CollectiveTimes(A3, write(tmp_path, "1000,4,DT_BF16,1,20,0", "100000,4,DT_BF16,1,40,0"))
    timing = times.time(collective("all_gather", 4000.0, 4))
    assert timing.source == "measured"
    assert timing.time.total_s == pytest.approx(20e-6)


def everywhere(groups: list[int], tier: int) -> list[str]:
    """Rows from 1 KiB to 256 MiB, each four times the last, of 10 us and 100 GB/s sent."""
    return [f"{4**p},{n},DT_BF16,{tier},{10 + 4**p * (n - 1) / 1e5},0" for n in groups for p in range(5, 15)]


def test_between_sizes_on_the_fits_curve_the_curve_is_the_answer(tmp_path: Path) -> None:
    # 4e6 bytes of each of 2 ranks take 10 us and 40 us.
    times = CollectiveTimes(A3, write(tmp_path, *everywhere([2], 2)))
    timing = times.time(collective("all_gather", 8e6, 2))
    assert timing.source == "interpolated"
    assert timing.time.total_s == pytest.approx(50e-6)
    assert timing.time.fixed_s == pytest.approx(10e-6)


def test_beyond_them_the_fit_goes_on(tmp_path: Path) -> None:
    times = CollectiveTimes(A3, write(tmp_path, *everywhere([2], 2)))
    timing = times.time(collective("all_gather", np.array([200.0, 2e9]), 2))
    assert timing.source == "extrapolated"
    assert timing.time.total_s == pytest.approx([10.001e-6, 10010e-6])


def test_a_group_that_was_not_measured_has_the_fit_alone(tmp_path: Path) -> None:
    # 1e6 bytes to each of 3 others: 10 us and 30 us.
    times = CollectiveTimes(A3, write(tmp_path, *everywhere([8, 16], 1)))
    timing = times.time(collective("all_gather", 4e6, 4))
    assert timing.source == "extrapolated"
    assert timing.time.total_s == pytest.approx(40e-6)


def test_far_below_what_was_measured_the_links_keep_the_time_in_proportion(tmp_path: Path) -> None:
    # From 1 MB up alone one could believe in 70 us of latency; the links start a message in less than 20 us.
    rows = (f"{size},16,DT_BF16,1,{70 + size * 15 / 2e5},0" for size in (10**6, 10**7, 10**8))
    times = CollectiveTimes(A3, write(tmp_path, *rows))
    op = collective("all_gather", 16e3, 16)
    time = times.time(op).time
    assert time.total_s < 1.5 * collective_time(op, A3).total_s


def test_a_sweep_is_priced_at_once_and_says_all_its_sources(tmp_path: Path) -> None:
    times = CollectiveTimes(A3, write(tmp_path, "1000,2,DT_BF16,2,20,0", "100000,2,DT_BF16,2,40,0"))
    sweep = np.array([[200.0, 2000.0], [20000.0, 200000.0]])
    timing = times.time(collective("all_gather", sweep, 2))
    assert timing.source == "measured + interpolated + extrapolated"
    assert np.shape(timing.time.total_s) == (2, 2)
    for index, size in np.ndenumerate(sweep):
        alone = times.time(collective("all_gather", float(size), 2)).time
        assert timing.time.total_s[index] == pytest.approx(alone.total_s)


@pytest.mark.parametrize(
    ("kind", "group", "stride"), [("all_reduce", 2, 1), ("all_gather", 32, 1), ("all_gather", 2, 16), ("p2p", 2, 1)]
)
def test_without_measurements_of_kind_or_tier_it_is_analytic(
    tmp_path: Path, kind: str, group: int, stride: int
) -> None:
    times = CollectiveTimes(A3, write(tmp_path, "1000,2,DT_BF16,2,20,0", "100000,2,DT_BF16,2,40,0"))
    op = collective(kind, 1e6, group, stride)  # type: ignore[arg-type]
    timing = times.time(op)
    assert timing.source == "analytic"
    assert timing.time == collective_time(op, A3)


def test_a_group_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    times = CollectiveTimes(A3, write(tmp_path, "1000,2,DT_BF16,2,20,0"))
    with pytest.raises(ModelingError, match="spans 1024 devices"):
        times.time(collective("all_gather", 1e6, 1024))


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
@given(
    group=st.sampled_from([2, 4, 8, 16]),
    sizes=st.lists(st.floats(1.0, 1e10), min_size=1, max_size=8),
)
def test_packaged_times_are_positive_and_near_the_measured_in_range(kind: str, group: int, sizes: list[float]) -> None:
    assert PACKAGED is not None
    timing = PACKAGED.time(collective(kind, np.array(sizes), group))  # type: ignore[arg-type]
    assert (np.asarray(timing.time.total_s) > 0.0).all()
    assert (np.asarray(timing.time.fixed_s) >= 0.0).all()
    assert (np.asarray(timing.time.comm_s) >= 0.0).all()
    assert set(timing.source.split(" + ")) <= {"measured", "interpolated", "extrapolated", "analytic"}


def test_the_newest_of_repeated_rows_counts_and_invalid_ones_do_not(tmp_path: Path) -> None:
    rows = ["1000,2,DT_BF16,2,20,0", "1000,2,DT_BF16,2,30,0", "1000,2,DT_BF16,2,-1,0", "50000,2,DT_BF16,2,60,0"]
    time = CollectiveTimes(A3, write(tmp_path, *rows)).time(collective("all_gather", 2000.0, 2)).time
    assert time.total_s == pytest.approx(30e-6)


def test_a_file_without_tiers_is_of_neighbouring_ranks(tmp_path: Path) -> None:
    header = "message_bytes,num_devices,Duration(us)"
    times = CollectiveTimes(A3, write(tmp_path, "1000,16,20", "50000,16,60", header=header))
    assert list(times.rows("all_gather")) == [1]


def test_a_device_without_packaged_figures_has_no_source() -> None:
    assert collective_source(get_device("TEST_DEVICE")) is None
    assert PACKAGED is not None
    assert PACKAGED.directory.name == "v8.5"


ROW = "1000,2,DT_BF16,2,20,0"


def test_a_directory_of_collectives_is_its_own(tmp_path: Path) -> None:
    assert communication_directory(write(tmp_path, ROW)) == tmp_path
    assert communication_directory(tmp_path / "none") is None


def test_a_directory_that_may_not_be_looked_into_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(ModelingError, match="cannot be read: there is no permission"):
        communication_directory(tmp_path)


def test_a_database_has_its_collectives_beside_it(tmp_path: Path) -> None:
    database = tmp_path / "vllm_ascend" / "vllm0.15.0_torch2.9.0_cann8.5.0"
    database.mkdir(parents=True)
    write(tmp_path / "hccl" / "v8.10", ROW)
    assert communication_directory(database) == tmp_path / "hccl" / "v8.10"
    matching = write(tmp_path / "hccl" / "v8.5", ROW)
    assert communication_directory(database) == matching
    inside = write(database / "hccl", ROW)
    assert communication_directory(tmp_path / "vllm_ascend" / "other") == tmp_path / "hccl" / "v8.10"
    assert communication_directory(database.parent / database.name) == matching
    assert communication_directory(inside.parent / "hccl") == inside


def test_a_reference_in_the_mapping_goes_first(tmp_path: Path) -> None:
    database = tmp_path / "device" / "vllm_ascend" / "x"
    referred = write(tmp_path / "device" / "hccl" / "v7", ROW)
    write(tmp_path / "device" / "hccl" / "v9", ROW)
    database.mkdir(parents=True)
    for reference in ("../../hccl/v7", "hccl/v7"):
        (database / "op_mapping.yaml").write_text(f"communication_data_ref: {reference}\nother: 1\n")
        found = communication_directory(database)
        assert found is not None
        assert found.resolve() == referred.resolve()


@pytest.mark.parametrize(
    ("content", "words"),
    [("communication_data_ref: hccl/v1", "names 'hccl/v1'"), ("a: [", "cannot be read")],
)
def test_a_reference_that_leads_nowhere_is_an_error(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "op_mapping.yaml").write_text(content)
    with pytest.raises(ModelingError, match=words):
        communication_directory(tmp_path)
