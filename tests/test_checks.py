"""What is no value of its field is one sentence, wherever it comes from: no TypeError, no guess."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensor_cast import Deployment, ModelingError, TextWorkload, simulate

STEP: dict[str, Any] = {"num_queries": 4, "query_length": 1, "context_length": 100, "decode": True}
NO_NUMBERS: tuple[Any, ...] = ("x", "4", np.array([1, 2]), [1, 2], {}, b"x", float("nan"), -1)
SEVERAL_TAKEN = {"num_queries", "query_length", "context_length", "mtp_acceptance_rate"}


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(TextWorkload)])
@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_a_workload_takes_only_values_of_its_fields(field: str, value: Any) -> None:
    if field in SEVERAL_TAKEN and not isinstance(value, str | bytes | dict):
        return
    if field in SEVERAL_TAKEN and value == "4":
        return
    with pytest.raises(ModelingError, match=field):
        TextWorkload(**{**STEP, field: value})


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Deployment)])
@pytest.mark.parametrize("value", [value for value in NO_NUMBERS if not isinstance(value, str)], ids=repr)
def test_a_deployment_takes_only_values_of_its_fields(field: str, value: Any) -> None:
    with pytest.raises(ModelingError, match=field):
        Deployment(**{field: value})


def test_a_switch_is_true_or_false() -> None:
    with pytest.raises(ModelingError, match=r"compile must be True or False, got 'no'\."):
        Deployment(compile="no")  # type: ignore[arg-type]


def test_numpys_numbers_are_numbers() -> None:
    deployment = Deployment(world_size=np.int64(4), tp_size=np.int32(4))  # type: ignore[arg-type]
    assert deployment == Deployment(world_size=4, tp_size=4)
    assert type(deployment.world_size) is int


def test_one_acceptance_rate_needs_no_tuple() -> None:
    workload = TextWorkload(**{**STEP, "query_length": 2}, num_mtp_tokens=1, mtp_acceptance_rate=0.5)  # type: ignore[arg-type]
    assert workload.mtp_acceptance_rate == (0.5,)
    assert workload.tokens_per_sequence == 1.5


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"model": 5}, "model must be a name, got 5."),
        ({"device": None}, "device must be a name, got None."),
        ({"workload": {"num_queries": 1}}, "TextWorkload expected, got {'num_queries': 1}."),
        ({"deployment": "tp8"}, "Deployment expected, got 'tp8'."),
        ({"reserved_bytes": -1.0}, "reserved_bytes must be at least 0, got -1."),
        ({"reserved_bytes": float("nan")}, "reserved_bytes must be one number, got nan."),
        ({"performance_model": None}, "performance_model must be a name, got None."),
    ],
)
def test_a_request_of_other_things_is_refused(arguments: dict[str, Any], sentence: str) -> None:
    request: dict[str, Any] = {"model": "Qwen/Qwen3-0.6B", "device": "H100", "workload": TextWorkload(**STEP)}
    request |= arguments
    with pytest.raises(ModelingError) as refusal:
        simulate(request.pop("model"), **request)
    assert str(refusal.value) == sentence


def test_a_path_may_be_a_path(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,'
        ' "intermediate_size": 128, "vocab_size": 256, "torch_dtype": "bfloat16"}'
    )
    by_path = simulate(config, device="H100", workload=TextWorkload(**STEP))
    assert by_path.total_time_s == simulate(str(config), device="H100", workload=TextWorkload(**STEP)).total_time_s
