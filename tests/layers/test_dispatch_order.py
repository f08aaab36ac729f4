"""Rows that an all-to-all brought, by sender, are sorted by expert again in a prefill."""

from __future__ import annotations

from tensor_cast.deployment import Deployment
from tensor_cast.models import load_spec
from tensor_cast.models.decoder import build
from tensor_cast.ops import Op
from tensor_cast.workload import TextWorkload


def sparse_layer(*, decode: bool, **options: object) -> list[Op]:
    deployment = Deployment(world_size=8, tp_size=1, dp_size=8, ep_size=8, compile=True, **options)  # type: ignore[arg-type]
    workload = TextWorkload(num_queries=8, query_length=1 if decode else 512, context_length=64, decode=decode)
    graph = build(load_spec("Qwen/Qwen3-30B-A3B"), workload, deployment).graph
    return [node.op for _, node in graph.nodes() if node.op.part.startswith("moe.")]


def test_a_prefill_sorts_twice_and_undoes_both() -> None:
    ops = sparse_layer(decode=False)
    names = [op.name for op in ops]
    assert [name for name in names if "permute" in name or "rout" in name or name == "index_select"] == [
        "moe_token_permute",
        "moe_re_routing",
        "index_select",
        "moe_token_unpermute",
    ]
    again = ops[names.index("moe_re_routing")]
    # 512 tokens of 8 experts each, balanced: as many rows of 2048 arrive; all are read and written once.
    assert again.read_bytes == again.written_bytes == 512 * 8 * 2048 * 2


def test_decodes_and_fused_kernels_get_them_in_order() -> None:
    assert "moe_re_routing" not in [op.name for op in sparse_layer(decode=True)]
    fused = sparse_layer(decode=False, enable_dispatch_ffn_combine=True, quantize_linear="W8A8_DYNAMIC")
    assert "dispatch_ffn_combine" in [op.name for op in fused]
    assert "moe_re_routing" not in [op.name for op in fused]


def test_a_prefill_quantises_its_copies_in_a_kernel_of_its_own() -> None:
    def before_the_dispatch(*, decode: bool) -> list[str]:
        names = [op.name for op in sparse_layer(decode=decode, quantize_linear="W8A8_DYNAMIC")]
        return names[names.index("moe_gating_top_k") + 1 : names.index("all_to_all")]

    assert before_the_dispatch(decode=False) == ["moe_token_permute", "dynamic_quant"]
    assert before_the_dispatch(decode=True) == ["moe_token_permute_quant"]
