"""FLOPs and bytes of every op kind, worked out by hand."""

from __future__ import annotations

import pytest

from tensor_cast.ops import Attention, Collective, Elementwise, Gather, GroupedMatMul, MatMul, Overlapped, Tensor


def matmul(m: float, k: int, n: int) -> MatMul:
    x, w, out = Tensor((m, k), "bfloat16"), Tensor((k, n), "bfloat16", "weight"), Tensor((m, n), "bfloat16")
    return MatMul(name="matmul", part="p", inputs=(x, w), outputs=(out,), m=m, k=k, n=n)


def test_tensor_bytes_follow_shape_and_dtype() -> None:
    assert Tensor((4.0, 6), "bfloat16").bytes == 48.0
    assert Tensor((4, 6), "int4").bytes == 12.0


def test_tensors_are_equal_only_to_themselves() -> None:
    a, b = Tensor((2,), "int8"), Tensor((2,), "int8")
    assert a != b
    assert len({a, b, a}) == 2


def test_matmul_counts_two_flops_a_multiply_add_and_every_operand_once() -> None:
    op = matmul(8, 16, 32)
    assert op.matrix_flops == 2 * 8 * 16 * 32
    assert op.bytes == 2 * (8 * 16 + 16 * 32 + 8 * 32)
    assert op.category == "MatMul"


def test_grouped_matmul_reads_only_active_groups() -> None:
    x, out = Tensor((10.0, 4), "bfloat16"), Tensor((10.0, 6), "bfloat16")
    weight = Tensor((8, 4, 6), "bfloat16", "weight")
    op = GroupedMatMul(
        name="g", part="p", inputs=(x, weight), outputs=(out,), m=10.0, k=4, n=6, groups=8, active_groups=2.0
    )
    assert op.read_bytes == 10 * 4 * 2 + (2 / 8) * 8 * 4 * 6 * 2
    assert op.matrix_flops == 2 * 10 * 4 * 6


def test_attention_counts_pairs_of_all_heads_and_its_share_of_the_cache() -> None:
    q, out = Tensor((4.0, 8 * 16), "bfloat16"), Tensor((4.0, 8 * 16), "bfloat16")
    cache = Tensor((2.0, 100.0, 64), "bfloat16", "cache")
    op = Attention(
        name="flash_attention",
        part="p",
        inputs=(q, cache),
        outputs=(out,),
        batch=2.0,
        query_length=2.0,
        kv_length=100.0,
        heads=8,
        kv_heads=2,
        qk_dim=16,
        v_dim=16,
        pairs=400.0,
        cache_bytes=999.0,
        decode=False,
    )
    assert op.matrix_flops == 2 * 400 * 8 * (16 + 16)
    assert op.bytes == 2 * 4 * 128 * 2 + 999.0
    assert op.category == "FlashAttention"


def test_gather_reads_picked_rows_not_the_table() -> None:
    table = Tensor((1000, 8), "bfloat16", "weight")
    op = Gather(
        name="embedding",
        part="p",
        inputs=(Tensor((3.0,), "int32", "index"), table),
        outputs=(Tensor((3.0, 8), "bfloat16"),),
    )
    assert op.bytes == 3 * 4 + 2 * (3 * 8 * 2)


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("all_reduce", 2 * 7 / 8), ("all_gather", 7 / 8), ("reduce_scatter", 7 / 8), ("all_to_all", 7 / 8), ("p2p", 1.0)],
)
def test_collectives_send_what_a_ring_sends(kind: str, sent: float) -> None:
    x = Tensor((8.0,), "bfloat16")
    op = Collective(
        name=kind,
        part="p",
        kind=kind,  # type: ignore[arg-type]
        inputs=(x,),
        outputs=(x,),
        message_bytes=1000.0,
        group_size=8,
    )
    assert op.sent_bytes == 1000.0 * sent
    assert op.bytes == 0.0
    assert op.category == "Comm"


def test_ring_all_reduce_of_a_llama_70b_decode_batch() -> None:
    # 2 (n - 1) / n x 64 x 8192 x 2 B = 1.75 x 1,048,576 (architecture facts: batch 64, hidden 8192, 8 ranks).
    x = Tensor((64, 8192), "bfloat16")
    op = Collective(
        name="all_reduce", part="p", kind="all_reduce", inputs=(x,), outputs=(x,), message_bytes=x.bytes, group_size=8
    )
    assert op.sent_bytes == 1_835_008


def test_an_overlapped_kernel_adds_its_compute_parts() -> None:
    parts = (matmul(8, 16, 32), matmul(8, 32, 16))
    op = Overlapped(name="fused", part="p", inputs=(), outputs=(), compute=parts, collectives=())
    assert op.matrix_flops == sum(part.matrix_flops for part in parts)
    assert op.bytes == sum(part.bytes for part in parts)


def test_an_elementwise_op_reports_its_flops_as_vector_work() -> None:
    x = Tensor((4.0, 4), "bfloat16")
    op = Elementwise(name="add", part="p", inputs=(x, x), outputs=(x,), flops=16.0)
    assert (op.vector_flops, op.matrix_flops, op.bytes) == (16.0, 0.0, 3 * 32.0)
