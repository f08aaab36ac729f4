"""Small rows of every kernel: operands as ``shape dtype format``, ``-`` for an absent one."""

from __future__ import annotations

from pathlib import Path

from tensor_cast.performance_model.profiling_database.schema import BASE_COLUMNS
from tensor_cast.performance_model.profiling_database.table import Table, table_bytes
from tools.perf_data_collection.op_replay.rows import ReplayRow

Cells = dict[str, str]


def cells(inputs: list[str], outputs: list[str], **extra: str) -> Cells:
    """The cells of a row; ``Runtime_x`` in ``extra`` stands for the column ``Runtime x``."""
    columns = [*_side(inputs), *_side(outputs)]
    named = {name.replace("Runtime_", "Runtime ").replace("EP_Size", "EP Size"): text for name, text in extra.items()}
    return dict(zip(BASE_COLUMNS, ["dynamic", "AI_CORE", *columns], strict=True)) | named


def row(kernel: str, given: Cells, line: int = 2) -> ReplayRow:
    return ReplayRow(kernel, Path(f"{kernel}.csv"), line, given)


def write_database(directory: Path, kernel: str, rows: list[Cells], columns: list[str] | None = None) -> Path:
    """A database file with these rows."""
    names = columns or list(dict.fromkeys(name for given in rows for name in given)) or list(BASE_COLUMNS)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{kernel}.csv"
    path.write_bytes(table_bytes(Table(names, [[given.get(name, "") for name in names] for given in rows])))
    return path


def _side(operands: list[str]) -> list[str]:
    parts = [("", "DT_UNDEFINED", "NULL") if text == "-" else _operand(text) for text in operands]
    shapes, dtypes, formats = zip(*parts, strict=True) if parts else ((), (), ())
    return ['"' + ";".join(shapes) + '"', ";".join(dtypes), ";".join(formats)]


def _operand(text: str) -> tuple[str, str, str]:
    shape, dtype, format_name = (*text.split(), "ND")[:3]
    return ("" if shape == "()" else shape), dtype, format_name


BF = "DT_BF16"
_FIA_REST = ["-"] * 6


def attention(slots: dict[int, str], outputs: list[str], **extra: str) -> Cells:
    """A FusedInferAttentionScore row by its occupied slots."""
    return cells([slots.get(slot, "-") for slot in range(31)], outputs, **extra)


