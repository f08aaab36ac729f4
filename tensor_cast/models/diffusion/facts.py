"""What follows from a pipeline's configs alone: ``msmodeling models show`` of a diffusion pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tensor_cast.models.diffusion.counts import denoiser_graph, matrix_flops, pipeline_parameters, vae_parameters
from tensor_cast.models.diffusion.pipeline import Pipeline
from tensor_cast.quantity import Quantity, ceil_div, plain
from tensor_cast.video_deployment import VideoDeployment
from tensor_cast.video_workload import VideoWorkload

# Hidden states and weights of all published pipelines.
_WEIGHT_BYTES = 2.0


@dataclass(frozen=True)
class VideoTokens:
    """Tokens of one sample: of the output, of text and other conditions beside it, and those of the output on one rank.

    ``per_rank`` is padded, and counts the latents of given images too, which stand among the output's.
    """

    video: Quantity
    text: Quantity
    per_rank: Quantity


def video_tokens(pipeline: Pipeline, workload: VideoWorkload, ranks: int) -> VideoTokens:
    """Tokens of one sample."""
    own = pipeline.video_tokens(workload)
    return VideoTokens(
        video=own,
        text=pipeline.denoiser.condition_tokens(pipeline.prompt_tokens(workload)),
        per_rank=ceil_div(own + pipeline.reference_tokens(workload), ranks),
    )


def flops_per_forward(pipeline: Pipeline, workload: VideoWorkload) -> Quantity:
    """Matrix FLOPs of one forward of one denoiser over the batch, on one rank and in full."""
    request = pipeline.denoiser_input(workload)
    plain_deployment = VideoDeployment()
    return matrix_flops(
        denoiser_graph(pipeline.denoiser, request, batch=workload.batch_size, ranks=1, deployment=plain_deployment)
    )


@dataclass(frozen=True)
class PipelineFacts:
    """Parameters of each component; tokens and FLOPs of a forward where a size was given."""

    pipeline: Pipeline
    parameters: dict[str, int]
    vae_decoder: int | None
    tokens: VideoTokens | None
    flops_per_forward: Quantity | None

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON takes it; ``docs/json-video.md`` describes every key."""
        pipeline = self.pipeline
        document: dict[str, Any] = {
            "model_type": pipeline.kind,
            "family": type(pipeline.denoiser).__name__,
            "parameters": {**self.parameters, "total": sum(self.parameters.values())},
            "weight_bytes": {name: count * _WEIGHT_BYTES for name, count in self.parameters.items()},
            "heads": pipeline.denoiser.heads,
            "blocks": pipeline.denoiser.blocks,
            "vae": {
                "temporal_compression": pipeline.temporal,
                "spatial_compression": pipeline.spatial,
                "decoder_parameters": self.vae_decoder,
            },
            "patch": [pipeline.patch.frames, pipeline.patch.height, pipeline.patch.width],
            "boundary_ratio": pipeline.boundary_ratio,
            "ignored_keys": list(pipeline.ignored_keys),
            "unpriced": list(pipeline.unpriced),
        }
        if self.tokens is not None and self.flops_per_forward is not None:
            tokens = self.tokens
            document["tokens"] = {
                "video": plain(tokens.video),
                "text": plain(tokens.text),
                "per_rank": plain(tokens.per_rank),
            }
            document["flops_per_forward"] = plain(self.flops_per_forward)
        return document


def pipeline_facts(pipeline: Pipeline, workload: VideoWorkload | None = None, *, ulysses: int = 1) -> PipelineFacts:
    """The facts of a pipeline; with a ``workload`` also those of one sample of its size.

    Raises:
        ModelingError: the size or the number of ranks does not suit the pipeline.
    """
    tokens = flops = None
    if workload is not None:
        pipeline.check(workload)
        pipeline.check_ulysses(ulysses)
        tokens = video_tokens(pipeline, workload, ulysses)
        flops = flops_per_forward(pipeline, workload)
    decoder = None if pipeline.vae is None else vae_parameters(pipeline.vae).decoder
    return PipelineFacts(pipeline, pipeline_parameters(pipeline), decoder, tokens, flops)
