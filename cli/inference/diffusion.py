"""What ``video-generate`` and ``image-generate`` do with their flags: check, simulate, print and write."""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.arguments.device import GB, device_profile
from cli.arguments.model import model_name
from cli.arguments.output import check_outputs
from cli.arguments.performance_model import check_performance_model
from cli.arguments.quantization import LINEAR_CHOICES
from tensor_cast.command_line import UsageError

if TYPE_CHECKING:
    from tensor_cast.models.diffusion.pipeline import Pipeline
    from tensor_cast.video_advice import VideoRemedy
    from tensor_cast.video_deployment import DitCache, VideoDeployment
    from tensor_cast.video_estimate import VideoEstimate
    from tensor_cast.video_workload import VideoWorkload

_log = logging.getLogger("msmodeling")
_RESOLUTION = re.compile(r"(\d{1,6})\s*[xX*]\s*(\d{1,6})")
_RANGE = re.compile(r"(\d{1,6})\s*[,:-]\s*(\d{1,6})")


def run(arguments: argparse.Namespace, *, video: bool) -> int:
    """Estimate what the flags describe and print it.

    Raises:
        ModelingError: something is missing or wrong, or a result file cannot be written.
    """
    logging.basicConfig(level=arguments.log_level, format="%(levelname)s %(message)s", stream=sys.stderr, force=True)
    _read_resolution(arguments)
    _require(arguments, video=video)
    check_performance_model(arguments)
    check_outputs(arguments)
    from tensor_cast.models.diffusion.reader import load_pipeline
    from tensor_cast.video_simulator import simulate_video

    device = device_profile(arguments)
    name = model_name(arguments)
    assert name is not None
    pipeline = load_pipeline(name, remote_source=arguments.remote_source)
    _log.info("model %s, from %s", pipeline.name, pipeline.origin)
    if pipeline.makes_video != video:
        other = "video-generate" if pipeline.makes_video else "image-generate"
        made = "videos" if pipeline.makes_video else "images"
        raise UsageError(f"{pipeline.name} makes {made}: use `msmodeling {other}`.")
    estimate = simulate_video(
        pipeline,
        device=device,
        workload=_workload(arguments, video=video),
        deployment=_deployment(arguments, pipeline),
        stages=arguments.stages,
        reserved_bytes=arguments.reserved_memory_gb * GB,
        performance_model=arguments.performance_model,
        database=arguments.profiling_database_path,
        interpolate=not arguments.disable_profiling_interpolation,
    )
    remedies: tuple[VideoRemedy, ...] = ()
    if not estimate.fits:
        from tensor_cast.video_advice import what_would_fit

        remedies = what_would_fit(estimate)
    _write(arguments, estimate, remedies)
    return 0


def _read_resolution(arguments: argparse.Namespace) -> None:
    """Take ``--resolution`` apart."""
    if arguments.resolution is None:
        return
    if arguments.height is not None or arguments.width is not None:
        raise UsageError("--resolution is given beside --height or --width: keep one of the two ways.")
    match = _RESOLUTION.fullmatch(arguments.resolution.strip())
    if match is None or not (int(match[1]) and int(match[2])):
        raise UsageError(f"--resolution must be HEIGHTxWIDTH, such as 480x832, got {arguments.resolution!r:.40}.")
    arguments.height, arguments.width = int(match[1]), int(match[2])


def _require(arguments: argparse.Namespace, *, video: bool) -> None:
    """Name all that is missing at once, with what could be given."""
    missing: list[tuple[str, str]] = []
    if model_name(arguments) is None:
        missing.append(("MODEL", f"a diffusers directory, a hub's id, or one of {', '.join(_known(video=video))}"))
    if arguments.device is None:
        from tensor_cast.devices.registry import DeviceRegistry

        missing.append(("--device", f"one of {', '.join(DeviceRegistry(arguments.device_files))}"))
    if arguments.height is None:
        missing.append(("--height", "of the output in pixels (or both sides as --resolution 480x832)"))
    if arguments.width is None:
        missing.append(("--width", "of the output in pixels"))
    if video and arguments.frame_num is None:
        missing.append(("--frame-num", "frames of the output, such as 81"))
    if arguments.quantize_linear_action is None:
        missing.append(("--quantize-linear-action", f"one of {LINEAR_CHOICES}"))
    if missing:
        names = ", ".join(name for name, _ in missing)
        width = max(len(name) for name, _ in missing)
        lines = [f"  {name.ljust(width)}  {text}" for name, text in missing]
        raise UsageError("\n".join([f"Missing and without a default: {names}.", *lines]))


