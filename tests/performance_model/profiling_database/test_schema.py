"""The column contract: names, order, old generations."""

from __future__ import annotations

import pytest

from tensor_cast.performance_model.profiling_database.schema import (
    BASE_COLUMNS,
    PROFILE_COUNT,
    RUNTIME_COLUMNS,
    is_communication_file,
    kernel_columns,
    kernel_type_name,
    modern_header,
    with_columns,
)


def test_columns_of_a_kernel_file() -> None:
    columns = kernel_columns("Add")
    # 8 base, 3 statistics, 25 counters, and the count behind them.
    assert len(columns) == 8 + 3 + 25 + 1
    assert columns[:12] == (
        "OP State",
        "Accelerator Core",
        "Input Shapes",
        "Input Data Types",
        "Input Formats",
        "Output Shapes",
        "Output Data Types",
        "Output Formats",
        "Profiling Average Duration(us)",
        "Profiling Median Duration(us)",
        "Profiling Std Duration(us)",
        "Profiling Average aicore_time(us)",
    )
    assert columns[35:] == ("Profiling Average cube_utilization(%)", "Profiling Duration Count")


def test_attention_adds_its_runtime_columns_before_the_count() -> None:
    columns = kernel_columns("FusedInferAttentionScore")
    assert len(columns) == 8 + 3 + 25 + 16 + 1
    assert columns[36:52] == RUNTIME_COLUMNS
    assert columns[52] == PROFILE_COUNT


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        ("Add", "Add"),
        (" Add\t", "Add"),
        ("split_qkv_rmsnorm_rope_kernel_0", "split_qkv_rmsnorm_rope_kernel"),
        ("muls_add_kernel_1", "muls_add_kernel"),
        ("other_kernel_1", "other_kernel_1"),
        ('a<b>c:d"e/f\\g|h?i*j\x01k', "a_b_c_d_e_f_g_h_i_j_k"),
        ("  ", "UNKNOWN_TYPE"),
    ],
)
def test_kernel_type_becomes_a_file_name(reported: str, name: str) -> None:
    assert kernel_type_name(reported) == name


def test_first_generation_meant_the_profile_by_average_duration() -> None:
    old = ["Input Shapes", "Average Duration(us)", "Median Duration(us)", "Average aicore_time(us)", "avg_seq_len"]
    assert modern_header(old) == [
        "Input Shapes",
        "Profiling Average Duration(us)",
        "Profiling Median Duration(us)",
        "Profiling Average aicore_time(us)",
        "Runtime avg_seq_len",
    ]


def test_average_duration_is_a_replay_where_nothing_says_otherwise() -> None:
    assert modern_header(["Input Shapes", "Average Duration(us)"]) == ["Input Shapes", "Average Duration(us)"]
    both = ["Average Duration(us)", "Profiling Average Duration(us)", "Profiling Std Duration(us)"]
    assert modern_header(both) == both


def test_old_replay_name_is_understood() -> None:
    assert modern_header(["MicroBench Duration(us)"]) == ["Average Duration(us)"]
    both = ["Average Duration(us)", "MicroBench Duration(us)"]
    assert modern_header(both) == both


def test_missing_columns_go_where_a_complete_file_has_them() -> None:
    present = ["Input Shapes", "Output Formats", "Average Duration(us)", "EP Size"]
    wanted = ["OP State", *present[:1], "Input Data Types", "Profiling Average Duration(us)", PROFILE_COUNT]
    assert with_columns(present, wanted) == [
        "OP State",
        "Input Shapes",
        "Input Data Types",
        "Output Formats",
        "Average Duration(us)",
        "Profiling Average Duration(us)",
        "EP Size",
        PROFILE_COUNT,
    ]


def test_replayed_counters_keep_standing_before_the_profiled_ones() -> None:
    present = [*BASE_COLUMNS, "MicroBench aicore_time(us)", "MicroBench aic_total_cycles"]
    wanted = ["Profiling Average aicore_time(us)", "Profiling Average aic_total_cycles"]
    assert with_columns(present, wanted)[8:] == [
        "MicroBench aicore_time(us)",
        "Profiling Average aicore_time(us)",
        "MicroBench aic_total_cycles",
        "Profiling Average aic_total_cycles",
    ]


def test_collectives_are_told_by_their_file_name() -> None:
    assert is_communication_file("hcom_allReduce_")
    assert not is_communication_file("Add")
