"""An Estimate as JSON takes it; ``docs/json.md`` describes every key."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from tensor_cast.quantity import Quantity, plain

if TYPE_CHECKING:
    from tensor_cast.estimate import Estimate
    from tensor_cast.timed_kernels import CollectiveEstimate, OpEstimate

SCHEMA_VERSION = 1


def estimate_to_dict(estimate: Estimate) -> dict[str, Any]:
    """Every figure of ``estimate``: floats, or nested lists of the workload's shape."""
    memory = estimate.memory
    return {
        "schema_version": SCHEMA_VERSION,
        "model": {
            "name": estimate.model.name,
            "model_type": estimate.model.model_type,
            "family": estimate.model.family,
            "layers": len(estimate.model.layers),
            "dtype": estimate.dtype,
            "origin": estimate.model.origin,
            "ignored_keys": list(estimate.model.ignored_keys),
            "draft": None if estimate.model.draft is None else estimate.model.draft.name,
        },
        "device": estimate.device.name,
        "workload": {key: _plain(value) for key, value in asdict(estimate.workload).items()},
        "deployment": {**asdict(estimate.deployment), "parallel": asdict(estimate.parallel)},
        "parameters": {"total": estimate.parameters_total, "active": estimate.parameters_active},
        "total_time_s": plain(estimate.total_time_s),
        "error_low": known_error(estimate.error_low),
        "error_high": known_error(estimate.error_high),
        "idle_s": plain(estimate.idle_s),
        "tokens_per_s_per_device": plain(estimate.tokens_per_s_per_device),
        "ttft_s": _optional(estimate.ttft_s),
        "tpot_s": _optional(estimate.tpot_s),
        "overlapped_s": plain(estimate.overlapped_s),
        "encoder_time_s": plain(estimate.encoder_time_s),
        "categories": {name: plain(seconds) for name, seconds in estimate.categories.items()},
        "performance_model": estimate.performance_model,
        "sources_s": {name: plain(seconds) for name, seconds in estimate.sources_s.items()},
        "ops": [op_to_dict(op) for op in estimate.ops],
        "collectives": [collective_to_dict(collective) for collective in estimate.collectives],
        "memory": {
            "weights_bytes": plain(memory.weights_bytes),
            "encoder_weights_bytes": plain(memory.encoder_weights_bytes),
            "kv_cache_bytes": plain(memory.kv_cache_bytes),
            "state_bytes": plain(memory.state_bytes),
            "activation_bytes": plain(memory.activation_bytes),
            "reserved_bytes": memory.reserved_bytes,
            "device_bytes": memory.device_bytes,
            "available_bytes": plain(memory.available_bytes),
            "fits": np.asarray(memory.fits).tolist(),
        },
        "warnings": list(estimate.warnings),
    }


def op_to_dict(op: OpEstimate) -> dict[str, Any]:
    """A row of the report."""
    return {
        "name": op.name,
        "part": op.part,
        "category": op.category,
        "count": _plain(op.count),
        "total_s": plain(op.total_s),
        "average_s": plain(op.average_s),
        "share": plain(op.share),
        "bound": op.bound_name,
        "source": op.source,
        "expected_error": known_error(op.expected_error),
        "error_low": known_error(op.error_low),
        "error_high": known_error(op.error_high),
        "flops": plain(op.flops),
        "bytes": plain(op.bytes),
        "parts_s": {name: plain(seconds) for name, seconds in op.parts_s.items()},
    }


def collective_to_dict(collective: CollectiveEstimate) -> dict[str, Any]:
    """A collective of one block."""
    return {
        "name": collective.name,
        "part": collective.part,
        "count": _plain(collective.count),
        "bytes": plain(collective.bytes),
        "group_size": collective.group_size,
        "stride": collective.stride,
        "link": collective.link,
        "total_s": plain(collective.total_s),
        "fused": collective.fused,
    }


def known_error(error: Quantity) -> Any:
    """A relative error; ``None`` where nothing is known of it."""
    return None if np.isnan(error).any() else plain(error)


def _optional(value: Quantity | None) -> Any:
    return None if value is None else plain(value)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
