"""What to change: parallel sizes for a number of devices, and what would make a request fit.

Every suggestion is checked by building it: sizes that the model refuses are not suggested, and "fits" is the memory
that the same request with the change really has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensor_cast.deployment import Deployment, flag_of
from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.errors import ModelingError
from tensor_cast.memory import MemoryEstimate, text_memory
from tensor_cast.models.decoder import build
from tensor_cast.models.parameters import ONE_TOKEN
from tensor_cast.models.spec import ModelSpec
from tensor_cast.quantization import eight_bit_schemes
from tensor_cast.workload import TextWorkload

MAX_TENSOR_PARALLEL = 8
_SWEEP_POINTS = 1024
_UNREACHED = 10**12
"""More sequences than any deployment holds."""


def recommend_strategy(spec: ModelSpec, device: DeviceProfile, world_size: int) -> dict[str, int]:
    """Parallel sizes for ``world_size`` devices, as keyword arguments of ``Deployment``.

    Tensor parallelism is the largest size up to 8 that stays inside a server (all levels of the interconnect but the
    outermost) and divides the model; data parallelism takes the rest; routed experts are spread over as many devices
    as divide them, all of them where possible.

    Raises:
        ModelingError: no such sizes suit the model.
    """
    for sizes in _strategies(spec, device, world_size):
        if _is_accepted(spec, sizes):
            return sizes
    raise ModelingError(f"No parallel sizes for {world_size} devices suit {spec.name}.")


def _strategies(spec: ModelSpec, device: DeviceProfile, world_size: int) -> Iterator[dict[str, int]]:
    levels = device.interconnect.levels
    server = int(np.prod([level.size for level in levels[1:] or levels], dtype=np.int64))
    for tp in reversed(_divisors(world_size, min(MAX_TENSOR_PARALLEL, server))):
        sizes = {"world_size": world_size, "tp_size": tp, "dp_size": world_size // tp}
        if not spec.has_experts:
            yield sizes
            continue
        yield {**sizes, "ep_size": world_size}
        for ep in reversed(_divisors(world_size, world_size // 2)):
            # Replicas rather than slices of experts: the group stays as small as the experts divide into.
            yield {**sizes, "ep_size": ep, "moe_tp_size": 1}


def _divisors(number: int, limit: int) -> list[int]:
    return [divisor for divisor in range(1, min(number, limit) + 1) if number % divisor == 0]


def _is_accepted(spec: ModelSpec, sizes: Mapping[str, Any]) -> bool:
    try:
        build(spec, ONE_TOKEN, Deployment(**sizes))
    except ModelingError:
        return False
    return True


def as_flags(changes: dict[str, int | str]) -> str:
    """Keyword arguments of ``Deployment`` and ``TextWorkload`` as they are typed: ``--tp-size 8 --dp-size 2``."""
    return " ".join(f"{flag_of(name)} {value}" for name, value in changes.items())


@dataclass(frozen=True)
class Remedy:
    """A change of the request after which it fits, and the bytes that the fullest device then needs."""

    changes: dict[str, int | str]
    used_bytes: float

    @property
    def flags(self) -> str:
        """The change as it is typed."""
        return as_flags(self.changes)


@dataclass(frozen=True)
class _Request:
    spec: ModelSpec
    device: DeviceProfile
    workload: TextWorkload
    deployment: Deployment
    reserved_bytes: float

    def memory(self, **changes: Any) -> MemoryEstimate:
        """Memory with ``changes`` applied to the workload and the deployment."""
        workload = replace(self.workload, **{k: v for k, v in changes.items() if hasattr(self.workload, k)})
        deployment = replace(self.deployment, **{k: v for k, v in changes.items() if hasattr(self.deployment, k)})
        step = build(self.spec, workload, deployment)
        return text_memory(self.spec, step, workload, deployment, self.device, reserved_bytes=self.reserved_bytes)

    def try_changes(self, changes: dict[str, int | str]) -> Remedy | None:
        """The remedy, or ``None`` when the model refuses the changes or it still does not fit."""
        try:
            memory = self.memory(**changes)
        except ModelingError:
            return None
        return Remedy(changes, float(memory.used_bytes)) if memory.fits else None


def what_would_fit(
    spec: ModelSpec,
    *,
    device: DeviceProfile,
    workload: TextWorkload,
    deployment: Deployment,
    reserved_bytes: float = 0.0,
    limit: int = 2,
) -> tuple[Remedy, ...]:
    """Changes after which a request of one point fits, the gentlest first, at most ``limit``.

    Tried are fewer queries, 8-bit weights where the device has a rate for them, more devices (twice, four times ...
    up to the interconnect), and the last two together.
    """
    request = _Request(spec, device, workload, deployment, reserved_bytes)
    found: list[Remedy] = []
    for remedy in _remedies(request):
        found.append(remedy)
        if len(found) == limit:
            break
    return tuple(found)


def _remedies(request: _Request) -> Iterator[Remedy]:
    if fewer := _fewer_queries(request):
        yield fewer
    alone = [remedy for scheme in _eight_bit(request) if (remedy := request.try_changes({"quantize_linear": scheme}))]
    yield from alone[:1]
    more_devices = _more_devices(request, {})
    if more_devices:
        yield more_devices
    elif not alone:
        for scheme in _eight_bit(request):
            if both := _more_devices(request, {"quantize_linear": scheme}):
                yield both
                return


def _eight_bit(request: _Request) -> list[str]:
    if request.deployment.quantize_linear != "DISABLED" or request.deployment.quantize_non_expert_linear:
        return []
    return eight_bit_schemes(request.device.matrix_flops)


def most_queries(
    spec: ModelSpec,
    *,
    device: DeviceProfile,
    workload: TextWorkload,
    deployment: Deployment,
    reserved_bytes: float = 0.0,
) -> int:
    """The most sequences that fit over the whole deployment, with all else as requested; 0 where not even one does."""
    request = _Request(spec, device, workload, deployment, reserved_bytes)
    found = _most_that_fit(request, _UNREACHED)
    return 0 if found is None else found[0]


def _fewer_queries(request: _Request) -> Remedy | None:
    found = _most_that_fit(request, int(request.workload.num_queries))
    return None if found is None else Remedy({"num_queries": found[0]}, found[1])


def _most_that_fit(request: _Request, too_many: int) -> tuple[int, float] | None:
    """The most queries below ``too_many`` that fit, and the bytes that they need; ``None`` where not even one does.

    Memory grows with them, so each sweep narrows the range a thousandfold.
    """
    fits, used = 0, 0.0
    while too_many - fits > 1:
        count = min(_SWEEP_POINTS, too_many - 1 - fits)
        space = np.geomspace if too_many > _SWEEP_POINTS * (fits + 1) else np.linspace
        points = np.unique(np.floor(space(fits + 1, too_many - 1, count)))
        memory = request.memory(num_queries=points)
        good = np.flatnonzero(np.broadcast_to(memory.fits, points.shape))
        if not good.size:
            too_many = int(points[0])
            continue
        best = int(good[-1])
        fits, used = int(points[best]), float(np.broadcast_to(memory.used_bytes, points.shape)[best])
        too_many = int(points[best + 1]) if best + 1 < points.size else too_many
    return (fits, used) if fits else None


def _more_devices(request: _Request, changes: dict[str, int | str]) -> Remedy | None:
    """The fewest devices that suffice: all of them in the tensor-parallel group, else as is recommended for so many."""
    parallel = request.deployment.parallelism(has_experts=request.spec.has_experts)
    factor = 2
    while (world := parallel.world * factor) <= request.device.interconnect.device_count:
        by_tensor: dict[str, int | str] = {"world_size": world, "tp_size": parallel.tp * factor}
        if parallel.dp > 1:
            by_tensor["dp_size"] = parallel.dp
        if parallel.ep > 1:
            by_tensor["ep_size"] = parallel.ep * factor
        recommended: dict[str, int | str] = dict(recommend_strategy(request.spec, request.device, world))
        if parallel.pp > 1:
            recommended["pp_size"] = 1
        for sizes in (by_tensor, recommended):
            if remedy := request.try_changes({**changes, **sizes}):
                return remedy
        factor *= 2
    return None
