"""Two views of a profile: the document that a device file would hold, and its figures as a flat list."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tensor_cast.devices.profile import DeviceProfile

_UNITS = {
    "matrix_flops": "FLOP/s",
    "vector_flops": "FLOP/s",
    "memory_bytes": "bytes",
    "cache_bytes": "bytes",
    "memory_bandwidth": "bytes/s",
    "bandwidth": "bytes/s",
    "matrix_cores": "cores",
    "vector_cores": "cores",
    "size": "devices",
    "latency_s": "s",
    "fixed_s": "s",
    "launch_gap_s": "s",
    "host_launch_s": "s",
    "matrix_efficiency": "of the peak",
    "memory_efficiency": "of the peak",
    "vector_efficiency": "of the peak",
    "link_efficiency": "of the peak",
    "tiles": "rows x columns",
    "wave_s": "s",
    "step_s": "s",
    "start_s": "s",
    "head_step": "channels",
    "share_bytes": "bytes",
    "peer_s": "s",
    "one_shot_s": "s",
    "direct_bytes": "bytes",
    "direct_reduce_bytes": "bytes",
    "schedule_s": "s",
    "overlap": "of the shorter parts",
}


@dataclass(frozen=True)
class Figure:
    """One figure of a profile by its dotted path, in the unit that the file has it in; tile shapes are text."""

    path: str
    value: float | str
    unit: str
    source: str

    @property
    def assumed(self) -> bool:
        """Whether a rule or a likeness gave it, not a source of its own."""
        return self.source.startswith("assumed")


def as_document(profile: DeviceProfile) -> dict[str, object]:
    """The device file that loads as this profile, every figure written out."""
    document = asdict(profile)
    levels = document.pop("interconnect")["levels"]
    sources = dict(profile.sources)
    if profile.interconnect.device_count > 1:
        document["interconnect"] = list(levels)
    else:  # The level of a device that stands alone is the loader's.
        sources = {path: source for path, source in sources.items() if not path.startswith("interconnect.")}
    return {**document, "sources": sources}


def list_figures(profile: DeviceProfile) -> list[Figure]:
    """Every figure of a profile with unit and source, in the order of the file's keys."""
    values: dict[str, float | str] = {}
    for group in ("matrix_flops", "vector_flops"):
        values.update((f"{group}.{dtype}", rate) for dtype, rate in getattr(profile, group).items())
    for key in ("memory_bytes", "memory_bandwidth", "matrix_cores", "vector_cores", "cache_bytes"):
        values[key] = getattr(profile, key)
    for level in profile.interconnect.levels if profile.interconnect.device_count > 1 else ():
        for key in ("size", "bandwidth", "latency_s"):
            values[f"interconnect.{level.name}.{key}"] = getattr(level, key)
    for kind, cost in profile.kernels.items():
        values.update((f"kernels.{kind}.{key}", _text_of_tiles(value)) for key, value in asdict(cost).items())
    values.update((f"collective.{key}", value) for key, value in asdict(profile.collective).items())
    values.update((key, getattr(profile, key)) for key in ("launch_gap_s", "host_launch_s"))
    return [Figure(path, value, _unit(path), profile.sources.get(path, "")) for path, value in values.items()]


def _text_of_tiles(value: float | tuple[tuple[int, int], ...]) -> float | str:
    return ", ".join(f"{rows}x{columns}" for rows, columns in value) if isinstance(value, tuple) else value


def _unit(path: str) -> str:
    group, _, _ = path.partition(".")
    return _UNITS.get(group) or _UNITS[path.rpartition(".")[2]]
