"""A step as a Chrome trace, which Perfetto (ui.perfetto.dev) opens: a track a stream, a slice a kernel launch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any

from tensor_cast.ops import Collective, Tensor
from tensor_cast.performance_model.roofline import BOUNDS
from tensor_cast.timed_kernels import KernelEstimate, TimedKernels

MAX_SLICES = 200_000
"""About 100 MB of JSON, which Perfetto still opens; a longer step is drawn with each block's launches in one slice."""

_PROCESS = 0
_MICROSECOND = 1e-6


@dataclass(frozen=True)
class _Pass:
    """One pass through a block, or ``repeats`` of them drawn as one."""

    scope: str
    kernels: list[KernelEstimate]
    repeats: float = 1.0


def chrome_trace(timed: TimedKernels, *, title: str) -> str:
    """The trace of an estimate of one point, in the JSON object format; times are in microseconds from its start.

    Every layer is drawn, in the model's order; the streams of a section start together, and what follows it starts
    when the longest of them ends. All time without a kernel (gaps between launches, the host, the engine) is one slice
    at the end, so that the last slice ends at ``total_time_s``. With more than ``MAX_SLICES``
    launches a block is drawn once, its scope ending in how often it runs.
    """
    launches = sum(float(kernel.count) for kernel in timed.kernels)
    passes = _merged_passes(timed.kernels) if launches > MAX_SLICES else _passes(timed.kernels)
    events = [*_names(timed, title), *_slices(passes), *_idle(timed)]
    lines = ",\n".join(json.dumps(event, separators=(",", ":"), allow_nan=False) for event in events)
    return f'{{"displayTimeUnit":"ms","traceEvents":[\n{lines}\n]}}\n'


def _names(timed: TimedKernels, title: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": _PROCESS, "name": "process_name", "args": {"name": title}}
    for stream in sorted({kernel.stream for kernel in timed.kernels} | {0}):
        name = "stream 0 (main)" if stream == 0 else f"stream {stream}"
        yield {"ph": "M", "pid": _PROCESS, "tid": stream, "name": "thread_name", "args": {"name": name}}


def _slices(passes: Iterable[_Pass]) -> Iterator[dict[str, Any]]:
    describe = cache(_description)
    now = 0.0
    for one in passes:
        for section, members in groupby(one.kernels, key=lambda kernel: kernel.section):
            ends: dict[int, float] = {}
            for kernel in members:
                seconds = float(kernel.time.total_s) * one.repeats
                # Outside a section a kernel follows the one before, whatever its stream.
                stream = 0 if section is None else kernel.stream
                start = ends.get(stream, now)
                ends[stream] = start + seconds
                what = describe(kernel)
                yield {
                    "ph": "X",
                    "pid": _PROCESS,
                    "tid": kernel.stream,
                    "ts": start / _MICROSECOND,
                    "dur": seconds / _MICROSECOND,
                    **what,
                    "args": {"scope": one.scope, **what["args"]},
                }
            now = max(ends.values())


def _idle(timed: TimedKernels) -> Iterator[dict[str, Any]]:
    start, end = float(timed.device_time_s), float(timed.total_time_s)
    if end > start:
        where = {"pid": _PROCESS, "tid": 0, "ts": start / _MICROSECOND, "dur": (end - start) / _MICROSECOND}
        yield {"ph": "X", **where, "name": "without a kernel", "cat": "Idle"}


def _passes(kernels: Iterable[KernelEstimate]) -> Iterator[_Pass]:
    """One block after another, repeated ones as often as they run, layers by their index."""
    blocks = [list(members) for _, members in groupby(kernels, key=lambda kernel: kernel.block)]
    for is_layers, run in groupby(blocks, key=lambda block: bool(block[0].layers)):
        if is_layers:
            numbered = ((index, block) for block in run for index in block[0].layers)
            yield from (_Pass(f"layers.{index}", block) for index, block in sorted(numbered, key=itemgetter(0)))
            continue
        for block in run:
            # A pipeline's wait is a kernel of its own beside the transfers of the same block.
            for count, members in groupby(block, key=lambda kernel: float(kernel.count)):
                one = _Pass(block[0].block, list(members))
                yield from repeat(one, int(count))


def _merged_passes(kernels: Iterable[KernelEstimate]) -> Iterator[_Pass]:
    for (name, count), members in groupby(kernels, key=lambda kernel: (kernel.block, float(kernel.count))):
        yield _Pass(name if count == 1.0 else f"{name} x {count:g}", list(members), count)


def _description(kernel: KernelEstimate) -> dict[str, Any]:
    op = kernel.op
    args: dict[str, Any] = {
        "part": op.part,
        "inputs": [_tensor(tensor) for tensor in op.inputs],
        "outputs": [_tensor(tensor) for tensor in op.outputs],
        "flops": float(op.matrix_flops + op.vector_flops),
        "bytes": float(op.bytes),
        "bound": BOUNDS[int(kernel.time.bound)],
        "source": kernel.source,
    }
    if isinstance(op, Collective):
        args |= {"message_bytes": float(op.message_bytes), "group_size": op.group_size}
    return {"name": op.name, "cat": kernel.category, "args": args}


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {"shape": [float(size) if size % 1 else int(size) for size in tensor.shape], "dtype": tensor.dtype}