def _known(*, video: bool) -> list[str]:
    """Catalog ids of the pipelines that this command takes."""
    from tensor_cast.models.diffusion.reader import makes_video, pipeline_ids

    return [model_id for model_id in pipeline_ids() if makes_video(model_id) == video]


def _workload(arguments: argparse.Namespace, *, video: bool) -> VideoWorkload:
    from tensor_cast.video_workload import VideoWorkload

    own: dict[str, Any] = (
        {"frame_num": arguments.frame_num} if video else {"reference_images": arguments.reference_images}
    )
    return VideoWorkload(
        height=arguments.height,
        width=arguments.width,
        sample_step=arguments.sample_step,
        batch_size=arguments.batch_size,
        seq_len=arguments.seq_len,
        use_cfg=arguments.use_cfg,
        flow_shift=arguments.flow_shift,
        **own,
    )


def _deployment(arguments: argparse.Namespace, pipeline: Pipeline) -> VideoDeployment:
    from tensor_cast.video_deployment import VideoDeployment

    sparsity: dict[str, Any] = {
        name: getattr(arguments, name)
        for name in ("attention_block_size", "attention_sparsity")
        if getattr(arguments, name) is not None
    }
    if sparsity and arguments.attention_backend != "block_sparse_attention":
        flag = next(iter(sparsity)).replace("_", "-")
        raise UsageError(f"--{flag} belongs to --attention-backend block_sparse_attention: give it too.")
    return VideoDeployment(
        **sparsity,
        world_size=arguments.world_size,
        ulysses_size=arguments.ulysses_size,
        cfg_parallel=arguments.cfg_parallel,
        quantize_linear=arguments.quantize_linear_action,
        quantize_attention=arguments.quantize_attention_action,
        mxfp4_group_size=arguments.mxfp4_group_size,
        attention_backend=arguments.attention_backend,
        dit_cache=_cache(arguments, pipeline),
        dtype=arguments.dtype,
        vae_dtype=arguments.vae_dtype,
        compile=arguments.compile,
        offload_inactive_expert=arguments.offload_inactive_expert,
        vae_tiling=not arguments.no_vae_tiling,
    )


def _cache(arguments: argparse.Namespace, pipeline: Pipeline) -> DitCache | None:
    given = [
        flag
        for flag in ("cache_step_range", "cache_step_interval", "cache_block_range")
        if getattr(arguments, flag) is not None
    ]
    if not arguments.dit_cache:
        if given:
            raise UsageError(f"--{given[0].replace('_', '-')} belongs to --dit-cache: give it too.")
        return None
    from tensor_cast.video_deployment import DitCache

    return DitCache(
        step_range=_range(arguments.cache_step_range, "--cache-step-range", arguments.sample_step),
        step_interval=arguments.cache_step_interval or 2,
        block_range=_range(arguments.cache_block_range, "--cache-block-range", pipeline.denoiser.blocks),
    )


def _range(text: str | None, flag: str, whole: int) -> tuple[int, int]:
    if text is None:
        return (0, whole)
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{flag} must be FIRST,END, such as 4,24, got {text!r:.40}.")
    return (int(match[1]), int(match[2]))


def _write(arguments: argparse.Namespace, estimate: VideoEstimate, remedies: tuple[VideoRemedy, ...]) -> None:
    """Files first: when one cannot be written, nothing has been printed that looks like success."""
    from tensor_cast.reporting.output_file import write_whole

    trace: Path | None = arguments.chrome_trace_file
    if trace is not None:
        from tensor_cast.reporting.trace import chrome_trace

        title = f"{estimate.pipeline.name} on {estimate.device.name}: one run of each kind"
        write_whole(trace, chrome_trace(estimate.one_of_each(), title=title))
    if arguments.json is not None:
        would_fit = [{"changes": remedy.changes, "used_bytes": remedy.used_bytes} for remedy in remedies]
        document = {**estimate.to_dict(), "would_fit": would_fit}
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        if str(arguments.json) == "-":
            sys.stdout.write(text)
            return
        write_whole(arguments.json, text)
    from cli.console import show
    from tensor_cast.reporting.video_table import report

    show(
        report(
            estimate,
            remedies=remedies,
            input_shapes=arguments.dump_input_shapes,
            op_bounds=arguments.dump_op_bound_results,
            all_kernels=arguments.all_kernels,
            database=arguments.profiling_database_path,
        )
    )
