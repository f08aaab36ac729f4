"""Rows that are added to a database."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tensor_cast.deployment import Deployment
from tensor_cast.performance_model.profiling_database.coverage import REPLAYED_KERNELS
from tensor_cast.performance_model.profiling_database.kernels_vector import SWIGLU_QUANT
from tensor_cast.performance_model.profiling_database.layouts import layouts
from tensor_cast.performance_model.profiling_database.paths import DEFAULT_DEVICE, database_directory
from tensor_cast.performance_model.profiling_database.schema import KEY_COLUMNS, PROFILE_DURATION, REPLAY_DURATION
from tensor_cast.performance_model.profiling_database.statistics import latency_us
from tensor_cast.performance_model.profiling_database.table import Table, read_table, table_bytes
from tensor_cast.performance_model.profiling_database.validation import validate
from tensor_cast.simulator import simulate
from tensor_cast.unmeasured import unmeasured_kernels
from tensor_cast.workload import TextWorkload
from tools.perf_data_collection.fia_common import runtime_cells
from tools.perf_data_collection.generate_shape_grid import main
from tools.perf_data_collection.memory_estimator import element_bytes, operand_bytes

A3 = database_directory(DEFAULT_DEVICE, "0.15.0", "2.9.0", "8.5")
GENERAL = ("--rows", "60", "--max-hbm-gb", "0")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A copy of the packaged database."""
    directory = tmp_path / "database"
    shutil.copytree(A3, directory)
    return directory


def run(directory: Path, *words: str) -> int:
    return main(["--database-path", str(directory), *words])


def new_rows(directory: Path, kernel: str) -> list[dict[str, str]]:
    table = read_table(directory / f"{kernel}.csv")
    rows = [table.cells(row) for row in table.rows]
    return [row for row in rows if latency_us(row) is None]


def test_a_small_grid_by_hand(tmp_path: Path) -> None:
    # Sorting 13 widths of 13 row counts; without a limit all of them, in the order of widths and rows.
    assert run(tmp_path, "--ops", "Sort", "--rows", "0", "--max-hbm-gb", "0") == 0
    rows = new_rows(tmp_path, "Sort")
    assert len(rows) == 13 * 13
    assert rows[0]["Input Shapes"] == '"1,64"'
    assert rows[1]["Input Shapes"] == '"4,64"'
    assert rows[-1] | {"Input Data Types": "DT_BF16"} == rows[-1]
    assert (rows[-1]["Input Shapes"], rows[-1]["Output Shapes"]) == ('"32768,151936"', '"32768,151936;32768,151936"')
    assert rows[-1][PROFILE_DURATION] == ""


