from __future__ import annotations

import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.quantization import LINEAR_SCHEMES, attention_dtype, linear_scheme


def test_block_scales_of_deepseek_kv_a_proj() -> None:
    # ceil(576 / 128) x ceil(7168 / 128) = 5 x 56: the last row of blocks is half full.
    assert linear_scheme("FP8").scale_count(7168, 576) == 280


def test_channel_and_group_scales() -> None:
    assert linear_scheme("W8A8_DYNAMIC").scale_count(4096, 12288) == 12288
    assert linear_scheme("MXFP4").scale_count(64, 10) == 2 * 10
    assert linear_scheme("MXFP4", mxfp4_group_size=16).scale_count(64, 10) == 4 * 10
    assert linear_scheme("DISABLED").scale_count(64, 10) == 0


def test_what_each_scheme_quantises() -> None:
    assert not linear_scheme("W8A16_STATIC").quantizes_activation
    assert linear_scheme("W4A8_DYNAMIC").weight_dtype == "int4"
    assert linear_scheme("W4A8_DYNAMIC").compute_dtype == "int8"
    assert linear_scheme("w8a8_static").dynamic is False
    assert {name for name, scheme in LINEAR_SCHEMES.items() if scheme.dynamic} == {
        "W8A8_DYNAMIC",
        "W4A8_DYNAMIC",
        "FP8",
        "MXFP4",
    }


def test_unknown_names_list_the_choices() -> None:
    with pytest.raises(ModelingError, match="W8A8_DYNAMIC"):
        linear_scheme("W8A8")
    with pytest.raises(ModelingError, match="INT8"):
        attention_dtype("INT4")
    assert attention_dtype("fp8") == "fp8"
