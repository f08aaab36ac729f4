"""A stand-in for msprof: runs a command and writes what torch_npu's stand-in recorded as op_summary files.

STANDIN_MSPROF: empty, or ``fails`` (status 1, profiles are written), ``empty`` (status 1, nothing is run), ``first``
(the first call runs the command, writes no profile and ends with status 1; later ones go well).
"""

import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

CORES = {
    "aic": "total_cycles mac_time(us) mac_ratio scalar_time(us) scalar_ratio mte1_time(us) mte1_ratio mte2_time(us) "
    "mte2_ratio fixpipe_time(us) fixpipe_ratio icache_miss_rate",
    "aiv": "total_cycles vec_time(us) vec_ratio scalar_time(us) scalar_ratio mte2_time(us) mte2_ratio mte3_time(us) "
    "mte3_ratio icache_miss_rate",
}
COUNTERS = [
    "aicore_time(us)",
    *(f"aic_{name}" for name in CORES["aic"].split()),
    "aiv_time(us)",
    *(f"aiv_{name}" for name in CORES["aiv"].split()),
    "cube_utilization(%)",
]
HEADER = [
    *("Device_id", "Model ID", "Task ID", "Stream ID", "Op Name", "OP Type", "OP State", "Task Type"),
    *("Task Start Time(us)", "Task Duration(us)", "Task Wait Time(us)", "Block Num", "Mix Block Num", "HF32 Eligible"),
    *("Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats"),
    *("Context ID", *COUNTERS),
]


def main():
    [output] = [word.removeprefix("--output=") for word in sys.argv[1:] if word.startswith("--output=")]
    command = [word for word in sys.argv[1:] if not word.startswith("--output=")]
    mode = os.environ.get("STANDIN_MSPROF", "")
    first = Path(output) / "called_before"
    if mode == "empty":
        return 1
    with tempfile.TemporaryDirectory() as launches:
        process = subprocess.Popen(command, env={**os.environ, "STANDIN_LAUNCHES": launches})
        signal.signal(signal.SIGINT, lambda *_: None)
        status = process.wait()
        fails_empty = mode == "first" and not first.exists()
        first.touch()
        if fails_empty:
            return 1
        for number, path in enumerate(sorted(Path(launches).glob("launches_*.jsonl"))):
            write(Path(output) / f"PROF_{number:06d}_20260101000000_{path.stem[9:]}", path)
    return 1 if mode == "fails" else status


def write(directory, launches):
    target = directory / "mindstudio_profiler_output"
    target.mkdir(parents=True)
    with (target / "op_summary_20260101000000.csv").open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(HEADER)
        for number, line in enumerate(launches.read_text().splitlines()):
            kernel, *sides = json.loads(line)
            cells = []
            for side in sides:
                if side == "N/A":
                    cells += ["N/A"] * 3
                    continue
                shapes, dtypes, formats = (";".join(entry[part] for entry in side) for part in range(3))
                cells += [f'"{shapes}"', dtypes, formats]
            start = f"{1764246877073569 + number * 100}.640\t"
            duration = f"{10 + number:.3f}"
            identity = [0, 4294967295, number, 0, f"aclnn{kernel}_{number}", kernel, "dynamic", "AI_CORE"]
            times = [start, duration, "0.500000", 24, 0, "NO"]
            writer.writerow([*identity, *times, *cells, "N/A", *["0.250000"] * 25])


sys.exit(main())
