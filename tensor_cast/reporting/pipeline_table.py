"""What follows from a diffusion pipeline's configs, as a person reads it."""

from __future__ import annotations

from tensor_cast.models.diffusion.facts import PipelineFacts
from tensor_cast.reporting.layout import Column, Facts, Section, Sentence, Table
from tensor_cast.units import byte_size, count


def pipeline_report(facts: PipelineFacts) -> list[Section]:
    """Components, sizes, and tokens and FLOPs of a forward where a size was given."""
    sections: list[Section] = [_summary(facts), _components(facts)]
    pipeline = facts.pipeline
    if facts.tokens is None:
        sections.append(Sentence("--height, --width and, for a video, --frame-num add tokens and FLOPs of a forward."))
    if pipeline.unpriced:
        sections.append(Sentence(f"Warning: no config is known of {', '.join(pipeline.unpriced)}.", "warning"))
    if pipeline.ignored_keys:
        keys = ", ".join(pipeline.ignored_keys)
        sections.append(Sentence(f"Warning: config keys that are not known, ignored: {keys}.", "warning"))
    return sections + [Sentence(f"Note: {note}", "warning") for note in pipeline.notes]


def _summary(facts: PipelineFacts) -> Facts:
    pipeline, denoiser = facts.pipeline, facts.pipeline.denoiser
    patch = pipeline.patch
    rows = [
        ("model", f"{pipeline.name}: {pipeline.kind or 'pipeline'}"),
        ("config", pipeline.origin),
        ("denoiser", f"{denoiser.blocks} blocks, {denoiser.heads} attention heads"),
        ("latent", f"{pipeline.temporal} x {pipeline.spatial} x {pipeline.spatial} smaller than the output"),
        ("patch", f"{patch.frames} x {patch.height} x {patch.width} latent positions a token"),
    ]
    if pipeline.boundary_ratio is not None:
        rows.append(("two denoisers", f"the first runs while the noise level is at least {pipeline.boundary_ratio:g}"))
    if facts.tokens is not None and facts.flops_per_forward is not None:
        tokens = facts.tokens
        text = f"{float(tokens.video):,.0f} of the output, {float(tokens.text):,.0f} beside"
        rows.append(("tokens", f"{text}, {float(tokens.per_rank):,.0f} a rank"))
        rows.append(("FLOPs a forward", f"{float(facts.flops_per_forward):.6e}"))
    return Facts("Pipeline", tuple(rows))


def _components(facts: PipelineFacts) -> Table:
    total = sum(facts.parameters.values())
    return Table(
        "Components",
        (Column("component"), Column("parameters", right=True), Column("", right=True), Column("16-bit", right=True)),
        tuple((name, f"{n:,}", count(n), byte_size(2.0 * n)) for name, n in facts.parameters.items()),
        total=("all", f"{total:,}", count(total), byte_size(2.0 * total)),
        note="" if facts.vae_decoder is None else f"{facts.vae_decoder:,} of the VAE decode.",
    )
