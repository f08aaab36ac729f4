"""Predict what a model costs on an accelerator that you do not have.

>>> from tensor_cast import Deployment, TextWorkload, simulate
>>> estimate = simulate(
...     "Qwen/Qwen3-32B",
...     device="ATLAS_800_A2_376T_64G",
...     workload=TextWorkload(num_queries=2, query_length=3500),
...     deployment=Deployment(),
... )
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensor_cast.deployment import Deployment
    from tensor_cast.devices import DeviceProfile
    from tensor_cast.errors import ModelingError
    from tensor_cast.estimate import Estimate
    from tensor_cast.models import ModelSpec, load_spec
    from tensor_cast.simulator import simulate
    from tensor_cast.video_deployment import VideoDeployment
    from tensor_cast.video_simulator import simulate_video
    from tensor_cast.video_workload import VideoWorkload
    from tensor_cast.workload import TextWorkload

__all__ = [
    "Deployment",
    "DeviceProfile",
    "Estimate",
    "ModelSpec",
    "ModelingError",
    "TextWorkload",
    "VideoDeployment",
    "VideoWorkload",
    "load_spec",
    "simulate",
    "simulate_video",
]

_HOMES = {
    "Deployment": "tensor_cast.deployment",
    "DeviceProfile": "tensor_cast.devices",
    "Estimate": "tensor_cast.estimate",
    "ModelSpec": "tensor_cast.models",
    "ModelingError": "tensor_cast.errors",
    "TextWorkload": "tensor_cast.workload",
    "VideoDeployment": "tensor_cast.video_deployment",
    "VideoWorkload": "tensor_cast.video_workload",
    "load_spec": "tensor_cast.models",
    "simulate": "tensor_cast.simulator",
    "simulate_video": "tensor_cast.video_simulator",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: ``msmodeling --help`` needs neither NumPy nor the models."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
