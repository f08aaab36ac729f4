"""A profiled estimate of DeepSeek-V3 from a large database: the whole process, and what opening the database takes.

    python benchmarks/profiled_estimate.py [--files 200] [--rows 500000]

The database is made for the benchmark: shapes of the general grid of every kernel that can be replayed, filled up with
files of other kernels, all with durations.
"""

from __future__ import annotations

import argparse
import csv
import io
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tensor_cast.performance_model.profiling_database.coverage import REPLAYED_KERNELS
from tensor_cast.performance_model.profiling_database.schema import PROFILE_COLUMNS, PROFILE_COUNT, kernel_columns

ROOT = Path(__file__).resolve().parents[1]
WHOLE_SECONDS = 2.0
OPENING_SECONDS = 1.0
REQUEST = (
    "deepseek-ai/DeepSeek-V3 --device ATLAS_800_A3_752T_128G_DIE --world-size 16 --tp-size 8 --dp-size 2 --ep-size 16 "
    "--quantize-linear-action W8A8_DYNAMIC --compile --num-queries 64 --query-length 1 --context-length 4096 --decode "
    "--performance-model profiling"
)


def make_database(directory: Path, files: int, rows: int) -> int:
    """``files`` files of ``rows`` rows in all; kernels that can be replayed have the shapes of grids."""
    from tensor_cast.performance_model.profiling_database.table import read_table, table_bytes

    each = rows // files
    command = [sys.executable, str(ROOT / "tools/perf_data_collection/generate_shape_grid.py"), "--database-path"]
    command += [str(directory), "--target-models", "deepseek-ai/DeepSeek-V3", "--rows", str(each), "--ops"]
    subprocess.run([*command, *REPLAYED_KERNELS], check=True, capture_output=True)
    command = [*command[:4], "--rows", str(each), "--ops"]
    subprocess.run([*command, *REPLAYED_KERNELS], check=True, capture_output=True)
    total = 0
    for number, path in enumerate(sorted(directory.glob("*.csv"))):
        table = read_table(path)
        del table.rows[each:]
        _time(table.columns, table.rows, number)
        path.write_bytes(table_bytes(table))
        total += len(table.rows)
    columns = kernel_columns("Add")
    made = len(list(directory.glob("*.csv")))
    for number in range(made, files):
        size = (rows - total) // (files - number)
        shapes = [f'"{token + 1},{number}"' for token in range(size)]
        table_rows = [
            ["dynamic", "AI_VECTOR_CORE", shape, "DT_BF16", "ND", shape, "DT_BF16", "ND", *[""] * (len(columns) - 8)]
            for shape in shapes
        ]
        _time(list(columns), table_rows, number)
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\r\n").writerows([columns, *table_rows])
        (directory / f"Kernel{number}.csv").write_text(text.getvalue(), encoding="utf-8", newline="")
        total += size
    return total


def _time(columns: list[str], rows: list[list[str]], number: int) -> None:
    """Durations of 10 to 1,000 us and plausible counters in every row."""
    places = [columns.index(name) for name in PROFILE_COLUMNS if name in columns]
    for index, row in enumerate(rows):
        for place in places:
            row[place] = f"{10.0 + (index * 37 + number * 11) % 990:.6f}"
        if PROFILE_COUNT in columns:
            row[columns.index(PROFILE_COUNT)] = "61"


def opening_seconds(directory: Path) -> float:
    """Listing the files and reading those of the model, in a process of its own."""
    script = (
        "import time\n"
        "from pathlib import Path\n"
        "from tensor_cast.deployment import Deployment\n"
        "from tensor_cast.devices import get_device\n"
        "from tensor_cast.models import load_spec\n"
        "from tensor_cast.models.decoder import build\n"
        "from tensor_cast.performance_model.empirical import EmpiricalTimer\n"
        "from tensor_cast.workload import TextWorkload\n"
        "step = build(load_spec('deepseek-ai/DeepSeek-V3'),\n"
        "    TextWorkload(num_queries=64, query_length=1, context_length=4096, decode=True),\n"
        "    Deployment(world_size=16, tp_size=8, dp_size=2, ep_size=16, compile=True,\n"
        "        quantize_linear='W8A8_DYNAMIC'))\n"
        "device = get_device('ATLAS_800_A3_752T_128G_DIE')\n"
        "started = time.perf_counter()\n"
        f"timer = EmpiricalTimer(device, Path({str(directory)!r}))\n"
        "for _, node in step.graph.nodes():\n"
        "    timer(node.op)\n"
        "print(time.perf_counter() - started)\n"
    )
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=ROOT)
    return float(found.stdout)


def whole_seconds(directory: Path) -> float:
    """The command as a person types it, from start to exit."""
    command = [sys.executable, "-m", "cli.inference.text_generate", *REQUEST.split()]
    started = time.perf_counter()
    subprocess.run([*command, "--profiling-database-path", str(directory)], check=True, capture_output=True, cwd=ROOT)
    return time.perf_counter() - started


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=3, help="the best of so many (default: %(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        total = make_database(directory, arguments.files, arguments.rows)
        size = sum(path.stat().st_size for path in directory.iterdir())
        print(f"Database of {len(list(directory.glob('*.csv')))} files, {total} rows, {size / 1e6:.0f} MB")
        opening = min(opening_seconds(directory) for _ in range(arguments.runs))
        before = _children_cpu()
        whole = min(whole_seconds(directory) for _ in range(arguments.runs))
        cpu = (_children_cpu() - before) / arguments.runs
    print(f"Opening it and timing all kernels: {opening:.2f} s of {OPENING_SECONDS:.0f} s")
    print(
        f"Profiled estimate of DeepSeek-V3, whole process: {whole:.2f} s of {WHOLE_SECONDS:.0f} s ({cpu:.2f} s of CPU)"
    )
    return 0 if opening < OPENING_SECONDS and whole < WHOLE_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
