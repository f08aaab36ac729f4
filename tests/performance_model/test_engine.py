"""What engines and hosts add, on figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tensor_cast import Deployment, ModelingError, TextWorkload, simulate
from tensor_cast.deployment import ENGINES
from tensor_cast.devices import get_device
from tensor_cast.graph import Graph
from tensor_cast.ops import Elementwise
from tensor_cast.performance_model.engine import Engine, chained, engines, get_engine, idle_time
from tensor_cast.performance_model.roofline import KernelTime
from tensor_cast.performance_model.timing import SOURCES, Timing
from tensor_cast.pricing import price
from tests.small_models import dense, sparse

DEVICE = replace(get_device("TEST_DEVICE"), launch_gap_s=1e-6, host_launch_s=5e-6)
ENGINE = Engine("e", 1e-3, 0.25, 0.1, 2e-3, 4e-5, 0.5, 0.5, 0.0, {})
DECODE = TextWorkload(num_queries=16, query_length=1, context_length=1000, decode=True)


def test_the_deployment_names_every_engine() -> None:
    assert set(engines()) == set(ENGINES)


@pytest.mark.parametrize("name", ENGINES)
def test_every_constant_has_a_source(name: str) -> None:
    engine = get_engine(name)
    figures = {field for field in vars(engine) if field not in ("name", "sources", "kernels")}
    rows = {f"kernels.{family}.{key}" for family, own in engine.kernels.items() for key in own}
    assert set(engine.sources) == figures | rows
    assert all(engine.sources.values())
    assert 0 <= engine.launch_overlap <= 1


def test_an_unknown_engine_is_refused_with_those_there_are() -> None:
    with pytest.raises(ModelingError, match="Unknown engine 'vlm': one of none, vllm"):
        Deployment(engine="vlm")
    with pytest.raises(ModelingError, match="Unknown engine 'vlm'"):
        get_engine("vlm")
    with pytest.raises(ModelingError, match="Unknown execution 'lazy': one of graph, eager"):
        Deployment(execution="lazy")


def test_a_graph_hides_a_part_of_each_launch() -> None:
    time = KernelTime(1e-6, 0.0, 0.0, 0.0, 4e-6)
    assert chained(time, ENGINE).fixed_s == pytest.approx(3e-6)
    assert chained(time, None) is time


def test_no_launch_hides_in_a_measured_time() -> None:
    # Four points, one of each source; all fixed costs are 4 us, of which a quarter hides where the model was asked.
    graph = Graph()
    with graph.block("layer"):
        graph.emit(Elementwise(name="add", part="", inputs=(), outputs=(), flops=1.0))
    timing = Timing(KernelTime(1e-6, 0.0, 0.0, 0.0, 4e-6), np.arange(len(SOURCES), dtype=np.int8))
    (priced,) = price(graph, DEVICE, lambda op: timing, ENGINE)
    np.testing.assert_allclose(priced.timing.time.fixed_s, [4e-6, 4e-6, 4e-6, 3e-6])
    (unchained,) = price(graph, DEVICE, lambda op: timing)
    assert unchained.timing.time is timing.time


def test_the_device_idles_between_launches() -> None:
    assert idle_time(3e-3, 1000.0, DEVICE) == pytest.approx(1e-3)
    assert idle_time(3e-3, 1000.0, DEVICE, ENGINE) == pytest.approx(1e-3 + 1e-3)
    assert idle_time(3e-3, 1000.0, DEVICE, ENGINE, expert_layers=5) == pytest.approx(1e-3 + 1e-3 + 5 * 4e-5)


def test_a_request_adds_to_its_first_step() -> None:
    assert idle_time(3e-3, 1000.0, DEVICE, ENGINE, request=True) == pytest.approx(1e-3 + 1e-3 + 0.1)
    with_experts = idle_time(3e-3, 1000.0, DEVICE, ENGINE, request=True, expert_layers=5)
    assert with_experts == pytest.approx(1e-3 + 1e-3 + 0.1 + 5 * (2e-3 + 4e-5))


def test_an_eager_step_waits_for_its_host() -> None:
    # 1000 launches of 5 us are 5 ms, 2 ms more than kernels of 3 ms; kernels of 9 ms leave the gaps of 1 ms.
    waits = idle_time(np.array([3e-3, 9e-3]), 1000.0, DEVICE, eager=True)
    np.testing.assert_allclose(waits, [2e-3, 1e-3])


def test_a_step_adds_what_its_engine_takes() -> None:
    device = get_device("TEST_DEVICE")
    plain = simulate(dense(), device=device, workload=DECODE)
    served = simulate(dense(), device=device, workload=DECODE, deployment=Deployment(engine="vllm"))
    # No kernel of the round device has a fixed cost, so only the engine's own time is added.
    assert plain.idle_s == 0.0
    assert served.idle_s == get_engine("vllm").step_s
    assert served.total_time_s == pytest.approx(plain.total_time_s + served.idle_s)
    assert served.tpot_s == served.total_time_s


def test_a_first_token_pays_for_its_request() -> None:
    prefill = TextWorkload(num_queries=1, query_length=100)
    served = simulate(dense(), device="TEST_DEVICE", workload=prefill, deployment=Deployment(engine="sglang"))
    engine = get_engine("sglang")
    assert served.idle_s == pytest.approx(engine.step_s + engine.request_s)


def test_a_first_token_pays_for_each_layer_of_experts() -> None:
    prefill = TextWorkload(num_queries=1, query_length=100)
    engine = get_engine("trtllm")
    assert engine.expert_layer_s > 0.0
    for spec in (dense(), sparse()):
        served = simulate(spec, device="TEST_DEVICE", workload=prefill, deployment=Deployment(engine="trtllm"))
        own = engine.step_s + engine.request_s + spec.expert_layers * (engine.expert_layer_s + engine.expert_step_s)
        assert served.idle_s == pytest.approx(own)
    assert (dense().expert_layers, sparse().expert_layers) == (0, len(sparse().layers))


def test_eager_execution_is_bound_by_the_host_where_kernels_are_short() -> None:
    device = replace(get_device("TEST_DEVICE"), host_launch_s=1e-3)
    eager = simulate(dense(), device=device, workload=DECODE, deployment=Deployment(execution="eager"))
    launches = sum(kernel.count for kernel in eager.kernels)
    assert eager.total_time_s == pytest.approx(launches * 1e-3)
