"""A VideoEstimate as JSON takes it; ``docs/json-video.md`` describes every key."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tensor_cast.estimate_json import collective_to_dict, known_error, op_to_dict
from tensor_cast.quantity import plain

if TYPE_CHECKING:
    from tensor_cast.video_estimate import Run, VideoEstimate, VideoMemory

SCHEMA_VERSION = 1


def video_estimate_to_dict(estimate: VideoEstimate) -> dict[str, Any]:
    """Every figure of ``estimate``: floats, or nested lists of the workload's shape."""
    pipeline = estimate.pipeline
    return {
        "schema_version": SCHEMA_VERSION,
        "model": {
            "name": pipeline.name,
            "pipeline": pipeline.kind,
            "denoisers": [name for name, _ in pipeline.denoisers],
            "blocks": pipeline.denoiser.blocks,
            "dtype": estimate.deployment.dtype,
            "origin": pipeline.origin,
            "ignored_keys": list(pipeline.ignored_keys),
            "unpriced": list(pipeline.unpriced),
        },
        "device": estimate.device.name,
        "workload": {key: _plain(value) for key, value in asdict(estimate.workload).items()},
        "deployment": {**asdict(estimate.deployment), "parallel": asdict(estimate.parallel)},
        "parameters": estimate.parameters,
        "tokens": {name: plain(value) for name, value in asdict(estimate.tokens).items()},
        "flops_per_forward": plain(estimate.flops_per_forward),
        "total_time_s": plain(estimate.total_time_s),
        "error_low": known_error(estimate.error_low),
        "error_high": known_error(estimate.error_high),
        "idle_s": plain(estimate.gaps_s),
        "step_time_s": plain(estimate.step_time_s),
        "forward_time_s": plain(estimate.forward_time_s),
        "forwards": plain(estimate.forwards),
        "stages": [
            {
                "name": stage,
                "total_s": plain(seconds),
                "share": plain(seconds / estimate.total_time_s),
                "runs": [_run(run) for run in estimate.runs if run.stage == stage],
            }
            for stage, seconds in estimate.stage_times_s.items()
        ],
        "categories": {name: plain(seconds) for name, seconds in estimate.categories.items()},
        "performance_model": estimate.performance_model,
        "sources_s": {name: plain(seconds) for name, seconds in estimate.sources_s.items()},
        "ops": [op_to_dict(op) for op in estimate.ops],
        "collectives": [collective_to_dict(collective) for collective in estimate.collectives],
        "memory": _memory(estimate.memory),
        "warnings": list(estimate.warnings),
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "name": run.name,
        "repeats": plain(run.repeats),
        "run_s": plain(run.total_time_s),
        "total_s": plain(run.all_runs_s),
        "matrix_flops": plain(run.matrix_flops),
    }


def _memory(memory: VideoMemory) -> dict[str, Any]:
    return {
        "components": [
            {"name": part.name, "bytes": plain(part.bytes), "resident": part.resident} for part in memory.components
        ],
        "weights_bytes": plain(memory.weights_bytes),
        "activation_bytes": {stage: plain(size) for stage, size in memory.activation_bytes.items()},
        "step_cache_bytes": plain(memory.step_cache_bytes),
        "reserved_bytes": memory.reserved_bytes,
        "device_bytes": memory.device_bytes,
        "used_bytes": plain(memory.used_bytes),
        "available_bytes": plain(memory.available_bytes),
        "fits": np.asarray(memory.fits).tolist(),
    }


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
