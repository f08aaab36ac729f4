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

from tensor_cast.deployment import Deployment
from tensor_cast.devices import DeviceProfile
from tensor_cast.errors import ModelingError
from tensor_cast.estimate import Estimate
from tensor_cast.models import ModelSpec, load_spec
from tensor_cast.simulator import simulate
from tensor_cast.workload import TextWorkload

__all__ = [
    "Deployment",
    "DeviceProfile",
    "Estimate",
    "ModelSpec",
    "ModelingError",
    "TextWorkload",
    "load_spec",
    "simulate",
]
