"""The chapter of memory: what fills the fullest device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensor_cast.evaluation.language import Language
from tensor_cast.evaluation.pages.blocks import Block, Column, Figure, Table
from tensor_cast.evaluation.pages.charts import Part, series_colour, stacked_bar
from tensor_cast.evaluation.results import Results
from tensor_cast.units import byte_size, percent

_PARTS = (
    ("weights_bytes", "weights", "weights"),
    ("kv_cache_bytes", "KV cache", "cache"),
    ("state_bytes", "state", "s5"),
    ("activation_bytes", "activations", "activations"),
    ("reserved_bytes", "reserved", "reserved"),
)
"""Key, name and colour of what a language model's step keeps."""


def memory_chapter(results: Results, t: Language) -> list[Block]:
    """A chart of the device's memory, and a table of its use."""
    memory = results.summary["memory"]
    device = memory["device_bytes"]
    parts = _parts(memory, t)
    used = sum(part.value for part in parts)
    available = device - used
    free = [Part(t("available"), available, byte_size(available), "free")] if available > 0.0 else []
    return [
        Figure(
            stacked_bar(t("Memory of the fullest device"), [*parts, *free]),
            t("Memory of the fullest device, of {device}", device=byte_size(device)),
        ),
        Table(
            (Column(t("Use")), Column(t("Size"), right=True), Column(t("Of the device"), right=True)),
            tuple((part.label, byte_size(part.value), percent(part.value / device)) for part in parts),
            total=(t("used"), byte_size(used), percent(used / device)),
            note=t("Sizes in powers of 1000."),
        ),
    ]


def _parts(memory: Mapping[str, Any], t: Language) -> list[Part]:
    """What the fullest device holds; a generation's components by name, with the activations of its fullest stage."""
    if "components" not in memory:
        sizes = [(t.known(name), float(memory[key]), colour) for key, name, colour in _PARTS if key in memory]
    else:
        sizes = [
            (one["name"], float(one["bytes"]), series_colour(index))
            for index, one in enumerate(memory["components"])
            if one["resident"]
        ]
        rest = memory["device_bytes"] - memory["available_bytes"] - sum(size for _, size, _ in sizes)
        reserved = float(memory["reserved_bytes"])
        sizes.append((t("the fullest stage beside"), rest - reserved, "s5"))
        sizes.append((t("reserved"), reserved, "reserved"))
    return [Part(name, size, byte_size(size), colour) for name, size, colour in sizes if size > 0.0]
