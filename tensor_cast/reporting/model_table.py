"""The catalog, and what follows from one model's config, as a person reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tensor_cast.models.facts import CacheFacts, ModelFacts
from tensor_cast.models.parameters import ParameterCount, PartCount
from tensor_cast.reporting.layout import Column, Facts, Section, Sentence, Table
from tensor_cast.reporting.table import parameters
from tensor_cast.units import byte_size, count


@dataclass(frozen=True)
class CatalogRow:
    """One model of the catalog; without ``parameters`` the ``family`` says why there are none."""

    id: str
    family: str
    parameters: int | None = None
    active: int | None = None


def catalog_table(rows: Sequence[CatalogRow]) -> list[Section]:
    """Every model with its size."""
    table = Table(
        "",
        (
            Column("model", breakable=True),
            Column("family", rank=1),
            Column("parameters", right=True),
            Column("active a token", right=True),
        ),
        tuple(
            (row.id, row.family, *("-" if size is None else count(size) for size in (row.parameters, row.active)))
            for row in rows
        ),
    )
    return [table, Sentence(f"{len(rows)} models. `msmodeling models show ID` shows what follows from one's config.")]


def model_report(facts: ModelFacts) -> list[Section]:
    """The figures with their derivation."""
    sections: list[Section] = [_summary(facts), _parts(facts.parameters.parts, facts)]
    if facts.caches:
        sections.append(_caches(facts.caches, facts))
    if facts.spec.ignored_keys:
        sections.append(
            Sentence(
                f"Warning: the family {facts.spec.family} does not know these config keys and ignores them: "
                f"{', '.join(facts.spec.ignored_keys)}.",
                "warning",
            )
        )
    sections += [Sentence(f"Note: {note}", "warning") for note in facts.notes]
    return sections


def _summary(facts: ModelFacts) -> Facts:
    spec = facts.spec
    rows = [
        ("config", spec.origin),
        ("family", f"{spec.family} (model_type {spec.model_type}), {len(spec.layers)} layers, {facts.dtype}"),
        ("parameters", parameters(facts.parameters.total, facts.parameters.active)),
        *_encoder_rows(facts.parameters),
        ("weights", f"{_bytes(facts.weight_bytes)}, {_format(facts)}"),
    ]
    if facts.tp > 1:
        rows.append(("", f"{_bytes(facts.weight_bytes_per_rank)} on each of {facts.tp} tensor-parallel ranks"))
    rows += _cache_rows(facts)
    flops = facts.flops
    attended = f"{flops.attention_per_context_token:,.0f} for each token attended to"
    rows.append(
        (
            "FLOPs a token",
            f"{flops.linear:,.0f} in linear layers, {attended}",
        )
    )
    if flops.attention_beyond_window != flops.attention_per_context_token:
        rows.append(("", f"{flops.attention_beyond_window:,.0f} for each one beyond the windows"))
    if spec.max_position_embeddings is not None:
        rows.append(("longest context", f"{spec.max_position_embeddings:,} tokens"))
    return Facts(spec.name, tuple(rows))


def _encoder_rows(found: ParameterCount) -> Iterator[tuple[str, str]]:
    if found.vision:
        which = "of them" if found.vision_in_total else "more, not counted by the model's class but in the weights,"
        yield "", f"{found.vision:,} ({count(found.vision)}) {which} are the vision encoder's"


def _format(facts: ModelFacts) -> str:
    match facts.linear_scheme:
        case "DISABLED":
            return f"all in {facts.dtype}"
        case "CHECKPOINT":
            return f"as the checkpoint stores them: {facts.spec.quantization}"
        case scheme:
            return f"linear layers {scheme}"


def _cache_rows(facts: ModelFacts) -> Iterator[tuple[str, str]]:
    yield "KV cache", f"{facts.kv_bytes_per_token:,.0f} bytes a token in {facts.kv_dtype}"
    if facts.kv_bytes_beyond_windows != facts.kv_bytes_per_token:
        yield "", f"{facts.kv_bytes_beyond_windows:,.0f} bytes a token once the windows are full"
    if facts.tp > 1:
        per_rank = f"{facts.kv_bytes_per_token_per_rank:,.0f}"
        yield "", f"{per_rank} bytes a token on each of {facts.tp} tensor-parallel ranks"
    if facts.kv_bytes_per_sequence is not None:
        yield "", f"{_bytes(facts.kv_bytes_per_sequence)} for a sequence of {facts.context_length:,} tokens"
    if facts.state_bytes_per_sequence:
        yield "state", f"{_bytes(facts.state_bytes_per_sequence)} a sequence, whatever its length"


def _parts(parts: Sequence[PartCount], facts: ModelFacts) -> Table:
    def cells(part: PartCount) -> tuple[str, ...]:
        active = "all" if part.active == part.total else f"{part.active:,}" if part.active else "images only"
        return (part.part, " x ".join(map(str, part.shape)), f"{part.count:,}", f"{part.total:,}", active)

    return Table(
        "Parameters: shape x copies",
        (
            Column("part", breakable=True),
            Column("shape", right=True),
            Column("copies", right=True),
            Column("parameters", right=True),
            Column("active", right=True),
        ),
        tuple(cells(part) for part in parts),
        total=("total", "", "", f"{facts.parameters.total:,}", f"{facts.parameters.active:,}"),
        note=""
        if facts.parameters.vision_in_total or not facts.parameters.vision
        else f"The total leaves out the {facts.parameters.vision:,} parameters of the vision encoder.",
    )


def _caches(caches: Sequence[CacheFacts], facts: ModelFacts) -> Table:
    return Table(
        "KV cache: layers x bytes a token",
        (
            Column("cache"),
            Column("layers", right=True),
            Column("bytes of a layer", right=True),
            Column("bytes a token", right=True),
            Column("keeps"),
        ),
        tuple(
            (
                cache.kind,
                f"{cache.layers:,}",
                f"{cache.bytes_per_token:,.10g}",
                f"{cache.total_bytes_per_token:,.10g}",
                "all tokens" if cache.window is None else f"the last {cache.window:,}",
            )
            for cache in caches
        ),
        total=("total", "", "", f"{facts.kv_bytes_per_token:,.0f}", ""),
    )


def _bytes(size: float) -> str:
    """Exactly, and roundly in both units."""
    return f"{size:,.0f} bytes ({byte_size(size)}, {size / 2**30:,.2f} GiB)"
