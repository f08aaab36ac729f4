"""What a serving engine and its host add to the kernels of a step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tensor_cast.errors import ModelingError, did_you_mean
from tensor_cast.performance_model.roofline import KernelTime
from tensor_cast.quantity import Quantity

if TYPE_CHECKING:
    from tensor_cast.devices.profile import DeviceProfile

DATA = Path(__file__).with_name("engines.yaml")


@dataclass(frozen=True)
class Engine:
    """Constants of one engine, all zero for ``none``.

    ``step_s`` is its own time a step (scheduling, sampling, preparing the next batch) that the device waits for.
    ``launch_overlap`` is the share of a compute kernel's fixed cost that hides behind the kernel before it when a graph
    launches both. ``request_s`` is what a request costs before its first step: HTTP, tokens, admission.
    ``expert_layer_s`` is what each layer of experts adds to that step beyond its kernels; it is seen in first tokens
    alone, and that a step with prompts is launched eagerly is its likely cause.
    ``expert_step_s`` is what it adds to every step beyond its kernels, as output tokens tell; its cause is not known.
    ``prefill_share`` is the part of others' prefills that a decoding request waits for, and ``queue_share`` the part of
    others' prefills that a new request waits for, both of those that it could meet; over 1 where prefills take longer
    beside decodes than priced alone. Only a model of serving, not of one step, needs them. Tokens of an expert vary by
    ``expert_spread`` of their mean (standard deviation) where nothing is known of a deployment's experts. ``kernels``
    has figures of kernels that the engine brings along, by device family and row of a profile's costs
    (``tensor_cast.performance_model.engine_kernels``). ``sources`` says where each figure comes from.
    """

    name: str
    step_s: float
    launch_overlap: float
    request_s: float
    expert_layer_s: float
    expert_step_s: float
    prefill_share: float
    queue_share: float
    expert_spread: float
    sources: dict[str, str]
    kernels: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    def own_step_s(self, expert_layers: int) -> float:
        """Seconds of every step beyond its kernels."""
        return self.step_s + self.expert_step_s * expert_layers

    def first_step_s(self, expert_layers: int) -> float:
        """Seconds that the first step of a request takes beyond ``own_step_s``."""
        return self.request_s + self.expert_layer_s * expert_layers


@cache
def engines() -> dict[str, Engine]:
    """Every engine by name."""
    import msgspec

    from tensor_cast.devices.yaml_document import read_yaml

    value = read_yaml(DATA).value
    assert isinstance(value, dict)
    return {name: msgspec.convert({"name": name, **figures}, Engine) for name, figures in value.items()}


def get_engine(name: str) -> Engine:
    """The engine called ``name``.

    Raises:
        ModelingError: there is none.
    """
    try:
        return engines()[name]
    except KeyError:
        raise ModelingError(
            f"Unknown engine {name!r}: one of {', '.join(engines())}.{did_you_mean(name, engines())}"
        ) from None


def chained(time: KernelTime, engine: Engine | None) -> KernelTime:
    """``time`` of a compute kernel in a graph of ``engine``: without the part of its launch that hides."""
    if engine is None or not engine.launch_overlap:
        return time
    return replace(time, fixed_s=time.fixed_s * (1.0 - engine.launch_overlap))


def idle_time(
    device_time_s: Quantity,
    launches: Quantity,
    device: DeviceProfile,
    engine: Engine | None = None,
    *,
    eager: bool = False,
    request: bool = False,
    expert_layers: int = 0,
) -> Quantity:
    """Seconds of a step in which the device runs no kernel.

    Args:
        device_time_s: the kernels.
        launches: how many; each waits for the device's gap. In eager mode the host launches them one by one, and the
            device waits for it where that takes longer than the kernels.
        device: whose gap, and whose host.
        engine: its own time a step.
        eager: whether kernels are launched one by one instead of as a graph.
        request: whether the step is the first of its requests.
        expert_layers: of the model.
    """
    gaps: Quantity = launches * device.launch_gap_s
    if eager:
        gaps = np.maximum(gaps, launches * device.host_launch_s - device_time_s)
    if engine is None:
        return gaps
    return gaps + engine.own_step_s(expert_layers) + (engine.first_step_s(expert_layers) if request else 0.0)
