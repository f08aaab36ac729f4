"""What is measured: the settings of a run, and the cases that follow from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from tensor_cast.performance_model.collective_measurements import group_tier

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
BACKENDS = ("hccl", "nccl", "gloo")


@dataclass(frozen=True)
class Dtype:
    """A dtype's name in the CSV files and its bytes an element."""

    column: str
    bytes: int


DTYPES = {
    "torch.bfloat16": Dtype("DT_BF16", 2),
    "torch.float16": Dtype("DT_FP16", 2),
    "torch.float32": Dtype("DT_FLOAT", 4),
    "torch.int8": Dtype("DT_INT8", 1),
}
"""Dtypes that can be measured, by torch's name."""

BYTES_GRID = tuple(1 << power for power in range(10, 30))
"""1 KiB to 512 MiB in powers of two."""


@dataclass(frozen=True)
class Settings:
    """What every process of a run must agree on. Sizes in bytes, ``timeout_s`` in seconds."""

    ops: tuple[str, ...]
    num_devices: tuple[int, ...]
    topology_tier: int | None
    grid_shape: tuple[int, ...]
    dtype: str
    bytes_grid: tuple[int, ...]
    backend: str
    iterations: int
    warmup: int
    timeout_s: int

    def to_dict(self) -> dict[str, Any]:
        """The settings as JSON takes them, by the names of their flags."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class Case:
    """One row to measure. ``message_bytes`` is what the files mean by it (see the readme)."""

    op: str
    message_bytes: int
    num_devices: int
    topology_tier: int

    def __str__(self) -> str:
        return f"{self.op} of {self.message_bytes} bytes over {self.num_devices} ranks"


def plan(settings: Settings, world_size: int) -> tuple[list[Case], list[str]]:
    """The cases that ``world_size`` processes can measure, and a sentence for each group size left out or doubtful.

    A group is the ranks 0 … n - 1. Its tier follows from the grid; an explicit one is recorded as it is and limits the
    group to one block of that tier, because a larger one would cross a farther link.
    """
    cases: list[Case] = []
    warnings: list[str] = []
    for devices in settings.num_devices:
        reason = _left_out(settings, devices, world_size)
        if reason:
            warnings.append(f"--num-devices {devices} is left out: {reason}.")
            continue
        spanned = group_tier(settings.grid_shape, devices)
        tier = spanned if settings.topology_tier is None else settings.topology_tier
        if tier != spanned:
            warnings.append(
                f"{devices} ranks are recorded as tier {tier} as asked, though ranks 0 to {devices - 1} of the grid "
                f"{_grid_text(settings.grid_shape)} only span tier {spanned}."
            )
        cases += [Case(op, size, devices, tier) for op in settings.ops for size in settings.bytes_grid]
    return cases, warnings


def named_ranks(ranks: Iterable[int]) -> str:
    """Ranks in words, runs joined: ``rank 3``, ``ranks 0, 2 to 5``."""
    runs: list[list[int]] = []
    for number in sorted(ranks):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    words = ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
    return f"rank {words}" if words.isdigit() else f"ranks {words}"


def _left_out(settings: Settings, devices: int, world_size: int) -> str | None:
    if devices > world_size:
        return f"only {world_size} processes run"
    if devices > prod(settings.grid_shape):
        return f"the grid {_grid_text(settings.grid_shape)} has {prod(settings.grid_shape)} devices"
    if settings.topology_tier is not None:
        block = prod(settings.grid_shape[settings.topology_tier :])
        if devices > block:
            return f"a block of tier {settings.topology_tier} has {block} devices"
    return None


def _grid_text(grid_shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, grid_shape))
