"""Profiler files of every header generation, made up by the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest

from tensor_cast.performance_model.profiling_database.schema import COUNTERS, KEY_COLUMNS

BuildProfile = Callable[..., str]

COMMON = {"Model ID": "4294967295", "Task ID": "34473", "Stream ID": "2", "HF32 Eligible": "NO", "Context ID": "N/A"}
KERNEL = {
    "Step Id": "13",
    "Device_id": "0",
    "Name": "aclnnAdd_AddAiCore_Add",
    "Type": "Add",
    "OP State": "dynamic",
    "Accelerator Core": "AI_VECTOR_CORE",
    "Start Time(us)": "1764246877073569.640\t",
    "Duration(us)": "2.000",
    "Wait Time(us)": "0.500000",
    "Input Shapes": '"4096;"',
    "Input Data Types": "FLOAT;FLOAT",
    "Input Formats": "ND;ND",
    "Output Shapes": '"4096"',
    "Output Data Types": "FLOAT",
    "Output Formats": "ND",
}
COLLECTIVE = {
    "Name": "hcom_allReduce__483_0",
    "Type": "hcom_allReduce_",
    "OP State": "N/A",
    "Accelerator Core": "COMMUNICATION",
    **dict.fromkeys([*KEY_COLUMNS, *COUNTERS], "N/A"),
}
_TIMES = ("Start Time(us)", "Duration(us)", "Wait Time(us)")
_IDENTITY = ("Model ID", "Task ID", "Stream ID", "Name", "Type")
_TAIL = ("HF32 Eligible", *KEY_COLUMNS, "Context ID")


def _level1(*before: str, block: str = "Num", state: bool = True, counters: Iterable[str] = COUNTERS) -> list[str]:
    states = ["OP State"] if state else []
    blocks = [f"Block {block}", f"Mix Block {block}"]
    return [*before, *_IDENTITY, *states, "Accelerator Core", *_TIMES, *blocks, *_TAIL, *counters]


_OP_SUMMARY = {
    "Name": "Op Name",
    "Type": "OP Type",
    "Accelerator Core": "Task Type",
    "Start Time(us)": "Task Start Time(us)",
    "Duration(us)": "Task Duration(us)",
    "Wait Time(us)": "Task Wait Time(us)",
}
GENERATIONS: dict[str, list[str]] = {
    "newest": _level1("Step Id", "Device_id"),
    "without_steps": _level1("Device_id"),
    "step_id_respelt": _level1("Step ID", "Device_id"),
    "block_dim": _level1("Step Id", "Device_id", block="Dim"),
    "without_device": _level1("Step Id", block="Dim"),
    "2023": _level1("Step Id", block="Dim", state=False, counters=COUNTERS[:-1]),
    "memory_metrics": _level1("Step Id", "Device_id", counters=["aicore_time(us)", "aic_l0a_read_bw(GB/s)"]),
    "without_metrics": _level1("Step Id", "Device_id", counters=[]),
    "level0_with_shapes": [
        "Step Id",
        "Device_id",
        "Name",
        "Type",
        "Accelerator Core",
        *_TIMES,
        "Block Num",
        *KEY_COLUMNS,
    ],
    "op_summary": [_OP_SUMMARY.get(name, name) for name in _level1("Device_id")],
}
LEVEL0 = ["Step Id", "Device_id", "Name", "Type", "Accelerator Core", *_TIMES, "Block Num"]


def build_profile(
    rows: Iterable[Mapping[str, str]], header: list[str] = GENERATIONS["newest"], *, end: str = "\r\n"
) -> str:
    """Text of a profiler file; a cell that a row does not give is that of a plain Add."""
    plain = {name: new for new, name in _OP_SUMMARY.items()}
    lines = [",".join(header)]
    for row in rows:
        cells = {**dict.fromkeys(COUNTERS, "1.5"), **COMMON, **KERNEL, **row}
        lines.append(",".join(_csv_cell(cells.get(plain.get(name, name), "0")) for name in header))
    return "".join(line + end for line in lines)


def _csv_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if '"' in text or "," in text else text


@pytest.fixture
def profile() -> BuildProfile:
    """``build_profile``."""
    return build_profile


@pytest.fixture(params=GENERATIONS, ids=str)
def generation(request: pytest.FixtureRequest) -> list[str]:
    """The header of each generation that carries shapes."""
    return GENERATIONS[request.param]


@pytest.fixture
def level0() -> list[str]:
    """The header of a profile without shapes."""
    return LEVEL0


@pytest.fixture
def collective() -> dict[str, str]:
    """A row of a collective."""
    return COLLECTIVE
