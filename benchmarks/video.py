"""Speed of video-generate: a whole process, cold, and sweeps through the API.

    python benchmarks/video.py [--runs 5]

Targets: the process under 0.5 s and 120 MiB; 1,000 points of a sweep under 100 ms, equal to single runs to 1e-12.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
MODEL, DEVICE = "Wan-AI/Wan2.2-T2V-A14B-Diffusers", "ATLAS_800_A2_376T_64G"
COMMAND = (
    "-m", "cli.inference.video_generate", MODEL, "--device", DEVICE, "--height", "480", "--width", "832",
    "--frame-num", "81", "--quantize-linear-action", "W8A8_DYNAMIC", "--sample-step", "28", "--world-size", "8",
    "--ulysses-size", "4", "--use-cfg", "--cfg-parallel",
)  # fmt: skip


def process() -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak MiB of the whole command."""
    started = time.perf_counter()
    child = subprocess.Popen([sys.executable, *COMMAND], cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        raise SystemExit(f"the command failed with status {os.waitstatus_to_exitcode(status)}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def sweep() -> tuple[float, float]:
    """Seconds for 20 resolutions x 50 numbers of steps, and the largest relative difference to single runs."""
    from tensor_cast.video_deployment import VideoDeployment
    from tensor_cast.video_simulator import simulate_video
    from tensor_cast.video_workload import VideoWorkload

    deployment = VideoDeployment(world_size=8, ulysses_size=8, quantize_linear="W8A8_DYNAMIC", compile=True)
    heights, steps = np.arange(240, 560, 16.0)[:, None], np.arange(1.0, 51.0)
    simulate_video(
        MODEL, device=DEVICE, workload=VideoWorkload(height=480, width=832, frame_num=81), deployment=deployment
    )
    started = time.perf_counter()
    many = simulate_video(
        MODEL,
        device=DEVICE,
        workload=VideoWorkload(height=heights, width=832, frame_num=81, sample_step=steps),
        deployment=deployment,
    )
    total = np.broadcast_to(many.total_time_s, (20, 50))
    seconds = time.perf_counter() - started
    worst = 0.0
    for row, column in ((0, 0), (7, 27), (19, 49)):
        one = simulate_video(
            MODEL,
            device=DEVICE,
            workload=VideoWorkload(height=heights[row, 0], width=832, frame_num=81, sample_step=steps[column]),
            deployment=deployment,
        )
        worst = max(worst, abs(float(total[row, column]) / float(one.total_time_s) - 1.0))
    return seconds, worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    found = [process() for _ in range(arguments.runs)]
    wall, cpu, memory = (sorted(column) for column in zip(*found, strict=True))
    middle = arguments.runs // 2
    print(
        f"process: median {wall[middle]:.3f} s ({cpu[middle]:.3f} s of CPU), best {wall[0]:.3f} s; {memory[-1]:.0f} MiB"
    )
    took, worst = sweep()
    print(f"sweep of 1,000 points: {took * 1e3:.1f} ms, largest difference to single runs {worst:.1e}")


if __name__ == "__main__":
    main()
