"""``msmodeling models`` for diffusion pipelines: their row in the list, and what follows from their configs."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from cli.console import show
from tensor_cast.command_line import CommandParser, UsageError, whole_number

if TYPE_CHECKING:
    from tensor_cast.models.source import LoadedConfig
    from tensor_cast.reporting.model_table import CatalogRow
    from tensor_cast.video_workload import VideoWorkload


SIZE_FLAGS = ("height", "width", "frame_num", "seq_len", "ulysses_size")
"""Flags of diffusion pipelines alone; ``None`` where they are not given."""


def add_size_arguments(parser: CommandParser) -> None:
    """The size for which tokens and FLOPs of a diffusion pipeline are shown."""
    group = parser.add_argument_group("diffusion pipelines", "A size adds tokens and FLOPs of one forward.")
    size = whole_number(1)
    group.add_argument("--height", type=size, metavar="PIXELS", help="height of the output")
    group.add_argument("--width", type=size, metavar="PIXELS", help="width of the output")
    group.add_argument("--frame-num", type=size, metavar="N", help="frames of the output, for a video")
    group.add_argument("--seq-len", type=size, metavar="N", help="text tokens a prompt (default: 64)")
    group.add_argument("--ulysses-size", type=size, metavar="N", help="ranks that share out the tokens (default: 1)")


def show_pipeline(arguments: argparse.Namespace, loaded: LoadedConfig) -> None:
    """Print what follows from a pipeline's configs.

    Raises:
        ModelingError: a class is of no known family, or the size does not suit the pipeline.
    """
    from tensor_cast.models.diffusion.facts import pipeline_facts
    from tensor_cast.models.diffusion.reader import read_pipeline

    pipeline = read_pipeline(loaded)
    workload = _workload(arguments, video=pipeline.makes_video)
    facts = pipeline_facts(pipeline, workload, ulysses=arguments.ulysses_size or 1)
    if arguments.show_json:
        sys.stdout.write(json.dumps(facts.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
        return
    from tensor_cast.reporting.pipeline_table import pipeline_report

    show(pipeline_report(facts))


def _workload(arguments: argparse.Namespace, *, video: bool) -> VideoWorkload | None:
    """The size that is asked about; ``None`` when there is none."""
    from tensor_cast.video_workload import VideoWorkload

    names = ("height", "width", "frame_num") if video else ("height", "width")
    if all(getattr(arguments, name) is None for name in SIZE_FLAGS):
        return None
    missing = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) is None]
    if missing:
        raise UsageError(f"A size needs {', '.join(missing)} too.")
    given = {name: getattr(arguments, name) for name in ("frame_num", "seq_len")}
    more = {name: value for name, value in given.items() if value is not None}
    return VideoWorkload(height=arguments.height, width=arguments.width, **more)


def catalog_row(loaded: LoadedConfig) -> CatalogRow:
    """The row of a pipeline: all its denoisers' parameters, and those that one step uses."""
    from tensor_cast.errors import ModelingError
    from tensor_cast.models.diffusion.counts import denoiser_parameters
    from tensor_cast.models.diffusion.reader import read_pipeline
    from tensor_cast.reporting.model_table import CatalogRow

    kind = str(loaded.config.get("_class_name", "diffusers pipeline"))
    try:
        pipeline = read_pipeline(loaded)
        each = denoiser_parameters(pipeline.denoiser)
    except ModelingError:
        return CatalogRow(loaded.name, f"{kind}: not supported yet")
    return CatalogRow(loaded.name, kind, each * len(pipeline.denoisers), each)
