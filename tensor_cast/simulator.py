"""simulate(...) -> Estimate: build the step, time its kernels, measure its memory."""

from __future__ import annotations

from pathlib import Path

from tensor_cast.cautions import cautions
from tensor_cast.checks import real, text
from tensor_cast.deployment import Deployment
from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.errors import ModelingError
from tensor_cast.estimate import Estimate
from tensor_cast.memory import text_memory
from tensor_cast.models.decoder import build
from tensor_cast.models.images import with_image_tokens
from tensor_cast.models.parameters import count_parameters
from tensor_cast.models.spec import ModelSpec
from tensor_cast.performance_model.engine import get_engine, idle_time
from tensor_cast.performance_model.engine_kernels import with_own_kernels
from tensor_cast.pipeline_parallel import pipeline_wait
from tensor_cast.pricing import check_world, collectives, device_profile, performance_timer, price
from tensor_cast.timed_kernels import TimedKernels
from tensor_cast.unmeasured import assumed_of_engine, beyond_measurements
from tensor_cast.workload import TextWorkload


def simulate(
    model: str | Path | ModelSpec,
    *,
    device: str | DeviceProfile,
    workload: TextWorkload,
    deployment: Deployment | None = None,
    reserved_bytes: float = 0.0,
    performance_model: str = "analytic",
    database: str | Path | None = None,
    interpolate: bool = True,
) -> Estimate:
    """Time and memory of one step.

    Args:
        model: a catalog id, a path, a hub id, or a structure.
        device: a profile or its name.
        workload: the batch; its quantities may be arrays, and then so are all figures of the estimate.
        deployment: parallel sizes and quantisation; by default one device, unquantised.
        reserved_bytes: memory that something else keeps on each device.
        performance_model: where kernel times come from: ``analytic``, or ``profiling`` for measured times where a
            database has them.
        database: directory of measured times; by default the one of the device that comes with the package.
        interpolate: whether measured times also answer for sizes near the measured ones.

    Raises:
        ModelingError: the request has no answer; the message says why.
    """
    deployment = Deployment() if deployment is None else deployment
    for value, kind in ((workload, TextWorkload), (deployment, Deployment)):
        if not isinstance(value, kind):
            raise ModelingError(f"{kind.__name__} expected, got {value!r:.60}.")
    if real(reserved_bytes, "reserved_bytes") < 0.0:
        raise ModelingError(f"reserved_bytes must be at least 0, got {reserved_bytes:g}.")
    spec = _spec(model)
    workload = with_image_tokens(spec, workload)
    engine = get_engine(deployment.engine) if deployment.engine != "none" else None
    profile = device_profile(device)
    check_world(profile, deployment.world_size)
    served = with_own_kernels(profile, engine)
    step = build(spec, workload, deployment, expert_spread=engine.expert_spread if engine else 0.0)
    timer = performance_timer(served, performance_model, database, interpolate=interpolate)
    eager = deployment.execution == "eager"
    kernels = price(step.graph, served, timer, engine)
    run = TimedKernels(tuple(kernels))
    wait = pipeline_wait(step, kernels, served, layers=len(spec.layers), decode=workload.decode, eager=eager)
    parameters = count_parameters(spec)
    return Estimate(
        model=spec,
        device=profile,
        workload=workload,
        deployment=deployment,
        parallel=step.parallel,
        dtype=step.dtype,
        parameters_total=parameters.total,
        parameters_active=parameters.active,
        kernels=run.kernels if wait is None else (*run.kernels, wait),
        collectives=tuple(collectives(step.graph, served, timer)),
        memory=text_memory(spec, step, workload, deployment, profile, reserved_bytes=reserved_bytes),
        warnings=(
            *cautions(spec, workload, deployment, step, engine),
            *assumed_of_engine(kernels, profile, engine),
            *beyond_measurements(kernels, served),
        ),
        performance_model=performance_model,
        idle_s=idle_time(
            run.device_time_s,
            run.launches,
            profile,
            engine,
            eager=eager,
            request=not workload.decode,
            expert_layers=spec.expert_layers,
        ),
    )


def _spec(model: str | Path | ModelSpec) -> ModelSpec:
    if isinstance(model, ModelSpec):
        return model
    from tensor_cast.models import load_spec

    return load_spec(str(model) if isinstance(model, Path) else text(model, "model"))
