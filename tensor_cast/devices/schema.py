"""The keys of a device file and what each may hold; import it where a file is read, msgspec is not free."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar, get_args

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert
from msgspec.structs import fields

from tensor_cast.devices.profile import Topology
from tensor_cast.devices.yaml_document import YamlDocument
from tensor_cast.errors import ModelingError, did_you_mean

# The bounds refuse zero, NaN and infinity; no rate or size of one device comes near 1e24.
Positive = Annotated[float, Meta(gt=0, le=1e24)]
NotNegative = Annotated[float, Meta(ge=0, le=1e24)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=10**9)]
Text = Annotated[str, Meta(min_length=1)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_\-]*$")]
LevelName = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]*$")]


class MatrixRates(Struct, forbid_unknown_fields=True):
    """FLOP/s of matrix work."""

    bfloat16: Positive
    float16: Positive | UnsetType = UNSET
    float32: Positive | UnsetType = UNSET
    fp8: Positive | UnsetType = UNSET
    int8: Positive | UnsetType = UNSET
    int4: Positive | UnsetType = UNSET
    fp4: Positive | UnsetType = UNSET


class VectorRates(Struct, forbid_unknown_fields=True):
    """FLOP/s of vector work."""

    float32: Positive | UnsetType = UNSET
    bfloat16: Positive | UnsetType = UNSET
    float16: Positive | UnsetType = UNSET


class Level(Struct, forbid_unknown_fields=True):
    """One level of the interconnect."""

    name: LevelName
    size: Annotated[int, Meta(ge=2, le=10**7)]
    topology: Topology
    bandwidth: Positive
    latency_s: NotNegative
    shares_ports: bool = False


class Kernel(Struct, forbid_unknown_fields=True):
    """What kernels of a class reach; each key may be left to the family."""

    matrix_efficiency: Fraction | UnsetType = UNSET
    memory_efficiency: Fraction | UnsetType = UNSET
    vector_efficiency: Fraction | UnsetType = UNSET
    fixed_s: NotNegative | UnsetType = UNSET
    tiles: Annotated[tuple[tuple[Count, Count], ...], Meta(min_length=1)] | UnsetType = UNSET
    wave_s: NotNegative | UnsetType = UNSET
    step_s: NotNegative | UnsetType = UNSET
    start_s: NotNegative | UnsetType = UNSET
    share_bytes: NotNegative | UnsetType = UNSET
    overlap: Share | UnsetType = UNSET
    head_step: Count | UnsetType = UNSET


class Kernels(Struct, forbid_unknown_fields=True):
    """Costs by kernel class, and by class and matrix dtype where that differs."""

    matmul: Kernel | UnsetType = UNSET
    matmul_int8: Kernel | UnsetType = UNSET
    matmul_int8_int4: Kernel | UnsetType = UNSET
    matmul_fp8: Kernel | UnsetType = UNSET
    matmul_fp4: Kernel | UnsetType = UNSET
    matmul_conv: Kernel | UnsetType = UNSET
    grouped_matmul: Kernel | UnsetType = UNSET
    grouped_matmul_int8: Kernel | UnsetType = UNSET
    grouped_matmul_int8_int4: Kernel | UnsetType = UNSET
    grouped_matmul_bfloat16_fp4: Kernel | UnsetType = UNSET
    grouped_matmul_fp8: Kernel | UnsetType = UNSET
    grouped_matmul_fp4: Kernel | UnsetType = UNSET
    attention_prefill: Kernel | UnsetType = UNSET
    attention_prefill_int8: Kernel | UnsetType = UNSET
    attention_prefill_fp8: Kernel | UnsetType = UNSET
    attention_prefill_full: Kernel | UnsetType = UNSET
    attention_prefill_fa2: Kernel | UnsetType = UNSET
    attention_prefill_state: Kernel | UnsetType = UNSET
    attention_decode: Kernel | UnsetType = UNSET
    attention_decode_int8: Kernel | UnsetType = UNSET
    attention_decode_fp8: Kernel | UnsetType = UNSET
    attention_decode_state: Kernel | UnsetType = UNSET
    vector: Kernel | UnsetType = UNSET
    vector_flat: Kernel | UnsetType = UNSET


class Collective(Struct, forbid_unknown_fields=True):
    """What collectives reach."""

    link_efficiency: Fraction | UnsetType = UNSET
    fixed_s: NotNegative | UnsetType = UNSET
    peer_s: NotNegative | UnsetType = UNSET
    one_shot_s: NotNegative | UnsetType = UNSET
    direct_bytes: NotNegative | UnsetType = UNSET
    direct_reduce_bytes: NotNegative | UnsetType = UNSET
    schedule_s: NotNegative | UnsetType = UNSET


class Defaults(Struct, forbid_unknown_fields=True):
    """What the devices of a file share; ``fitted_on`` names those that the measurements were taken on."""

    fitted_on: tuple[Name, ...] = ()
    kernels: Kernels | UnsetType = UNSET
    collective: Collective | UnsetType = UNSET
    launch_gap_s: NotNegative | UnsetType = UNSET
    host_launch_s: NotNegative | UnsetType = UNSET
    sources: dict[str, Text] = {}


class Device(Struct, forbid_unknown_fields=True):
    """One device; ``name`` stands in it where the file holds it alone, else the file's mapping names it."""

    matrix_flops: MatrixRates
    memory_bytes: Positive
    memory_bandwidth: Positive
    name: Name | UnsetType = UNSET
    aliases: tuple[Name, ...] = ()
    vendor: Text | UnsetType = UNSET
    family: Name | UnsetType = UNSET
    description: str = ""
    vector_flops: VectorRates | UnsetType = UNSET
    matrix_cores: Count | UnsetType = UNSET
    vector_cores: Count | UnsetType = UNSET
    cache_bytes: NotNegative | UnsetType = UNSET
    interconnect: Annotated[tuple[Level, ...], Meta(min_length=1)] | UnsetType = UNSET
    kernels: Kernels | UnsetType = UNSET
    collective: Collective | UnsetType = UNSET
    launch_gap_s: NotNegative | UnsetType = UNSET
    host_launch_s: NotNegative | UnsetType = UNSET
    sources: dict[str, Text] = {}


