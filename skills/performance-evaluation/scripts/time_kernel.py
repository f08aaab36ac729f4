#!/usr/bin/env python3
"""Time one kernel on a real device: warm-up, synchronise, many runs, the median; and its launch apart from it.

    python skills/performance-evaluation/scripts/time_kernel.py matmul --m 4096 --k 4096 --n 4096

Needs PyTorch; on an Ascend device torch_npu too. On a device with events a run is timed on the device itself, on a CPU
by the clock.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Microseconds: of a run on the device, of enqueueing one on the host, and of one of many back to back."""

    device: str
    median_us: float
    fastest_us: float
    slowest_us: float
    host_launch_us: float
    back_to_back_us: float
    repeats: int

    @property
    def launch_bound(self) -> bool:
        """Whether the host is slower to launch a kernel than the device to run it."""
        return self.device != "cpu" and self.host_launch_us > self.median_us


def best_device() -> str:
    """The accelerator that PyTorch finds, or the CPU."""
    import torch

    try:
        import torch_npu  # noqa: F401
    except ImportError:
        pass
    else:
        return "npu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def measure(run: Callable[[], Any], device: str, *, warm_up: int, repeats: int) -> Timing:
    """Time ``run``, which launches one kernel on ``device``."""
    backend = _backend(device)
    for _ in range(warm_up):  # compiles, fills caches, and lets clocks rise
        run()
    backend.synchronise()
    times = [backend.time_us(run) for _ in range(repeats)]
    backend.synchronise()
    started = time.perf_counter()
    for _ in range(repeats):
        run()
    launched = time.perf_counter()
    backend.synchronise()
    ended = time.perf_counter()
    return Timing(
        device=device,
        median_us=median(times),
        fastest_us=min(times),
        slowest_us=max(times),
        host_launch_us=(launched - started) / repeats * 1e6,
        back_to_back_us=(ended - started) / repeats * 1e6,
        repeats=repeats,
    )


class _Clock:
    """A CPU runs a kernel when it is called."""

    def synchronise(self) -> None:
        pass

    def time_us(self, run: Callable[[], Any]) -> float:
        started = time.perf_counter()
        run()
        return (time.perf_counter() - started) * 1e6


class _Events:
    """A device records when it reaches an event, so that the host's part is not counted."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def synchronise(self) -> None:
        self._module.synchronize()

    def time_us(self, run: Callable[[], Any]) -> float:
        first, last = (self._module.Event(enable_timing=True) for _ in range(2))
        first.record()
        run()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e3


def _backend(device: str) -> _Clock | _Events:
    import torch

    return _Clock() if device == "cpu" else _Events(getattr(torch, device))


def _kernel(arguments: argparse.Namespace, device: str) -> Callable[[], Any]:
    import torch

    dtype = getattr(torch, arguments.dtype)
    left = torch.randn(arguments.m, arguments.k, device=device).to(dtype)
    if arguments.kernel == "add":
        return lambda: torch.add(left, left)
    right = torch.randn(arguments.k, arguments.n, device=device).to(dtype)
    return lambda: torch.matmul(left, right)


def main(argv: Sequence[str] | None = None) -> int:
    """Time what the arguments name; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="time_kernel.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kernel", choices=("matmul", "add"), help="matmul: (m, k) by (k, n); add: (m, k) to itself")
    for name in ("m", "k", "n"):
        parser.add_argument(f"--{name}", type=int, default=1024, metavar="N", help="a size (default: 1024)")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--device", choices=("npu", "cuda", "cpu"), help="(default: what PyTorch finds)")
    parser.add_argument("--warm-up", type=int, default=10, metavar="N", help="runs that are not timed (default: 10)")
    parser.add_argument("--repeats", type=int, default=50, metavar="N", help="runs that are timed (default: 50)")
    parser.add_argument("--json", action="store_true", help="print the times as JSON")
    arguments = parser.parse_args(argv)
    try:
        device = arguments.device or best_device()
    except ImportError:
        print('error: PyTorch is not installed: pip install "msmodeling[torch]".', file=sys.stderr)
        return 2
    timing = measure(_kernel(arguments, device), device, warm_up=arguments.warm_up, repeats=arguments.repeats)
    if arguments.json:
        print(json.dumps({**asdict(timing), "launch_bound": timing.launch_bound}, indent=2))
        return 0
    print(f"{arguments.kernel} on {device}, {timing.repeats} runs")
    print(f"  median {timing.median_us:.1f} us (fastest {timing.fastest_us:.1f}, slowest {timing.slowest_us:.1f})")
    print(f"  host launches one in {timing.host_launch_us:.1f} us, back to back {timing.back_to_back_us:.1f} us each")
    if timing.launch_bound:
        print("  launch-bound: the device waits for the host; a graph, or fewer and larger kernels, would help")
    return 0


if __name__ == "__main__":
    sys.exit(main())
