"""Names of results directories: ``wan2.2_t2v-14b_a2-376t-64g_w4_u4_cfg0``, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_UNWANTED = re.compile(r"[^a-z0-9.]+")
# The prefixes of a server's series say nothing that the rest of a device's name does not.
_SERVER_SERIES = re.compile(r"^ATLAS_(800_)?")
_SLUG = r"[a-z0-9][a-z0-9.\-]*"
_NAME = re.compile(
    rf"(?P<model>{_SLUG})_(?P<spec>{_SLUG})_(?P<device>{_SLUG})"
    r"_(?:(?:w(?P<world>\d+)|d(?P<short_world>\d+))_u(?P<ulysses>\d+)_cfg(?P<cfg>\d+)"
    r"|w(?P<text_world>\d+)_tp(?P<tp>\d+)_dp(?P<dp>\d+)_ep(?P<ep>\d+))"
    r"(?:_run(?P<run>\d+))?"
)

TEXT_SIZES = ("tp", "dp", "ep")
GENERATION_SIZES = ("ulysses", "cfg")
_PREFIXES = {"ulysses": "u"}


@dataclass(frozen=True)
class ResultsName:
    """What a results directory's name says. ``sizes`` has ``ulysses`` and ``cfg``, or ``tp``, ``dp`` and ``ep``.

    ``cfg`` is 0 without CFG parallelism, else the number of its groups. ``run`` counts runs of one configuration;
    the first has no suffix.
    """

    model: str
    spec: str
    device: str
    world: int
    sizes: dict[str, int]
    run: int = 1

    def __str__(self) -> str:
        sizes = "_".join(f"{_PREFIXES.get(name, name)}{size}" for name, size in self.sizes.items())
        suffix = f"_run{self.run}" if self.run > 1 else ""
        return f"{self.model}_{self.spec}_{self.device}_w{self.world}_{sizes}{suffix}"


def slug(text: str) -> str:
    """``text`` in small letters, digits, dots and hyphens."""
    return _UNWANTED.sub("-", text.casefold()).strip("-.") or "unnamed"


def device_slug(name: str) -> str:
    """``ATLAS_800_A2_376T_64G`` -> ``a2-376t-64g``."""
    return slug(_SERVER_SERIES.sub("", name))


def results_name(model: str, spec: str, device: str, parallel: Mapping[str, int], *, is_text: bool) -> ResultsName:
    """The name of a configuration's first run; ``parallel`` has ``world`` and the sizes of its kind.

    A generation's ``cfg`` of one group, which is no parallelism, is written 0.
    """
    names = TEXT_SIZES if is_text else GENERATION_SIZES
    sizes = {name: int(parallel[name]) for name in names}
    if sizes.get("cfg") == 1:
        sizes["cfg"] = 0
    return ResultsName(slug(model), slug(spec), device_slug(device), int(parallel["world"]), sizes)


def parse_results_name(text: str) -> ResultsName | None:
    """What a directory's name says, or None when it is no such name.

    Older results have ``_d4_u2_cfg2``: d is the number of devices.
    """
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    names = TEXT_SIZES if match["text_world"] else GENERATION_SIZES
    world = match["text_world"] or match["world"] or match["short_world"]
    return ResultsName(
        match["model"],
        match["spec"],
        match["device"],
        int(world),
        {name: int(match[name]) for name in names},
        int(match["run"] or 1),
    )
