from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_cast.evaluation.naming import ResultsName, device_slug, parse_results_name, results_name, slug


def test_a_generation_is_named_by_its_ulysses_and_cfg_sizes() -> None:
    # One group of CFG is no CFG parallelism, which is written 0.
    one = results_name(
        "wan2.2", "t2v-14b", "ATLAS_800_A2_376T_64G", {"world": 1, "ulysses": 1, "cfg": 1}, is_text=False
    )
    assert str(one) == "wan2.2_t2v-14b_a2-376t-64g_w1_u1_cfg0"
    two = results_name(
        "wan2.2", "t2v-14b", "ATLAS_800_A2_376T_64G", {"world": 4, "ulysses": 2, "cfg": 2}, is_text=False
    )
    assert str(two) == "wan2.2_t2v-14b_a2-376t-64g_w4_u2_cfg2"


def test_a_language_model_is_named_by_its_tensor_data_and_expert_sizes() -> None:
    sizes = {"world": 16, "tp": 4, "dp": 4, "ep": 16, "pp": 1}
    name = results_name("deepseek", "v3", "ATLAS_800_A3_752T_128G_DIE", sizes, is_text=True)
    assert str(name) == "deepseek_v3_a3-752t-128g-die_w16_tp4_dp4_ep16"


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("ATLAS_800_A2_376T_64G", "a2-376t-64g"),
        ("ATLAS_800_A2_280T_64G_PCIE", "a2-280t-64g-pcie"),
        ("ATLAS_350_425T_112G", "350-425t-112g"),
        ("H100_SXM_80GB", "h100-sxm-80gb"),
        ("My Card", "my-card"),
    ],
)
def test_devices_are_named_without_their_series(device: str, expected: str) -> None:
    assert device_slug(device) == expected


def test_the_older_short_form_is_read() -> None:
    assert parse_results_name("wan2.2_t2v-14b_a2-376t-64g_d4_u2_cfg2") == ResultsName(
        "wan2.2", "t2v-14b", "a2-376t-64g", 4, {"ulysses": 2, "cfg": 2}
    )


@pytest.mark.parametrize(
    "name", ["results", "wan2.2_t2v-14b_w1_u1_cfg0", "a_b_c_w1_u1", "a_b_c_w1_tp1_dp1_ep1_runX", "A_b_c_w1_u1_cfg0", ""]
)
def test_other_names_are_not_results(name: str) -> None:
    assert parse_results_name(name) is None


_WORDS = st.text("abcdefghijklmnopqrstuvwxyz0123456789.-_ ÄÖ模型/", min_size=1, max_size=20)
_SIZES = st.integers(min_value=1, max_value=4096)


@given(_WORDS, _WORDS, _WORDS, _SIZES, _SIZES, st.sampled_from([0, 2]), st.integers(min_value=1, max_value=99))
def test_a_name_reads_back_as_itself(
    model: str, spec: str, device: str, world: int, ulysses: int, cfg: int, run: int
) -> None:
    name = ResultsName(slug(model), slug(spec), device_slug(device), world, {"ulysses": ulysses, "cfg": cfg}, run)
    assert parse_results_name(str(name)) == name
