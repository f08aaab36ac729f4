"""Which sharing of several devices is recommended, and what it brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensor_cast.deployment import flag_of
from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.evaluation.flags import Flags
from tensor_cast.evaluation.request import EvaluationRequest, Strategy
from tensor_cast.evaluation.simulator_process import simulate_in_process
from tensor_cast.units import plural

_NAMES = {
    "tp_size": "tensor parallelism",
    "dp_size": "data parallelism",
    "pp_size": "pipeline parallelism",
    "ep_size": "expert parallelism",
}


def recommended_text_flags(model: str, device: DeviceProfile, world: int, *, family: str | None = None) -> Flags:
    """Parallel sizes of a language model on ``world`` devices.

    Raises:
        ModelingError: no such sizes suit the model.
    """
    from tensor_cast.advice import recommend_strategy
    from tensor_cast.models import load_spec

    sizes = recommend_strategy(load_spec(model, family=family), device, world)
    return {flag_of(name): str(size) for name, size in sizes.items() if name != "world_size"}


def recommended_generation_flags(world: int, *, use_cfg: bool) -> Flags:
    """Ulysses over all devices; with classifier-free guidance its two forwards on two halves, Ulysses inside each."""
    if use_cfg and world % 2 == 0:
        return {"--cfg-parallel": True, "--ulysses-size": str(world // 2)}
    return {"--ulysses-size": str(world)}


def strategy_kind(flags: Flags) -> str:
    """``tensor parallelism 4 x data parallelism 2``; sizes of 1 are left out."""
    if any(flag in flags for flag in ("--ulysses-size", "--cfg-parallel")):
        parts = ["CFG parallelism 2"] if flags.get("--cfg-parallel") else []
        size = flags.get("--ulysses-size")
        parts += [f"Ulysses sequence parallelism {size}"] if size not in (None, "1") else []
    else:
        given = {name: flags.get(flag_of(name)) for name in _NAMES}
        parts = [f"{_NAMES[name]} {size}" for name, size in given.items() if size not in (None, "1")]
    return " x ".join(parts) or "one device after another"


def with_consequences(request: EvaluationRequest, flags: Flags) -> Strategy:
    """The recommended strategy with the collectives that it brings, found by running it.

    Raises:
        SimulatorError: the request is wrong otherwise, or the model cannot be shared out so.
    """
    document = simulate_in_process(request.arguments(flags)).document
    return Strategy(
        chosen_by="recommendation",
        flags=flags,
        recommended=flags,
        kind=strategy_kind(flags),
        collectives=tuple(collective_lines(document["collectives"])),
    )


def collective_lines(collectives: Sequence[Mapping[str, Any]]) -> list[str]:
    """``all_to_all over 4 devices, server link: 320 calls``, one a kind and group."""
    calls: dict[tuple[str, int, str], float] = {}
    for one in collectives:
        key = (one["name"], one["group_size"], one["link"])
        calls[key] = calls.get(key, 0.0) + one["count"]
    return [
        f"{name} over {group} devices, {link} link: {plural(count, 'call')}"
        for (name, group, link), count in calls.items()
    ]
