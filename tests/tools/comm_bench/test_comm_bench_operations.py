"""The checks' data, with the collectives worked out here in plain sums and copies instead of by a backend."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tools.perf_data_collection.comm_bench import operations  # noqa: E402
from tools.perf_data_collection.comm_bench.operations import Buffers, allocate, fill, wrong_elements  # noqa: E402

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
CPU = torch.device("cpu")


def collective(op: str, buffers: list[Buffers]) -> None:
    """What the op does to the buffers of all ranks."""
    sources = torch.stack([each.source.clone() for each in buffers])
    ranks = len(buffers)
    for rank, each in enumerate(buffers):
        if op == "all_reduce":
            each.target.copy_(sources.sum(0))
        elif op == "all_gather":
            each.target.copy_(sources.flatten())
        elif op == "reduce_scatter":
            each.target.copy_(sources.sum(0).reshape(ranks, -1)[rank])
        else:
            each.target.copy_(sources.reshape(ranks, ranks, -1)[:, rank].flatten())


def filled(op: str, ranks: int, size: int, dtype: object) -> list[Buffers]:
    buffers = [allocate(op, size, ranks, dtype, CPU) for _ in range(ranks)]
    for rank, each in enumerate(buffers):
        fill(op, each, rank, ranks)
    return buffers


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("ranks", [2, 3, 16])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int8])
def test_a_right_result_passes(op: str, ranks: int, dtype: object) -> None:
    buffers = filled(op, ranks, 960, dtype)
    collective(op, buffers)
    assert [wrong_elements(op, each, rank, ranks) for rank, each in enumerate(buffers)] == [0] * ranks


@pytest.mark.parametrize("op", OPS)
def test_a_rank_that_contributes_nothing_is_noticed_by_all(op: str) -> None:
    buffers = filled(op, 4, 960, torch.bfloat16)
    buffers[2].source.zero_()
    collective(op, buffers)
    assert all(wrong_elements(op, each, rank, 4) > 0 for rank, each in enumerate(buffers))


@pytest.mark.parametrize("op", OPS)
def test_ranks_in_each_others_place_are_noticed(op: str) -> None:
    buffers = filled(op, 4, 960, torch.bfloat16)
    collective(op, buffers)
    if op in ("all_gather", "all_reduce"):
        buffers[1].target.copy_(buffers[1].target.roll(1))
        assert wrong_elements(op, buffers[1], 1, 4) > 0
    else:
        assert wrong_elements(op, buffers[1], 2, 4) > 0


def test_a_rank_that_is_added_twice_is_noticed() -> None:
    buffers = filled("all_reduce", 4, 960, torch.bfloat16)
    twice = buffers[3].source.clone()
    collective("all_reduce", buffers)
    buffers[0].target.add_(twice)
    # 480 elements, each fourth is rank 3's.
    assert wrong_elements("all_reduce", buffers[0], 0, 4) == 120


def test_values_that_the_exact_result_holds() -> None:
    # Rank 0 of 2 has places 0, 2, 4 …; the value is 1 + (place // 2) mod 4.
    buffers = filled("all_reduce", 2, 24, torch.bfloat16)
    assert buffers[0].source.tolist() == [1, 0, 2, 0, 3, 0, 4, 0, 1, 0, 2, 0]
    assert buffers[1].source.tolist() == [0, 1, 0, 2, 0, 3, 0, 4, 0, 1, 0, 2]


def test_blocks_do_not_change_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [each.source.clone() for each in filled("reduce_scatter", 3, 960, torch.bfloat16)]
    monkeypatch.setattr(operations, "_BLOCK", 100)
    blockwise = filled("reduce_scatter", 3, 960, torch.bfloat16)
    assert all(torch.equal(one, other.source) for one, other in zip(whole, blockwise, strict=True))


@pytest.mark.parametrize(
    ("op", "source", "target"),
    [("all_reduce", 512, 512), ("all_gather", 512, 8192), ("reduce_scatter", 8192, 512), ("all_to_all", 512, 512)],
)
def test_what_a_file_means_by_1024_bytes_over_16_ranks(op: str, source: int, target: int) -> None:
    buffers = allocate(op, 1024, 16, torch.bfloat16, CPU)
    assert (buffers.source.numel(), buffers.target.numel()) == (source, target)


def test_an_exchange_has_a_piece_of_one_element_at_least() -> None:
    assert allocate("all_to_all", 1024, 768, torch.bfloat16, CPU).source.numel() == 768
