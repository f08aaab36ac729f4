from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from tools.perf_data_collection.comm_bench.generate_comm_microbench import build_parser, main
from tools.perf_data_collection.comm_bench.plan import BYTES_GRID, Case, Settings, named_ranks, plan

SETTINGS = Settings(
    ops=("all_reduce",),
    num_devices=(16,),
    topology_tier=None,
    grid_shape=(48, 8, 2),
    dtype="torch.bfloat16",
    bytes_grid=(1024,),
    backend="gloo",
    iterations=10,
    warmup=20,
    timeout_s=300,
)


def test_the_default_grid_is_20_powers_of_two_from_1_kib_to_512_mib() -> None:
    assert len(BYTES_GRID) == 20
    assert (BYTES_GRID[0], BYTES_GRID[1], BYTES_GRID[-1]) == (1024, 2048, 512 * 1024 * 1024)


def test_defaults() -> None:
    arguments = build_parser().parse_args([])
    assert arguments == argparse.Namespace(
        database_path=None,
        ops=["all_reduce", "all_gather", "reduce_scatter", "all_to_all"],
        num_devices=[16],
        topology_tier=None,
        grid_shape=[48, 8, 2],
        dtype="torch.bfloat16",
        bytes_grid=None,
        output_csv=None,
        backend=None,
        iterations=10,
        warmup=20,
        resume=False,
        timeout_s=300,
    )


@pytest.mark.parametrize(("devices", "tier"), [(1, 2), (2, 2), (4, 1), (8, 1), (16, 1), (17, 0), (32, 0), (768, 0)])
def test_the_tier_follows_from_the_grid(devices: int, tier: int) -> None:
    # 48 x 8 x 2: ranks 0 and 1 are dies of a package, 0 to 15 are a pod.
    cases, warnings = plan(replace(SETTINGS, num_devices=(devices,)), 768)
    assert (cases, warnings) == ([Case("all_reduce", 1024, devices, tier)], [])


def test_cases_come_by_group_then_op_then_size() -> None:
    settings = replace(SETTINGS, num_devices=(4, 2), ops=("all_gather", "all_reduce"), bytes_grid=(2, 4))
    cases, _ = plan(settings, 4)
    assert [(case.num_devices, case.op, case.message_bytes) for case in cases] == [
        (devices, op, size) for devices in (4, 2) for op in ("all_gather", "all_reduce") for size in (2, 4)
    ]


def test_groups_that_cannot_be_formed_are_left_out_aloud() -> None:
    cases, warnings = plan(replace(SETTINGS, num_devices=(32, 16, 1024)), 16)
    assert [case.num_devices for case in cases] == [16]
    assert warnings == [
        "--num-devices 32 is left out: only 16 processes run.",
        "--num-devices 1024 is left out: only 16 processes run.",
    ]


def test_a_group_beyond_the_grid_is_left_out() -> None:
    _, warnings = plan(replace(SETTINGS, grid_shape=(2, 2), num_devices=(8,)), 16)
    assert warnings == ["--num-devices 8 is left out: the grid 2 x 2 has 4 devices."]


def test_an_explicit_tier_limits_the_group_to_a_block_of_it() -> None:
    # A block of tier 1 of 48 x 8 x 2 is a pod of 16.
    cases, warnings = plan(replace(SETTINGS, topology_tier=1, num_devices=(16, 32)), 64)
    assert cases == [Case("all_reduce", 1024, 16, 1)]
    assert warnings == ["--num-devices 32 is left out: a block of tier 1 has 16 devices."]


def test_a_tier_that_the_ranks_do_not_span_is_recorded_and_said() -> None:
    cases, warnings = plan(replace(SETTINGS, topology_tier=1, num_devices=(2,)), 16)
    assert cases == [Case("all_reduce", 1024, 2, 1)]
    assert "only span tier 2" in warnings[0]


@pytest.mark.parametrize(
    ("ranks", "words"), [([3], "rank 3"), ([2, 0, 3], "ranks 0, 2 to 3"), (range(16, 32), "ranks 16 to 31")]
)
def test_ranks_in_words(ranks: list[int], words: str) -> None:
    assert named_ranks(ranks) == words


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--output-csv", "x.csv"], 1, "4 collectives are asked for"),
        (["--topology-tier", "3"], 2, "not a level of --grid-shape 48 8 2: 0 to 2"),
        (["--bytes-grid", "3", "4"], 2, "--bytes-grid 3: give multiples of 2"),
        (["--bytes-grid", "2", "--dtype", "torch.float32"], 2, "give multiples of 4"),
    ],
)
def test_requests_that_make_no_sense(
    arguments: list[str], status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == status
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many"])
def test_a_group_size_is_a_whole_number(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--num-devices", value]) == 2
    assert f"--num-devices must be a whole number of at least 1, got '{value}'" in capsys.readouterr().err


def test_without_torchrun_the_message_shows_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch.distributed")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert main(["--backend", "gloo"]) == 2
    assert "Start this with torchrun" in capsys.readouterr().err
