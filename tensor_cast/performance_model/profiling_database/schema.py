"""Columns of a database file and the header generations that are understood when reading.

A database directory holds one ``{kernel type}.csv`` a kernel type. The type is not a column, the file name carries it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

STATE_COLUMN = "OP State"
CORE_COLUMN = "Accelerator Core"
KEY_COLUMNS = (
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
    "Output Shapes",
    "Output Data Types",
    "Output Formats",
)
"""What tells two rows of a file apart."""

BASE_COLUMNS = (STATE_COLUMN, CORE_COLUMN, *KEY_COLUMNS)

COUNTERS = (
    "aicore_time(us)",
    "aic_total_cycles",
    "aic_mac_time(us)",
    "aic_mac_ratio",
    "aic_scalar_time(us)",
    "aic_scalar_ratio",
    "aic_mte1_time(us)",
    "aic_mte1_ratio",
    "aic_mte2_time(us)",
    "aic_mte2_ratio",
    "aic_fixpipe_time(us)",
    "aic_fixpipe_ratio",
    "aic_icache_miss_rate",
    "aiv_time(us)",
    "aiv_total_cycles",
    "aiv_vec_time(us)",
    "aiv_vec_ratio",
    "aiv_scalar_time(us)",
    "aiv_scalar_ratio",
    "aiv_mte2_time(us)",
    "aiv_mte2_ratio",
    "aiv_mte3_time(us)",
    "aiv_mte3_ratio",
    "aiv_icache_miss_rate",
    "cube_utilization(%)",
)
"""The profiler's PipeUtilization counters, in the order of its columns."""

REPLAY_DURATION = "Average Duration(us)"
"""What a replay measured; older files call it ``MicroBench Duration(us)``."""
PROFILE_DURATION = "Profiling Average Duration(us)"
PROFILE_MEDIAN = "Profiling Median Duration(us)"
PROFILE_STD = "Profiling Std Duration(us)"
PROFILE_COUNT = "Profiling Duration Count"
"""Durations behind the three statistics. An addition to the published columns, kept last so that these keep their
places; its name has "Duration" in it because shape-grid tools zero the columns so named in rows they generate."""

PROFILE_COUNTERS = tuple(f"Profiling Average {counter}" for counter in COUNTERS)
MICROBENCH_COUNTERS = tuple(f"MicroBench {counter}" for counter in COUNTERS)
PROFILE_COLUMNS = (PROFILE_DURATION, PROFILE_MEDIAN, PROFILE_STD, *PROFILE_COUNTERS, PROFILE_COUNT)
"""The columns that parsing a profile writes; all others of an existing row are left as they are."""

FUSED_ATTENTION = "FusedInferAttentionScore"
RUNTIME_COLUMNS = (
    "Runtime source_profile",
    "Runtime actual_seq_lengths_shape",
    "Runtime actual_seq_lengths_values",
    "Runtime actual_seq_lengths_kv_shape",
    "Runtime actual_seq_lengths_kv_values",
    "Runtime avg_seq_len",
    "Runtime block_table_shape",
    "Runtime block_table_valid_blocks",
    "Runtime num_heads",
    "Runtime num_key_value_heads",
    "Runtime sparse_mode",
    "Runtime input_layout",
    "Runtime block_size",
    "Runtime attn_state",
    "Runtime kv_cache_mode",
    "Runtime metadata_completeness",
)
"""What FusedInferAttentionScore adds: lengths and layout that its shapes do not tell."""
RUNTIME_COMPLETENESS = "Runtime metadata_completeness"
RUNTIME_LENGTHS = ("Runtime actual_seq_lengths_values", "Runtime actual_seq_lengths_kv_values", "Runtime avg_seq_len")
"""What tells attention rows of equal shapes apart: shapes give the pool of the KV cache, not the lengths in use."""

LATENCY_COLUMNS = (REPLAY_DURATION, PROFILE_DURATION, "Duration(us)")
"""Where a reader looks for a row's time: the first finite positive value wins."""