class File(Struct, forbid_unknown_fields=True):
    """A file of several devices."""

    devices: Annotated[dict[str, Any], Meta(min_length=1)]
    family: Name | UnsetType = UNSET
    vendor: Text | UnsetType = UNSET
    defaults: Defaults | UnsetType = UNSET


StructType = TypeVar("StructType", bound=Struct)


def read_as(document: YamlDocument, at: str, kind: type[StructType]) -> StructType:
    """The part of ``document`` at the path ``at`` (``$`` is all of it), checked against ``kind``.

    Raises:
        ModelingError: names the file, the line, the path and what was expected there.
    """
    value = document.lookup(at)
    for path, key, known in _unknown_keys(value, kind, at):
        hint = did_you_mean(key, known) or f" The keys here are {', '.join(known)}."
        raise ModelingError(f"{document.place(f'{path}.{key}')}: {_shown(path, key)}: there is no such key.{hint}")
    try:
        return convert(value, kind)
    except ValidationError as error:
        raise ModelingError(_explain(document, at, str(error))) from None


def _unknown_keys(value: object, kind: Any, at: str) -> Iterator[tuple[str, str, list[str]]]:
    """Path, key and known keys of each key that no field takes."""
    struct = _struct_within(kind)
    if struct is None:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown_keys(item, struct, f"{at}[{index}]")
    elif isinstance(value, dict):
        known = {field.name: field.type for field in fields(struct)}
        for key, child in value.items():
            if key in known:
                yield from _unknown_keys(child, known[key], f"{at}.{key}")
            else:
                yield at, key, list(known)


def _struct_within(kind: Any) -> type[Struct] | None:
    """The structure that a field's type is made of: ``Level`` of ``tuple[Level, ...] | UnsetType``."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return kind
    return next(filter(None, map(_struct_within, get_args(kind))), None)


def _shown(path: str, key: str = "") -> str:
    """A path as people write it: without the root and with the key at its end."""
    return f"{path}.{key}".removeprefix("$").strip(".") or "the file"


_KINDS = {
    "`float`": "a number",
    "`int`": "a whole number",
    "`str`": "text",
    "`array`": "a list",
    "`object`": "a mapping",
}


def _explain(document: YamlDocument, at: str, message: str) -> str:
    """One sentence of ours from msgspec's ``Expected `float`, got `str` - at `$.memory_bytes```."""
    what, _, where = message.partition(" - at ")
    path = at + where.strip("`").removeprefix("$")
    missing = re.fullmatch(r"Object missing required field `(\w+)`", what)
    if missing:
        return f"{document.place(path)}: {_shown(path, missing[1])} is missing; a profile needs it."
    if path.endswith("[...]"):  # A free mapping of texts; msgspec does not say which key it means.
        path = path.removesuffix("[...]")
        texts = document.lookup(path)
        assert isinstance(texts, dict)
        key, value = next((key, text) for key, text in texts.items() if not (isinstance(text, str) and text))
        path += f".{key}"
    else:
        value = document.lookup(path)
    what = what.partition(", got")[0].removeprefix("Expected ")
    if what.startswith("Invalid enum value"):
        what = f"one of {', '.join(get_args(Topology))}"
    for name, words in _KINDS.items():
        what = what.replace(name, words)
    return f"{document.place(path)}: {_shown(path)}: expected {what}, got {_described(value)}."


def _described(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return str(value).lower() if isinstance(value, bool) else repr(value)
