"""One device of a file to a profile: stated figures first, then the family's, then the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from msgspec import Struct, UnsetType
from msgspec.structs import asdict

from tensor_cast.devices import rules
from tensor_cast.devices.profile import (
    KERNEL_CLASSES,
    CollectiveCost,
    DeviceProfile,
    Interconnect,
    KernelCost,
    LinkLevel,
)
from tensor_cast.devices.schema import Defaults, Device, Kernels
from tensor_cast.devices.yaml_document import YamlDocument
from tensor_cast.errors import ModelingError, did_you_mean

Value = TypeVar("Value")
Number = TypeVar("Number", int, float)


def build_profile(
    document: YamlDocument, at: str, name: str, device: Device, defaults: Defaults, family: str, vendor: str
) -> DeviceProfile:
    """The profile of the device at the path ``at`` of ``document``.

    Raises:
        ModelingError: a source is given for a figure that the device lacks, or two levels share a name.
    """
    figures = _Figures(document.path.name, name, device, defaults)
    matrix = {dtype: figures.stated(f"matrix_flops.{dtype}", rate) for dtype, rate in _given(device.matrix_flops)}
    vector = {dtype: figures.stated(f"vector_flops.{dtype}", rate) for dtype, rate in _given(device.vector_flops)}
    half = matrix["bfloat16"]
    figures.derive("matrix_flops", matrix, "float16", half, rules.FLOAT16)
    figures.derive("vector_flops", vector, "float32", half * rules.VECTOR_SHARE, rules.FLOAT32_VECTOR)
    figures.derive("matrix_flops", matrix, "float32", vector["float32"], rules.FLOAT32_MATRIX)
    matrix_cores = figures.stated_or("matrix_cores", device.matrix_cores, 1, rules.MATRIX_CORES)
    profile = DeviceProfile(
        name=name,
        vendor=device.vendor or vendor,
        family=family,
        description=device.description,
        matrix_flops=matrix,
        vector_flops=vector,
        memory_bytes=figures.stated("memory_bytes", device.memory_bytes),
        memory_bandwidth=figures.stated("memory_bandwidth", device.memory_bandwidth),
        matrix_cores=matrix_cores,
        vector_cores=figures.stated_or("vector_cores", device.vector_cores, matrix_cores, rules.VECTOR_CORES),
        cache_bytes=figures.stated_or("cache_bytes", device.cache_bytes, 0.0, rules.CACHE),
        interconnect=_interconnect(document, at, device, figures),
        kernels=figures.kernels(),
        collective=figures.collective(),
        launch_gap_s=figures.shared("launch_gap_s", rules.LAUNCH_GAP_S, rules.LAUNCH_GAP),
        host_launch_s=figures.shared("host_launch_s", rules.HOST_LAUNCH_S, rules.HOST_LAUNCH),
        sources=figures.sources,
    )
    for path in device.sources:
        if not any(_covers(path, figure) for figure in figures.sources):
            raise ModelingError(
                f"{document.place(f'{at}.sources.{path}')}: sources.{path}: the device has no such figure."
                + did_you_mean(path, figures.sources)
            )
    return profile


class _Figures:
    """Takes figures from a device, its family or a rule, and notes the source of each by its dotted path."""

    def __init__(self, file_name: str, name: str, device: Device, defaults: Defaults) -> None:
        self.sources: dict[str, str] = {}
        self._unsourced = f"stated in {file_name}"
        self._name = name
        self._device = device
        self._defaults = defaults

    def stated(self, path: str, value: Value) -> Value:
        """A figure that the device's own entry gives."""
        self.sources[path] = _longest_prefix(self._device.sources, path) or self._unsourced
        return value

    def stated_or(self, path: str, value: Number | UnsetType, assumed: Number, rule: str) -> Number:
        """A figure of the device's own entry, or the one that a rule assumes."""
        if not isinstance(value, UnsetType):
            return self.stated(path, value)
        self.sources[path] = rule
        return assumed

    def shared(self, path: str, assumed: float, rule: str) -> float:
        """A figure of the device's own entry, of its family, or the one that a rule assumes."""
        own, shared = getattr(self._device, path), getattr(self._defaults, path)
        if isinstance(own, UnsetType) and not isinstance(shared, UnsetType):
            self.sources[path] = self._family_source(path)
            return float(shared)
        stated: float = self.stated_or(path, own, assumed, rule)
        return stated

    def derive(self, group: str, rates: dict[str, float], dtype: str, assumed: float, rule: str) -> None:
        """Give ``rates`` the dtype that it lacks."""
        if dtype not in rates:
            rates[dtype] = assumed
            self.sources[f"{group}.{dtype}"] = rule

    def kernels(self) -> dict[str, KernelCost]:
        """Costs of every kernel class, and of each class and dtype that the device or its family sets apart."""
        costs: dict[str, KernelCost] = {}
        for kind in KERNEL_CLASSES:
            own, shared = _kernel(self._device.kernels, kind), _kernel(self._defaults.kernels, kind)
            costs[kind] = self._kernel(kind, own, shared, rules.KERNELS[kind])
        for key in (field for field in Kernels.__struct_fields__ if field not in costs):
            own, shared = _kernel(self._device.kernels, key), _kernel(self._defaults.kernels, key)
            if own or shared:
                base = key.rpartition("_")[0]
                while base not in costs:
                    base = base.rpartition("_")[0]
                costs[key] = self._kernel(key, own, shared, costs[base])
                for figure in _KERNEL_KEYS:
                    if figure not in own and figure not in shared:
                        self.sources[f"kernels.{key}.{figure}"] = self.sources[f"kernels.{base}.{figure}"]
        return costs

    def _kernel(self, key: str, own: Mapping[str, Any], shared: Mapping[str, Any], otherwise: KernelCost) -> KernelCost:
        """One row of costs, each figure from the first of device, family and ``otherwise`` that has it."""
        return KernelCost(
            **{
                figure: self._layered(f"kernels.{key}.{figure}", own, shared, getattr(otherwise, figure))
                for figure in _KERNEL_KEYS
            }
        )

    def collective(self) -> CollectiveCost:
        """Costs of collectives, found in the same order."""
        own, shared = dict(_given(self._device.collective)), dict(_given(self._defaults.collective))
        return CollectiveCost(
            **{
                key: self._layered(f"collective.{key}", own, shared, getattr(rules.COLLECTIVE, key))
                for key in _COLLECTIVE_KEYS
            }
        )

    def _layered(self, path: str, own: Mapping[str, Number], shared: Mapping[str, Number], assumed: Number) -> Number:
        key = path.rpartition(".")[2]
        if key in own:
            return self.stated(path, own[key])
        if key in shared:
            self.sources[path] = self._family_source(path)
            return shared[key]
        self.sources[path] = rules.ROOFLINE if key in rules.NEUTRAL else rules.KERNEL
        return assumed

    def _family_source(self, path: str) -> str:
        source = _longest_prefix(self._defaults.sources, path) or self._unsourced
        fitted_on = self._defaults.fitted_on
        if self._name in fitted_on or source.startswith("assumed"):
            return source
        return f"assumed: as {' and '.join(fitted_on)}; {source}" if fitted_on else source


