"""What measured kernels say of one that is predicted badly."""

from __future__ import annotations

from benchmarks.accuracy_kernels import nvidia_groups
from benchmarks.accuracy_rows import Row
from benchmarks.kernel_notes import Work, noted


def said(*rows: tuple[float, float, Work]) -> list[str]:
    found = noted(
        [Row("a", measured_s=measured, predicted_s=predicted, fitted=False) for measured, predicted, _ in rows],
        [work for _, _, work in rows],
    )
    return [row.note for row in found]


SMALL, LARGE = Work("k", 1.0, 1.0), Work("k", 2.0, 1.0)


def test_a_kernel_is_held_to_kernels_with_no_less_and_no_more_to_do() -> None:
    assert said((9e-6, 3e-6, SMALL), (4e-6, 4e-6, LARGE)) == ["one with no less to do took 4.000 us", ""]
    assert said((9e-6, 9e-6, SMALL), (4e-6, 12e-6, LARGE)) == ["", "one with no more to do took 9.000 us"]


def test_kernels_of_other_kinds_or_with_other_work_say_nothing() -> None:
    other, fewer_bytes = Work("other", 2.0, 2.0), Work("k", 2.0, 0.5)
    assert said((9e-6, 3e-6, SMALL), (4e-6, 4e-6, other)) == ["", ""]
    assert said((9e-6, 3e-6, SMALL), (4e-6, 4e-6, fewer_bytes)) == ["", ""]
    assert said((4.9e-6, 3e-6, SMALL), (4e-6, 4e-6, LARGE)) == ["", ""]


def test_collectives_are_compared_by_what_they_send() -> None:
    def row(message_bytes: int, latency_us: float) -> dict[str, object]:
        columns = dict.fromkeys(("m", "n", "k", "batch", "seq_q", "kv_len", "num_heads", "num_kv_heads", "head_dim"))
        more = dict.fromkeys(
            ("window", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "tp", "ep", "distribution")
        )
        return {
            **columns, **more, "system": "h100_sxm", "kernel": "nccl", "op": "all_gather", "backend": "nccl",
            "kernel_source": "NCCL", "dtype": "half", "kv_dtype": None, "num_gpus": 8, "message_bytes": message_bytes,
            "latency_us": latency_us,
        }  # fmt: skip

    (found,) = [group for group in nvidia_groups([row(2**20, 900.0), row(2**24, 600.0)]) if group.rows]
    assert [found_row.note for found_row in found.rows] == ["one with no less to do took 600.0 us", ""]