COMMUNICATION_COLUMNS = (
    "message_bytes",
    "num_devices",
    "dtype",
    "topology_tier",
    "Duration(us)",
    "bandwidth_gbps",
)
"""Columns of ``hcom_*.csv``, the measured collectives."""
COMMUNICATION_KEY = COMMUNICATION_COLUMNS[:4]
"""What tells two of their rows apart."""

COLUMN_ORDER = (
    *BASE_COLUMNS,
    REPLAY_DURATION,
    PROFILE_DURATION,
    PROFILE_MEDIAN,
    PROFILE_STD,
    *(column for pair in zip(MICROBENCH_COUNTERS, PROFILE_COUNTERS, strict=True) for column in pair),
    *RUNTIME_COLUMNS,
)
"""The columns of a complete file, profiled and replayed; ``PROFILE_COUNT`` and unknown columns follow them."""

_LEGACY_PROFILE_NAMES = {
    "Average Duration(us)": PROFILE_DURATION,
    "Median Duration(us)": PROFILE_MEDIAN,
    "Std Duration(us)": PROFILE_STD,
    **{f"Average {counter}": f"Profiling Average {counter}" for counter in COUNTERS},
    "avg_seq_len": "Runtime avg_seq_len",
}
_LEGACY_MARKS = _LEGACY_PROFILE_NAMES.keys() - {"Average Duration(us)", "avg_seq_len"}
_OLD_REPLAY_DURATION = "MicroBench Duration(us)"

_NUMBERED_KERNEL = re.compile(r"(split_qkv_rmsnorm_rope_kernel|muls_add_kernel)_\d+")
_NOT_IN_FILE_NAMES = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
_COMMUNICATION_STEM = re.compile(r"hcom_", re.IGNORECASE)


def kernel_columns(kernel_type: str) -> tuple[str, ...]:
    """Columns of a new file of this kernel type, in order."""
    runtime = RUNTIME_COLUMNS if kernel_type == FUSED_ATTENTION else ()
    return (*BASE_COLUMNS, *PROFILE_COLUMNS[:-1], *runtime, PROFILE_COUNT)


def kernel_type_name(reported: str) -> str:
    """The name a file gets for a kernel type that a profiler reports.

    Two Triton kernels carry a specialisation number that is not part of the kernel; characters that file systems
    refuse become ``_``.
    """
    name = reported.strip()
    if numbered := _NUMBERED_KERNEL.fullmatch(name):
        name = numbered.group(1)
    return _NOT_IN_FILE_NAMES.sub("_", name) or "UNKNOWN_TYPE"


def is_communication_file(stem: str) -> bool:
    """Whether a CSV of this stem holds collectives and not a kernel."""
    return _COMMUNICATION_STEM.match(stem) is not None


def modern_header(header: Sequence[str]) -> list[str]:
    """``header`` with the names of older generations replaced by today's, positions kept.

    The first generation wrote the profile's statistics without ``Profiling``; there ``Average Duration(us)`` is the
    profile's mean and not a replay.
    """
    names = [name.strip() for name in header]
    is_first_generation = not _LEGACY_MARKS.isdisjoint(names) and PROFILE_DURATION not in names
    if is_first_generation:
        names = [_LEGACY_PROFILE_NAMES.get(name, name) for name in names]
    if REPLAY_DURATION not in names:
        names = [REPLAY_DURATION if name == _OLD_REPLAY_DURATION else name for name in names]
    return names


def misspelling_hint(name: str, candidates: Iterable[str]) -> str:
    """`` (is it 'Input Shape'?)`` for a column that is there under nearly this name, or an empty string."""
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    matches = get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.8)
    return f" (is it {by_folded[matches[0]]!r}?)" if matches else ""


def with_columns(present: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """``present`` with each missing column of ``wanted`` put where a complete file has it.

    A missing column goes behind the nearest present one that precedes it; columns nobody knows keep their place.
    """
    columns = list(present)
    for name in wanted:
        if name in columns:
            continue
        if name not in COLUMN_ORDER:
            columns.append(name)
            continue
        before = COLUMN_ORDER[: COLUMN_ORDER.index(name)]
        anchor = next((earlier for earlier in reversed(before) if earlier in columns), None)
        columns.insert(0 if anchor is None else columns.index(anchor) + 1, name)
    return columns