_COLLECTIVE_KEYS = tuple(field.name for field in fields(CollectiveCost))
_KERNEL_KEYS = tuple(field.name for field in fields(KernelCost))


def _given(struct: Struct | UnsetType) -> list[tuple[str, Any]]:
    """The fields that a file gives of a structure, itself optional."""
    if isinstance(struct, UnsetType):
        return []
    return [(key, value) for key, value in asdict(struct).items() if not isinstance(value, UnsetType)]


def _kernel(kernels: Kernels | UnsetType, key: str) -> dict[str, Any]:
    return {} if isinstance(kernels, UnsetType) else dict(_given(getattr(kernels, key)))


def _interconnect(document: YamlDocument, at: str, device: Device, figures: _Figures) -> Interconnect:
    if isinstance(device.interconnect, UnsetType):
        # What a device sends to itself goes through its memory: a finite rate keeps divisions by it finite.
        for key in ("size", "bandwidth", "latency_s"):
            figures.sources[f"interconnect.device.{key}"] = rules.NO_LINK
        return Interconnect((LinkLevel("device", 1, "switched", device.memory_bandwidth, 0.0),))
    levels: dict[str, LinkLevel] = {}
    for index, level in enumerate(device.interconnect):
        if level.name in levels:
            place = document.place(f"{at}.interconnect[{index}].name")
            raise ModelingError(f"{place}: interconnect: two levels are named {level.name}; name them apart.")
        for key in ("size", "bandwidth", "latency_s"):
            figures.stated(f"interconnect.{level.name}.{key}", None)
        levels[level.name] = LinkLevel(
            level.name, level.size, level.topology, level.bandwidth, level.latency_s, level.shares_ports
        )
    return Interconnect(tuple(levels.values()))


def _covers(source: str, figure: str) -> bool:
    return figure == source or figure.startswith(f"{source}.")


def _longest_prefix(sources: Mapping[str, str], path: str) -> str | None:
    """The source given for a figure, or for the nearest group that it stands in."""
    while path:
        if path in sources:
            return sources[path]
        path = path.rpartition(".")[0]
    return None