def test_rows_counts_what_is_really_new(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_table(database / "MatMulV2.csv")
    assert run(database, "--ops", "MatMulV2", "--rows", "100") == 0
    first = read_table(database / "MatMulV2.csv")
    assert first.rows[: len(before.rows)] == before.rows
    assert len(first.rows) == len(before.rows) + 100
    assert run(database, "--ops", "MatMulV2", "--rows", "100") == 0
    second = read_table(database / "MatMulV2.csv")
    assert second.rows[: len(first.rows)] == first.rows
    assert len(second.rows) == len(first.rows) + 100
    assert validate(database) == []
    assert "100 rows added to 1 files." in capsys.readouterr().out


def test_a_seed_decides(tmp_path: Path) -> None:
    contents = []
    for number, seed in enumerate(("1", "1", "2")):
        directory = tmp_path / str(number)
        directory.mkdir()
        assert run(directory, "--ops", "MatMulV3", "--rows", "40", "--seed", seed) == 0
        contents.append((directory / "MatMulV3.csv").read_bytes())
    assert contents[0] == contents[1]
    assert contents[0] != contents[2]


def test_a_dry_run_writes_nothing(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in database.iterdir()}
    assert run(database, "--ops", "MatMulV2", "GroupedMatmul", "--rows", "5", "--dry-run") == 0
    assert {path.name: path.read_bytes() for path in database.iterdir()} == before
    assert "10 rows would be added to 2 files." in capsys.readouterr().out


def test_formats_and_dtypes_are_those_of_the_file(database: Path) -> None:
    # Most products of the file have FRACTAL_NZ weights; its quantised ones have a scale a token, or an int32 bias.
    assert run(database, *GENERAL, "--ops", "MatMulV2", "QuantBatchMatmulV3") == 0
    assert {row["Input Formats"] for row in new_rows(database, "MatMulV2")} == {"ND;FRACTAL_NZ"}
    assert {row["Input Data Types"] for row in new_rows(database, "QuantBatchMatmulV3")} == {
        "INT8;INT8;DT_BF16;FLOAT",
        "INT8;INT8;FLOAT;INT32",
    }


@pytest.mark.parametrize(
    ("kernel", "inputs", "outputs"),
    [
        # (T, D); gamma -> (T, D), the reciprocal root in FLOAT, as profiles of the A3 report it.
        ("RmsNorm", {1: "DT_BF16"}, {1: "FLOAT"}),
        ("AddRmsNormBias", {2: "DT_BF16"}, {1: "FLOAT"}),
        ("GatherV2", {1: "INT32", 2: "INT64"}, {}),
        ("Index", {1: "INT64", 2: "INT64", 3: "INT32"}, {}),
        ("Transpose", {1: "INT64"}, {}),
        ("Slice", {1: "INT64", 2: "INT64"}, {}),
        ("PadV3", {1: "INT64"}, {}),
        ("MaskedFill", {1: "BOOL"}, {}),
        ("MoeTokenPermute", {1: "INT32"}, {1: "INT32"}),
        ("MoeTokenUnpermute", {1: "INT32", 2: "DT_BF16"}, {}),
        ("DispatchFFNCombine", {3: "INT32", 4: "FLOAT", 5: "FLOAT", 6: "FLOAT"}, {1: "INT32"}),
        ("LightningIndexer", {2: "DT_BF16", 3: "INT32", 5: "INT32"}, {0: "INT32"}),
        ("SparseFlashAttention", {3: "INT32", 4: "INT32", 5: "INT32"}, {}),
        ("ReshapeAndCacheNdKernel", {4: "INT32"}, {}),
        ("KvRmsNormRopeCache", {4: "INT64"}, {}),
        ("GroupedMatmul", {7: "INT64"}, {}),
        ("GroupedMatmulSwigluQuant", {2: "FLOAT", 3: "FLOAT", 4: "INT64"}, {1: "FLOAT"}),
    ],
)
def test_slots_that_are_no_activations_have_their_own_dtypes(
    tmp_path: Path, kernel: str, inputs: dict[int, str], outputs: dict[int, str]
) -> None:
    assert run(tmp_path, "--ops", kernel, "--rows", "5") == 0
    for row in new_rows(tmp_path, kernel):
        for slots, column in ((inputs, "Input Data Types"), (outputs, "Output Data Types")):
            dtypes = row[column].split(";")
            assert {slot: dtypes[slot] for slot in slots} == slots


def test_attention_slots_have_their_own_dtypes(tmp_path: Path) -> None:
    assert run(tmp_path, "--ops", "FusedInferAttentionScore", "--rows", "400") == 0
    present: set[int] = set()
    for row in new_rows(tmp_path, "FusedInferAttentionScore"):
        shapes, dtypes = (row[column].strip('"').split(";") for column in ("Input Shapes", "Input Data Types"))
        for slot, dtype in {4: "INT8", 5: "INT64", 6: "INT64", 14: "INT32"}.items():
            assert dtypes[slot] == (dtype if shapes[slot] else "DT_UNDEFINED")
            present |= {slot} if shapes[slot] else set()
    assert present == {4, 5, 6, 14}


def test_the_limit_of_memory(tmp_path: Path) -> None:
    # TensorMove of 32768 x 55296 bfloat16: 3.4 GiB in and 3.4 GiB out.
    assert run(tmp_path, "--ops", "TensorMove", "--rows", "0", "--max-hbm-gb", "6.7") == 0
    limited = {row["Input Shapes"] for row in new_rows(tmp_path, "TensorMove")}
    assert run(tmp_path, "--ops", "TensorMove", "--rows", "0", "--max-hbm-gb", "0") == 0
    every = {row["Input Shapes"] for row in new_rows(tmp_path, "TensorMove")}
    assert every - limited == {'"32768,55296"'}


def test_bytes_of_operands_by_hand() -> None:
    (layout,) = layouts("m,k:x ; n/32,k/16,16,32:w@NZ ; n:FLOAT ; m:FLOAT? -> m,n:y")
    sizes = {"m": np.array([2.0, 4.0]), "k": np.array([64.0]), "n": np.array([96.0])}
    found = operand_bytes(layout, sizes, {"x": "int8", "w": "int8", "y": "bfloat16"})
    # x 2x64, weight 3x4x16x32 = 6144, scale 96x4, result 2x96x2; what may be left out is not written.
    assert np.asarray(found).tolist() == [128 + 6144 + 384 + 384, 256 + 6144 + 384 + 768]


SIZES: dict[str, float] = {"FLOAT16": 2, "FP16": 2, "DT_FLOAT16": 2, "DT_BF16": 2, "FLOAT": 4, "DOUBLE": 8}
SIZES |= {"INT8": 1, "INT64": 8, "UINT64": 8, "INT16": 2, "UINT8": 1, "BOOL": 1, "INT4": 0.5, "": 2, "STRING": 2}


@pytest.mark.parametrize(("dtype", "size"), SIZES.items())
def test_bytes_of_an_element(dtype: str, size: float) -> None:
    assert element_bytes(dtype) == size


def test_runtime_cells_of_an_attention_row() -> None:
    sizes = {"b": 2.0, "q": 3.0, "kv": 300.0, "h": 8.0, "g": 2.0}
    cells = runtime_cells(sizes, input_layout="TND", paged=True, masked=True)
    assert cells["Runtime actual_seq_lengths_values"] == "3,6"
    assert cells["Runtime actual_seq_lengths_kv_values"] == "300,300"
    assert cells["Runtime block_table_shape"] == "2,3"  # 300 tokens are three blocks of 128
    assert cells["Runtime num_key_value_heads"] == "2"
    assert cells["Runtime metadata_completeness"] == "shape_grid_scene_generated"
    packed = runtime_cells({**sizes, "q": 300.0}, input_layout="TND", paged=False, masked=True)
    assert packed["Runtime actual_seq_lengths_kv_values"] == "300,600"


def test_a_grid_covers_what_a_simulation_asks_for(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = ("deepseek-ai/DeepSeek-V3", "Qwen/Qwen3-32B", "deepseek-ai/DeepSeek-V3.2")
    words = ("--target-models", ",".join(models), "--rows", "0", "--ops", *REPLAYED_KERNELS)
    assert run(database, *words) == 0
    printed = capsys.readouterr().out
    assert "Still without rows" in printed
    assert validate(database) == []
    # "Measure" every new row: then nothing that can be replayed is left to the analytic model.
    for path in database.glob("*.csv"):
        table = read_table(path)
        place = table.columns.index(PROFILE_DURATION)
        for row in table.rows:
            row[place] = row[place] or "20.000000"
        path.write_bytes(table_bytes(table))
    deployment = Deployment(
        world_size=16, tp_size=4, dp_size=4, ep_size=16, quantize_linear="W8A8_DYNAMIC", compile=True
    )
    decode = TextWorkload(num_queries=128, query_length=1, context_length=8191, decode=True)
    for model, sizes in (
        ("deepseek-ai/DeepSeek-V3", deployment),
        ("Qwen/Qwen3-32B", Deployment(world_size=8, tp_size=8, compile=True)),
    ):
        profiling = {"performance_model": "profiling", "database": database}
        estimate = simulate(model, device=DEFAULT_DEVICE, workload=decode, deployment=sizes, **profiling)  # type: ignore[arg-type]
        analytic = {row.name for row in unmeasured_kernels(estimate.kernels) if "analytic" in row.source}
        assert analytic <= {"concat", "all_to_all", "all_gather", "all_reduce"}


def test_rows_of_files_that_are_not_extended_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files that --ops does not name, and those of kernels that cannot be replayed."""
    models = ("--target-models", "Qwen/Qwen3-0.6B", "--rows", "0")
    assert run(tmp_path, *models, "--ops", "RmsNorm") == 0
    # SwiGluQuant as Qwen3-0.6B has it: 3072 columns of gate and as many of up.
    swiglu = SWIGLU_QUANT.layouts[0].render({"t": 16.0, "d": 3072.0}, {"x": "bfloat16", "q": "int8"})
    table = Table([*KEY_COLUMNS, PROFILE_DURATION], [[*swiglu, "20.000000"]])
    (tmp_path / "SwiGluQuant.csv").write_bytes(table_bytes(table))
    capsys.readouterr()
    assert run(tmp_path, *models, "--ops", "Add", "--dry-run") == 0
    *_, counts, replayed, others, _ = capsys.readouterr().out.splitlines()
    assert counts.split()[2:4] == ["1", "(1%)"]
    wanted = replayed.split(": ")[1].rstrip(".").split(", ")
    assert not any(one.startswith("RmsNorm ") for one in wanted)
    assert "MatMulV2 23" in wanted
    # Five widths of SwiGLU (whole, and in 2, 4, 8 and 16 parts) alone, and five before a quantisation less this one.
    assert "SwiGlu 9" in wanted
    assert others.endswith("cannot be replayed: Swish 5, Mul 5.")


def test_sparse_attention_and_indexer_come_from_their_models(tmp_path: Path) -> None:
    ops = ("LightningIndexer", "SparseFlashAttention")
    assert run(tmp_path, "--target-models", "deepseek-ai/DeepSeek-V3.2", "--rows", "20", "--ops", *ops) == 0
    # DeepSeek-V3.2: 64 index heads of 128; 2048 chosen keys, latents of 512 with 64 rotary dimensions.
    indexer, sparse = new_rows(tmp_path, "LightningIndexer")[0], new_rows(tmp_path, "SparseFlashAttention")[0]
    assert ",64,128;" in indexer["Input Shapes"]
    assert indexer["Runtime actual_seq_lengths_kv_values"]
    assert ",1,2048;" in sparse["Input Shapes"]
    assert ",512;" in sparse["Input Shapes"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--ops", "MatmulV2"), "Did you mean MatMulV2"),
        (("--target-models", "deepseek-ai/DeepSeek-V33"), "DeepSeek-V33"),
    ],
)
def test_wrong_requests(database: Path, words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(database, *words) == 2
    assert says in capsys.readouterr().err


def test_a_directory_that_is_not_there_or_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").mkdir()
    assert run(tmp_path / "missing") == 2
    assert "missing does not exist. Beside it there are other." in capsys.readouterr().err
    assert main(["--vllm-version", "1.0"]) == 2
    assert "was not found on this machine: give --" in capsys.readouterr().err
    assert run(tmp_path / "other") == 2
    assert "has no kernel CSV files" in capsys.readouterr().err


def test_a_file_with_a_byte_order_mark_and_unknown_columns_stays_readable(tmp_path: Path) -> None:
    columns = ["OP State", "Accelerator Core", *KEY_COLUMNS, "Note", REPLAY_DURATION]
    first = ["dynamic", "AI_VECTOR_CORE", '"8,64"', "DT_BF16", "ND", '"8,64"', "DT_BF16", "ND", "mine", "3.5"]
    content = b"\xef\xbb\xbf" + table_bytes(Table(columns, [first]))
    (tmp_path / "SoftmaxV2.csv").write_bytes(content)
    assert run(tmp_path, "--rows", "3") == 0
    table = read_table(tmp_path / "SoftmaxV2.csv")
    assert (table.columns, table.rows[0]) == (columns, first)
    assert len(table.rows) == 4
    assert all(table.cells(row)["Accelerator Core"] == "AI_VECTOR_CORE" for row in table.rows)
    assert all(table.cells(row)["Note"] == table.cells(row)[REPLAY_DURATION] == "" for row in table.rows[1:])


def test_a_full_disk_leaves_every_file_as_it_was(
    database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in database.glob("*.csv")}
    written: list[int] = []

    def full(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) > 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert run(database, "--rows", "5") == 1
    assert "the disk is full; nothing was changed" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in database.glob("*.csv")} == before
    assert not list(database.glob(".*.staged"))
