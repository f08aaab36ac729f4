"""Device files: what is derived where they are silent, and every way in which they can be wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensor_cast.devices import (
    CollectiveCost,
    DeviceProfile,
    Interconnect,
    KernelCost,
    LinkLevel,
    get_device,
    load_device_file,
    rules,
)
from tensor_cast.devices.figures import as_document, list_figures
from tensor_cast.devices.schema import Kernels
from tensor_cast.devices.yaml_document import SIZE_LIMIT
from tensor_cast.errors import ModelingError

MINIMAL = """\
name: MINE
matrix_flops: {bfloat16: 160e12}
memory_bytes: 64e9
memory_bandwidth: 1.6e12
"""


def write(directory: Path, text: str | bytes) -> Path:
    path = directory / "mine.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def load(directory: Path, text: str) -> DeviceProfile:
    (profile,) = load_device_file(write(directory, text))
    return profile


def refusal(directory: Path, text: str | bytes) -> str:
    path = write(directory, text)
    with pytest.raises(ModelingError) as caught:
        load_device_file(path)
    message = str(caught.value)
    assert caught.value.exit_status == 2
    assert str(path) in message
    assert "\n" not in message
    return message.replace(str(path), "mine.yaml")


def test_everything_absent_is_derived_and_said_to_be(tmp_path: Path) -> None:
    device = load(tmp_path, MINIMAL)
    # float16 as bfloat16; vector float32 = 160 / 16; matrix float32 on the vector units.
    assert device.matrix_flops == {"bfloat16": 160e12, "float16": 160e12, "float32": 10e12}
    assert device.vector_flops == {"float32": 10e12}
    assert (device.matrix_cores, device.vector_cores, device.cache_bytes) == (1, 1, 0)
    assert device.interconnect.shape == (1,)
    assert device.kernels == rules.KERNELS
    assert device.collective == rules.COLLECTIVE
    assert (device.vendor, device.family, device.description) == ("unknown", "custom", "")
    stated = {"matrix_flops.bfloat16", "memory_bytes", "memory_bandwidth"}
    assert {figure.path for figure in list_figures(device) if not figure.assumed} == stated
    assert device.sources["memory_bytes"] == "stated in mine.yaml"
    assert device.sources["vector_flops.float32"] == rules.FLOAT32_VECTOR


def test_a_quantised_rate_is_not_derived(tmp_path: Path) -> None:
    for dtype in ("int8", "fp8", "fp4", "int4"):
        with pytest.raises(ModelingError, match=f"MINE has no {dtype} matrix rate"):
            load(tmp_path, MINIMAL).matrix_rate(dtype)


def test_stated_figures_win_over_rules(tmp_path: Path) -> None:
    device = load(tmp_path, MINIMAL + "vector_flops: {float32: 4e12}\nmatrix_cores: 20\ncache_bytes: 1e6\n")
    assert device.vector_flops["float32"] == device.matrix_flops["float32"] == 4e12
    assert (device.matrix_cores, device.vector_cores, device.cache_bytes) == (20, 20, 1e6)


def test_kernels_come_from_the_device_then_its_family_then_the_rules(tmp_path: Path) -> None:
    text = "family: nvidia_hopper\nkernels: {matmul: {fixed_s: 1e-6}}\nsources: {kernels.matmul.fixed_s: my bench}\n"
    device = load(tmp_path, MINIMAL + text)
    hopper = get_device("H100_SXM_80GB")
    assert device.kernels["matmul"].fixed_s == 1e-6
    assert device.kernels["matmul"].matrix_efficiency == hopper.kernels["matmul"].matrix_efficiency
    assert device.kernels["vector"] == hopper.kernels["vector"]
    assert device.sources["kernels.matmul.fixed_s"] == "my bench"
    assert device.sources["kernels.matmul.matrix_efficiency"].startswith(
        "assumed: as H100_SXM_80GB and H200_SXM_141GB;"
    )


def test_a_dtype_may_cost_apart_and_takes_the_rest_from_its_class(tmp_path: Path) -> None:
    text = "kernels: {matmul: {fixed_s: 1e-6, tiles: [[64, 64], [128, 256]]}, matmul_fp8: {fixed_s: 2e-6}}\n"
    device = load(tmp_path, MINIMAL + text)
    assert device.kernel_cost("matmul", "bfloat16") == device.kernel_cost("matmul", "int8") == device.kernels["matmul"]
    fp8 = device.kernel_cost("matmul", "fp8")
    assert (fp8.fixed_s, fp8.tiles) == (2e-6, ((64, 64), (128, 256)))
    assert (fp8.wave_s, fp8.step_s, fp8.overlap) == (0, 0, 1)
    assert device.sources["kernels.matmul_fp8.tiles"] == "stated in mine.yaml"
    assert device.sources["kernels.matmul_fp8.overlap"] == rules.ROOFLINE


def test_a_file_of_several_devices_shares_its_defaults(tmp_path: Path) -> None:
    entry = "{matrix_flops: {bfloat16: 1e12}, memory_bytes: 1e9, memory_bandwidth: 1e9}"
    text = (
        "vendor: me\nfamily: mine\n"
        "defaults: {fitted_on: [ONE], collective: {fixed_s: 1e-6}, sources: {collective: bench}}\n"
        f"devices:\n  ONE: {entry}\n  TWO: {entry}\n"
    )
    one, two = load_device_file(write(tmp_path, text))
    assert (one.name, two.name, two.vendor, two.family) == ("ONE", "TWO", "me", "mine")
    assert two.collective == CollectiveCost(rules.COLLECTIVE.link_efficiency, 1e-6)
    assert one.sources["collective.fixed_s"] == "bench"
    assert two.sources["collective.fixed_s"] == "assumed: as ONE; bench"


def test_a_source_covers_the_group_that_it_names(tmp_path: Path) -> None:
    device = load(
        tmp_path,
        MINIMAL
        + "interconnect: [{name: node, size: 8, topology: switched, bandwidth: 1e9, latency_s: 0}]\n"
        + "sources: {interconnect: data sheet, interconnect.node.size: counted}\n",
    )
    assert device.sources["interconnect.node.bandwidth"] == "data sheet"
    assert device.sources["interconnect.node.size"] == "counted"


@pytest.mark.parametrize("number", ["1.6e12", "1.6e+12", "1.6E12", "1600000000000", "1_600_000_000_000", "1600e9"])
def test_numbers_as_people_write_them(tmp_path: Path, number: str) -> None:
    assert load(tmp_path, MINIMAL.replace("1.6e12", number)).memory_bandwidth == 1.6e12


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (".nan", "nan"),
        (".inf", "inf"),
        ("1e999", "inf"),
        ("9" * 5000, "inf"),
        ("0", "0"),
        ("-1e9", "-1000000000.0"),
        ("true", "true"),
        ("376T", "'376T'"),
        ('"64"', "'64'"),
        ("", "nothing"),
        ("[1]", "a list of 1"),
        ("{a: 1}", "a mapping"),
        ("0x10", "'0x10'"),
        ("1:30", "'1:30'"),
    ],
)
def test_what_is_no_positive_number_is_refused(tmp_path: Path, value: str, got: str) -> None:
    message = refusal(tmp_path, MINIMAL.replace("64e9", value))
    assert message.startswith("mine.yaml:3: memory_bytes: expected a number")
    assert message.endswith(f", got {got}.")


@pytest.mark.parametrize(
    ("addition", "expected"),
    [
        ("matrix_coers: 3", ":5: matrix_coers: there is no such key. Did you mean matrix_cores"),
        ("kernels: {matmul: {tile: 3}}", ":5: kernels.matmul.tile: there is no such key. Did you mean tiles"),
        ("kernels: {gemm: {}}", ":5: kernels.gemm: there is no such key."),
        ("matrix_cores: 2.5", ":5: matrix_cores: expected a whole number, got 2.5."),
        ("matrix_cores: 0", ":5: matrix_cores: expected a whole number >= 1, got 0."),
        ("kernels: {matmul: {matrix_efficiency: 1.2}}", "expected a number <= 1.0, got 1.2."),
        ("collective: {fixed_s: -1e-6}", "collective.fixed_s: expected a number >= 0.0, got -1e-06."),
        ("interconnect: []", ":5: interconnect: expected a list of length >= 1, got a list of 0."),
        ("interconnect: 8", ":5: interconnect: expected a list, got 8."),
        ("interconnect:\n  - {name: node, size: 8}", ":6: interconnect[0].topology is missing"),
        (
            "interconnect:\n  - {name: node, size: 8, topology: ring, bandwidth: 1e9, latency_s: 0}",
            ":6: interconnect[0].topology: expected one of switched, full_mesh, got 'ring'.",
        ),
        (
            "interconnect:\n  - {name: node, size: 1, topology: switched, bandwidth: 1e9, latency_s: 0}",
            ":6: interconnect[0].size: expected a whole number >= 2, got 1.",
        ),
        (
            "interconnect:\n  - {name: node, size: 8, topology: switched, bandwith: 1e9, latency_s: 0}",
            ":6: interconnect[0].bandwith: there is no such key. Did you mean bandwidth",
        ),
        (
            "interconnect:\n"
            "  - {name: node, size: 2, topology: switched, bandwidth: 1e9, latency_s: 0}\n"
            "  - {name: node, size: 2, topology: switched, bandwidth: 1e9, latency_s: 0}",
            ":7: interconnect: two levels are named node; name them apart.",
        ),
        ("sources: {memory_byte: x}", "sources.memory_byte: the device has no such figure. Did you mean memory_bytes"),
        ("sources: {memory_bytes: 7}", ":5: sources.memory_bytes: expected text, got 7."),
        ("family: nvidia_hoper", ":5: family: nvidia_hoper is not packaged"),
        ("memory_bytes: 1", ":5: memory_bytes is given twice here; keep one."),
        ("description: &x text\nvendor: *x", "anchors and aliases are not read"),
        ("cache_bytes: !!python/object:os.system 1", "is not read; write a plain value."),
        ("kernels: !mine {}", "is not read; write a plain value."),
        ("<<: {vendor: me}", ":5: <<: there is no such key."),
        ("? [a]\n: 1", "a key is a word, not a list or a mapping."),
    ],
)
def test_each_mistake_is_named(tmp_path: Path, addition: str, expected: str) -> None:
    assert expected in refusal(tmp_path, MINIMAL + addition + "\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "mine.yaml: the file is empty"),
        ("- 1\n", "mine.yaml:1: a device file is a mapping"),
        ("name: A\n  b: 1\n", "mine.yaml:2: this is not YAML: mapping values are not allowed in this context."),
        ("a: [1\n", "this is not YAML"),
        ("a: 1\n---\nb: 2\n", "this is not YAML"),
        ("[" * 5000, "this is not YAML"),
        (MINIMAL.replace("name: MINE\n", ""), "mine.yaml:1: name is missing"),
        (MINIMAL.replace("MINE", "a b"), "mine.yaml:1: name: expected text matching"),
        (MINIMAL.replace("bfloat16", "float16"), "mine.yaml:2: matrix_flops.bfloat16 is missing; a profile needs it."),
        (MINIMAL.replace("memory_bytes: 64e9\n", ""), "mine.yaml:1: memory_bytes is missing; a profile needs it."),
        (MINIMAL.replace("bfloat16", "bf16"), "mine.yaml:2: matrix_flops.bf16: there is no such key. Did you mean"),
        ("devices: {}\n", "mine.yaml:1: devices: expected a mapping of length >= 1, got a mapping."),
        ("devices: [1]\n", "mine.yaml:1: devices: expected a mapping, got a list of 1."),
        ("devices:\n  A: 3\n", "mine.yaml:2: devices.A: expected a mapping, got 3."),
        ("devices:\n  A/B: {}\n", "mine.yaml:2: 'A/B' is no device name"),
        ("devices:\n  A: {memory_bytes: 1}\n", "mine.yaml:2: devices.A.matrix_flops is missing; a profile needs it."),
        (b"name: \xff\n", "mine.yaml:1: a device file is UTF-8 text; this line is not."),
        (b"name: \x00\n", "mine.yaml: this is not YAML"),
        (b" " * (SIZE_LIMIT + 1), "a device file has at most 1.0 MB"),
    ],
)
def test_each_wrong_file_is_named(tmp_path: Path, text: str | bytes, expected: str) -> None:
    assert expected in refusal(tmp_path, text)


def test_a_huge_file_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    with path.open("wb") as file:
        file.truncate(100 * 10**6)  # Sparse: nothing is written, and nothing may be read.
    with pytest.raises(ModelingError, match=r"has 100\.0 MB; a device file has at most 1\.0 MB"):
        load_device_file(path)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(ModelingError, match=r"Cannot read the device file .*absent\.yaml: No such file"):
        load_device_file(tmp_path / "absent.yaml")
    with pytest.raises(ModelingError, match="Is a directory"):
        load_device_file(tmp_path)


rates = st.floats(min_value=1e-3, max_value=1e20)
times = st.floats(min_value=0, max_value=1)
shares = st.floats(min_value=0, max_value=1, exclude_min=True)
counts = st.integers(min_value=1, max_value=10**6)
texts = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn", "Zl", "Zp")), min_size=1, max_size=20)
tiles = st.lists(st.tuples(counts, counts), min_size=1, max_size=5).map(tuple)
sizes = st.floats(min_value=0, max_value=1e12)
kernels = st.builds(
    KernelCost, shares, shares, shares, times, tiles, times, times, times, shares, st.integers(1, 256), sizes
)
levels = st.builds(
    LinkLevel,
    st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True),
    st.integers(2, 1000),
    st.sampled_from(["switched", "full_mesh"]),
    rates,
    times,
    st.booleans(),
)


@st.composite
def profiles(draw: st.DrawFn) -> DeviceProfile:
    quantised = draw(st.dictionaries(st.sampled_from(["int8", "fp8", "fp4", "int4"]), rates))
    profile = DeviceProfile(
        name=draw(st.from_regex(r"[A-Z][A-Z0-9_]{0,20}", fullmatch=True)),
        vendor=draw(texts),
        family=draw(st.sampled_from(["custom", "ascend_a3", "nvidia_hopper"])),
        description=draw(st.one_of(st.just(""), texts)),
        matrix_flops={"bfloat16": draw(rates), "float16": draw(rates), "float32": draw(rates), **quantised},
        vector_flops={"float32": draw(rates)},
        memory_bytes=draw(rates),
        memory_bandwidth=draw(rates),
        matrix_cores=draw(counts),
        vector_cores=draw(counts),
        cache_bytes=draw(sizes),
        interconnect=Interconnect(
            tuple(draw(st.lists(levels, min_size=1, max_size=3, unique_by=lambda level: level.name)))
        ),
        kernels={kind: draw(kernels) for kind in Kernels.__struct_fields__},
        collective=draw(st.builds(CollectiveCost, shares, times, times, times, sizes, sizes, times)),
        launch_gap_s=draw(times),
        host_launch_s=draw(times),
    )
    profile.sources.update((figure.path, draw(texts)) for figure in list_figures(profile))
    return profile


@given(profiles())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_profile_written_out_loads_as_itself(tmp_path: Path, profile: DeviceProfile) -> None:
    assert load(tmp_path, json.dumps(as_document(profile), ensure_ascii=False)) == profile


@pytest.mark.parametrize("name", ["H100_SXM_80GB", "ATLAS_800_A3_752T_128G_DIE", "MI355X"])
def test_a_packaged_profile_written_out_loads_as_itself(tmp_path: Path, name: str) -> None:
    profile = get_device(name)
    assert load(tmp_path, json.dumps(as_document(profile), ensure_ascii=False)) == profile