SMALL_ROWS: dict[str, list[Cells]] = {
    "Add": [
        cells([f"3,8 {BF}", f"8 {BF}"], [f"3,8 {BF}"]),
        cells(["4 FLOAT", "() FLOAT"], ["4 FLOAT"]),
        cells(["5 INT32"], ["5 INT32"]),
        cells(["2,3 FLOAT16"], ["2,3 FLOAT16"]),
    ],
    "AddRmsNormBias": [
        cells([f"3,64 {BF}", f"3,64 {BF}", f"64 {BF}", f"64 {BF}"], [f"3,64 {BF}", "3,1 FLOAT", f"3,64 {BF}"]),
        cells(["3,64 FLOAT", "3,64 FLOAT", "64 FLOAT", "-"], ["3,64 FLOAT", "3,1 FLOAT", "3,64 FLOAT"]),
    ],
    "ArgMaxV2": [cells(["3,50 FLOAT", "() INT64"], ["3 INT64"]), cells(["3,50 FLOAT", "-"], ["3 INT32"])],
    "AscendQuantV2": [
        cells(["4,16 FLOAT", "16 FLOAT", "16 FLOAT"], ["4,16 INT8"]),
        cells(["4,16 FLOAT", "16 FLOAT"], ["4,16 UINT8"]),
        cells(["4,16 FLOAT", "16 FLOAT"], ["4,2 INT32"]),
    ],
    "BatchMatMulV2": [
        cells(["3,8 FLOAT", "5,8 FLOAT"], ["3,5 FLOAT"]),
        cells(["2,3,8 FLOAT", "2,8,5 FLOAT"], ["2,3,5 FLOAT"]),
        cells(["2,3,8 FLOAT", "2,5,8 FLOAT"], ["2,3,5 FLOAT"]),
    ],
    "DispatchFFNCombine": [
        cells(
            [
                f"6,64 {BF}",
                "3,2,4,16,32 INT8 FRACTAL_NZ",
                "3,2,2,16,32 INT8 FRACTAL_NZ",
                "6,2 INT32",
                "192 FLOAT",
                "192 FLOAT",
                "6,2 FLOAT",
            ],
            [f"6,64 {BF}", "3 INT32"],
        ),
    ],
    "DynamicQuant": [
        cells([f"4,32 {BF}"], ["4,32 INT8", "4 FLOAT"]),
        cells(["2,3,8 FLOAT16"], ["2,3,8 INT8", "2,3 FLOAT"]),
    ],
    "FusedInferAttentionScore": [
        attention(  # packed, causal, lengths recorded and cumulative, grouped heads
            {0: "7,4,16 FLOAT", 1: "7,2,16 FLOAT", 2: "7,2,16 FLOAT", 4: "2048,2048 INT8", 5: "2 INT64", 6: "2 INT64"},
            ["7,4,16 FLOAT"],
            Runtime_actual_seq_lengths_values="3,7",
            Runtime_actual_seq_lengths_kv_values="3,7",
            Runtime_sparse_mode="3",
        ),
        attention(  # packed queries, paged keys of one recorded length each, two KV heads in the last dimension
            {
                0: "4,4,16 FLOAT",
                1: "6,8,32 FLOAT",
                2: "6,8,32 FLOAT",
                4: "2048,2048 BOOL",
                5: "2 INT64",
                6: "2 INT64",
                14: "2,3 INT32",
            },
            ["4,4,16 FLOAT"],
            Runtime_actual_seq_lengths_kv_values="[9, 20]",
            Runtime_num_key_value_heads="2",
        ),
        attention(  # the same as a profile has it: nothing recorded, the widths tell two KV heads
            {
                0: "2,4,16 FLOAT",
                1: "6,8,32 FLOAT",
                2: "6,8,32 FLOAT",
                4: "2048,2048 INT8",
                5: "2 INT64",
                6: "2 INT64",
                14: "2,3 INT32",
            },
            ["2,4,16 FLOAT"],
        ),
        attention(  # packed, no mask, with the softmax's sums
            {0: "5,4,16 FLOAT", 1: "9,4,16 FLOAT", 2: "9,4,16 FLOAT", 5: "1 INT64", 6: "1 INT64"},
            ["5,4,16 FLOAT", "5,4,1 FLOAT"],
        ),
        attention(  # MLA decode: a batch with rope parts, batch and heads exchanged in the output
            {
                0: "3,4,1,32 FLOAT",
                1: "8,1,8,32 FLOAT",
                2: "8,1,8,32 FLOAT",
                6: "3 INT64",
                14: "3,2 INT32",
                24: "3,4,1,16 FLOAT",
                25: "8,1,8,16 FLOAT",
            },
            ["4,3,1,32 FLOAT"],
            Runtime_avg_seq_len="11.4",
        ),
    ],
    "GatherV2": [
        cells([f"10,8 {BF}", "5 INT64", "1 INT64"], [f"5,8 {BF}"]),
        cells(["3,4 FLOAT", "2,3 INT32", "1 INT64"], ["2,3,4 FLOAT"]),
    ],
    "GroupedMatmul": [
        cells(
            ["5,64 INT8", "2,1,4,16,32 INT8 FRACTAL_NZ", "-", f"2,32 {BF}", "-", "-", "-", "2 INT64", "5 FLOAT"],
            [f"5,32 {BF}"],
        ),
        cells(["5,16 FLOAT", "2,16,8 FLOAT", "-", "-", "-", "-", "-", "2 INT64", "-"], ["5,8 FLOAT"]),
    ],
    "GroupedMatmulSwigluQuant": [
        cells(
            ["5,64 INT8", "2,2,4,16,32 INT8 FRACTAL_NZ", "2,64 FLOAT", "5 FLOAT", "2 INT64"], ["5,32 INT8", "5 FLOAT"]
        ),
        cells(
            ["5,64 INT8", "2,2,4,16,32 INT8 FRACTAL_NZ", "-", "2,64 FLOAT", "-", "-", "-", "2 INT64", "5 FLOAT"],
            ["5,32 INT8", "5 FLOAT"],
        ),
    ],
    "Index": [
        cells([f"8,16 {BF}", "1 INT64", "2 INT64", "5 INT32"], [f"5,16 {BF}"]),
        cells(["8,4 FLOAT", "1 INT64", "2 INT64", "8 INT64"], ["8,4 FLOAT"]),
    ],
    "InterleaveRope": [cells(["2,3,4,64 FLOAT", "2,1,4,64 FLOAT", "2,1,4,64 FLOAT"], ["2,3,4,64 FLOAT"])],
    "KvRmsNormRopeCache": [
        cells(
            [
                "3,1,2,24 FLOAT",
                "16 FLOAT",
                "3,1,2,8 FLOAT",
                "3,1,2,8 FLOAT",
                "6 INT64",
                "4,8,1,8 FLOAT",
                "4,8,1,16 FLOAT",
                *["-"] * 5,
            ],
            ["4,8,1,8 FLOAT", "4,8,1,16 FLOAT", "3,1,2,8 FLOAT", "3,1,2,16 FLOAT"],
        ),
    ],
    "LightningIndexer": [
        cells(
            ["5,4,16 FLOAT", "6,8,1,16 FLOAT", "5,4 FLOAT", "2 INT32", "2 INT32", "2,3 INT32"],
            ["5,1,6 INT32"],
            Runtime_actual_seq_lengths_values="2,5",
            Runtime_actual_seq_lengths_kv_values="4,17",
        ),
    ],
    "MaskedFill": [
        cells(["3,8 FLOAT", "3,8 BOOL", "() FLOAT"], ["3,8 FLOAT"]),
        cells(["3,8 FLOAT", "3,8 INT8"], ["3,8 FLOAT"]),
    ],
    "MatMulCommon": [cells(["3,8 FLOAT", "5,8 FLOAT"], ["3,5 FLOAT"])],
    "MatMulV2": [
        cells(["3,8 FLOAT", "8,5 FLOAT"], ["3,5 FLOAT"]),
        cells([f"3,32 {BF}", f"2,1,16,16 {BF} FRACTAL_NZ"], [f"3,16 {BF}"]),
        cells(["8,3 FLOAT", "5,8 FLOAT", "5 FLOAT"], ["3,5 FLOAT"]),
    ],
    "MatMulV3": [cells(["3,8 FLOAT", "5,8 FLOAT"], ["3,5 FLOAT"])],
    "MoeTokenPermute": [
        cells([f"4,8 {BF}", "4,2 INT32"], [f"8,8 {BF}", "8 INT32"]),
        cells(["4,8 FLOAT", "4 INT64"], ["4,8 FLOAT", "4 INT32"]),
    ],
    "MoeTokenUnpermute": [
        cells(["8,16 FLOAT", "8 INT32", "4,2 FLOAT"], ["4,16 FLOAT"]),
        cells(["8,16 FLOAT", "8 INT32"], ["8,16 FLOAT"]),
    ],
    "PadV3": [
        cells([f"5,8 {BF}", "4 INT64", f"() {BF}"], [f"8,8 {BF}"]),
        cells(["2,3 INT32", "4 INT64", "() INT32"], ["4,5 INT32"]),
    ],
    "QuantBatchMatmulV3": [
        cells(["3,32 INT8", "2,2,16,32 INT8 FRACTAL_NZ", "64 FLOAT", "64 INT32"], [f"3,64 {BF}"]),
        cells(["3,32 INT8", "32,64 INT8", "64 FLOAT", "3 FLOAT"], [f"3,64 {BF}"]),
        cells(["3,32 INT8", "32,64 INT8", "1 FLOAT", "1 FLOAT"], ["3,64 INT8"]),
        cells(["3,32 INT8", "32,64 INT8", "64 FLOAT", "-", "-", "3 FLOAT"], [f"3,64 {BF}"]),
    ],
    "RINGMLAPrefillBF16Kernel": [
        cells(
            [
                "6,2,32 FLOAT",
                "6,2,16 FLOAT",
                "6,2,32 FLOAT",
                "6,2,16 FLOAT",
                "6,2,32 FLOAT",
                "512,512 FLOAT",
                *["-"] * 7,
            ],
            ["6,2,32 FLOAT", "2,6 FLOAT"],
        ),
        cells(
            [
                "6,2,32 FLOAT",
                "6,2,16 FLOAT",
                "9,2,32 FLOAT",
                "9,2,16 FLOAT",
                "9,2,32 FLOAT",
                *["-"] * 8,
                "6,2,32 FLOAT",
                "2,6 FLOAT",
            ],
            ["6,2,32 FLOAT", "2,6 FLOAT"],
        ),
    ],
    "ReshapeAndCacheNdKernel": [
        cells(
            [f"5,2,8 {BF}", f"5,2,8 {BF}", f"3,4,2,8 {BF}", f"3,4,2,8 {BF}", "5 INT32"],
            [f"3,4,2,8 {BF}", f"3,4,2,8 {BF}"],
        ),
    ],
    "RmsNorm": [
        cells([f"3,64 {BF}", f"64 {BF}"], [f"3,64 {BF}", "3,1 FLOAT"]),
        cells(["3,2,32 FLOAT", "32 FLOAT"], ["3,2,32 FLOAT", "3,2,1 FLOAT"]),
    ],
    "ScatterNdUpdate": [cells(["9,4 FLOAT", "3,1 INT32", "3,4 FLOAT"], ["9,4 FLOAT"])],
    "Slice": [cells([f"6,8 {BF}", "2 INT64", "2 INT64", "2 INT64", "2 INT64"], [f"3,8 {BF}"])],
    "SoftmaxV2": [cells(["3,50 FLOAT"], ["3,50 FLOAT"])],
    "Sort": [cells(["3,64 FLOAT"], ["3,64 FLOAT", "3,64 INT32"])],
    "SparseFlashAttention": [
        cells(
            [
                "5,4,32 FLOAT",
                "6,8,1,32 FLOAT",
                "6,8,1,32 FLOAT",
                "5,1,6 INT32",
                "2,3 INT32",
                "2 INT32",
                "2 INT32",
                "5,4,16 FLOAT",
                "6,8,1,16 FLOAT",
            ],
            ["5,4,32 FLOAT"],
            Runtime_actual_seq_lengths_values="2,5",
            Runtime_actual_seq_lengths_kv_values="4,17",
        ),
    ],
    "SwiGlu": [cells(["3,32 FLOAT"], ["3,16 FLOAT"]), cells([f"2,3,8 {BF}"], [f"2,3,4 {BF}"])],
    "TensorMove": [cells([f"7,8 {BF}"], [f"7,8 {BF}"])],
    "Transpose": [cells([f"3,4,5 {BF}", "3 INT64"], [f"4,3,5 {BF}"]), cells(["3,3 FLOAT", "2 INT64"], ["3,3 FLOAT"])],
    "TransposeBatchMatMul": [cells(["2,3,16 FLOAT", "2,16,32 FLOAT"], ["3,2,32 FLOAT"])],
    "split_qkv_rmsnorm_rope_kernel": [
        cells(["5,64 FLOAT", "8 FLOAT"], ["5,32 FLOAT", "5,16 FLOAT", "5,16 FLOAT"]),
        cells(["5,64 FLOAT", "30,16 FLOAT", "5 INT64"], ["5,32 FLOAT", "5,16 FLOAT", "5,16 FLOAT"]),
    ],
}
