"""What is known of an attention row beyond its shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensor_cast.performance_model.profiling_database.shapes import row_key
from tools.perf_data_collection.parsers.attention_runtime import runtime_of


def attention(queries: int) -> tuple[str, ...]:
    """Key cells of a paged attention row: slots 5 and 6 are the lengths, 14 the block table."""
    slots = [f"{queries},4,128", "900,128,128", "900,128,128", "", "2048,2048", f"{queries}", f"{queries}"]
    slots += [""] * 7 + [f"{queries},512"] + [""] * 16
    assert len(slots) == 31
    return (f'"{";".join(slots)}"', "DT_BF16", "ND", f'"{queries},4,128"', "DT_BF16", "ND")


def test_shapes_give_the_lengths_and_the_block_table(tmp_path: Path) -> None:
    runtime, warning = runtime_of([attention(16)], tmp_path / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv")
    assert warning is None
    assert runtime == {
        row_key(*attention(16)): {
            "Runtime source_profile": "ASCEND_PROFILER_OUTPUT",
            "Runtime actual_seq_lengths_shape": "16",
            "Runtime actual_seq_lengths_kv_shape": "16",
            "Runtime block_table_shape": "16,512",
            "Runtime metadata_completeness": "profile_shapes_only",
        }
    }


def test_the_directory_is_named_even_when_the_path_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runtime, _ = runtime_of([attention(16)], Path("kernel_details.csv"))
    assert runtime[row_key(*attention(16))]["Runtime source_profile"] == tmp_path.name


def test_short_shape_lists_leave_cells_out(tmp_path: Path) -> None:
    cells = ('"8,4,128;8,1,128;8,1,128"', "DT_BF16;DT_BF16;DT_BF16", "ND;ND;ND", '"8,4,128"', "DT_BF16", "ND")
    runtime, _ = runtime_of([cells], tmp_path / "kernel_details.csv")
    assert set(runtime[row_key(*cells)]) == {"Runtime source_profile", "Runtime metadata_completeness"}


def test_operators_beside_the_profile_are_paired_by_order(tmp_path: Path) -> None:
    (tmp_path / "operator_details.csv").write_text(
        "Name,Input Shapes,Host Self Duration(us)\n"
        'aten::add,"4;4",1\n'
        f'npu::npu_fused_infer_attention_score,"{attention(7)[0].strip(chr(34))}",1\n'
        'npu::npu_fused_infer_attention_score,"1;1;1;;;2,2;3,3",1\n'
    )
    rows = [attention(16), attention(16), attention(8)]
    runtime, warning = runtime_of(rows, tmp_path / "kernel_details.csv")
    assert warning is not None
    assert "has 2 attention operators for 3 attention kernels: only the first 2 are paired" in warning
    # The first occurrence decides, so the second operator (2,2) is not used; the third row has no operator.
    assert runtime[row_key(*attention(16))]["Runtime actual_seq_lengths_shape"] == "7"
    assert runtime[row_key(*attention(8))]["Runtime actual_seq_lengths_shape"] == "8"


def test_unreadable_operator_file_is_said_and_not_used(tmp_path: Path) -> None:
    (tmp_path / "operator_details.csv").write_text("")
    runtime, warning = runtime_of([attention(16)], tmp_path / "kernel_details.csv")
    assert warning is not None
    assert "operator_details.csv is empty" in warning
    assert runtime[row_key(*attention(16))]["Runtime actual_seq_lengths_shape"] == "16"
