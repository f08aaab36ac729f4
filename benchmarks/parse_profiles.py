"""How fast profiles become a database: python benchmarks/parse_profiles.py [--rows 5000000]

Writes kernel_details files of made-up kernels to a temporary directory, parses them with the command in a fresh
process, and prints its seconds and peak memory; then opens a database of 200 files and 500,000 rows for one run, which
needs a few of them.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tensor_cast.performance_model.profiling_database.schema import COUNTERS, KEY_COLUMNS, kernel_columns

ROOT = Path(__file__).resolve().parents[1]
PARSER = ROOT / "tools" / "perf_data_collection" / "parsers" / "parse_kernel_details.py"
HEADER = (
    "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),"
    "Wait Time(us),Block Num,Mix Block Num,HF32 Eligible," + ",".join(KEY_COLUMNS) + ",Context ID," + ",".join(COUNTERS)
)
KERNEL_TYPES = 200
SHAPES_PER_TYPE = 50
DATABASE_ROWS_PER_TYPE = 2500
TYPES_OF_A_RUN = 25


def main() -> None:
    """Generate, parse, report."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        profiles, database = Path(directory) / "profiles", Path(directory) / "database"
        profiles.mkdir()
        size = sum(_write_profile(profiles, index, arguments) for index in range(arguments.files))
        print(f"profile   {arguments.rows} rows, {arguments.files} files, {size / 1e9:.2f} GB")
        seconds, memory = _parse(profiles, database)
        print(f"parse     {seconds:.1f} s, peak {memory / 2**30:.2f} GiB")
        seconds, _ = _parse(profiles, database)
        print(f"again     {seconds:.1f} s (nothing changes)")
        large = Path(directory) / "large"
        _write_database(large)
        print(f"database  {KERNEL_TYPES} files, {KERNEL_TYPES * DATABASE_ROWS_PER_TYPE} rows")
        print(f"open      {_open(large):.2f} s for the {TYPES_OF_A_RUN} kernel types of a run, interpreter included")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000, help="kernel rows (default: %(default)s)")
    parser.add_argument("--files", type=int, default=4, help="files they are spread over (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="where the temporary files go (default: the system's place)")
    return parser.parse_args()


def _write_profile(profiles: Path, index: int, arguments: argparse.Namespace) -> int:
    randomness = random.Random(index)
    directory = profiles / f"rank_{index}" / "ASCEND_PROFILER_OUTPUT"
    directory.mkdir(parents=True)
    counters = ",".join("0.0" if "aic_" in name else "12.345" for name in COUNTERS)
    pieces = []
    for kernel in range(KERNEL_TYPES):
        for shape in range(SHAPES_PER_TYPE):
            tokens = 1 + shape * 7
            before = f"13,0,4294967295,34473,2,aclnnOp{kernel}_Kernel,Kernel{kernel},dynamic,AI_VECTOR_CORE,"
            shapes = f'"""{tokens},7168;7168,{kernel + 1};7168""",DT_BF16;DT_BF16;FLOAT,ND;FRACTAL_NZ;ND,'
            after = f',0.500000,40,0,NO,{shapes}"""{tokens},{kernel + 1}""",DT_BF16,ND,N/A,{counters}\r\n'
            pieces.append((before, after))
    path = directory / "kernel_details.csv"
    rows = arguments.rows // arguments.files + (index < arguments.rows % arguments.files)
    with path.open("w", encoding="utf-8", newline="") as stream:
        stream.write(HEADER + "\r\n")
        for first in range(0, rows, 100_000):
            chosen = randomness.choices(pieces, k=min(100_000, rows - first))
            stream.write(
                "".join(
                    f"{before}1764246877{first + number:06d}.640\t,{3 + number % 977 / 100:.3f}{after}"
                    for number, (before, after) in enumerate(chosen)
                )
            )
    return path.stat().st_size


def _parse(profiles: Path, database: Path) -> tuple[float, int]:
    command = [sys.executable, str(PARSER), "--profiling-path", str(profiles), "--database-path", str(database)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"The parser failed with status {status}.")
    kilobytes = usage.ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return time.perf_counter() - start, int(kilobytes * 1024)


def _write_database(directory: Path) -> None:
    directory.mkdir()
    columns = kernel_columns("Kernel")
    tail = "," + ",".join([*["12.345000"] * (len(columns) - 10), "8"]) + "\r\n"
    for kernel in range(KERNEL_TYPES):
        rows = (
            f'dynamic,AI_CORE,"""{row},7168;7168,{kernel}""",DT_BF16;DT_BF16,ND;ND,"""{row},{kernel}""",DT_BF16,ND,9.5'
            + tail
            for row in range(1, DATABASE_ROWS_PER_TYPE + 1)
        )
        text = ",".join(columns) + "\r\n" + "".join(rows)
        (directory / f"Kernel{kernel}.csv").write_text(text, encoding="utf-8", newline="")


def _open(directory: Path) -> float:
    program = (
        "import sys; from pathlib import Path\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from tensor_cast.performance_model.profiling_database.store import Database\n"
        f"database = Database(Path({str(directory)!r}))\n"
        f"assert sum(len(database.rows(f'Kernel{{n}}').index) for n in range({TYPES_OF_A_RUN})) == "
        f"{TYPES_OF_A_RUN * DATABASE_ROWS_PER_TYPE}\n"
    )
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
