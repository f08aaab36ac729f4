from __future__ import annotations

from pathlib import Path

import pytest

from cli.main import main
from tensor_cast.errors import ModelingError
from tensor_cast.evaluation.models import evaluated_model, model_families, specs_of
from tensor_cast.evaluation.request import EvaluatedModel


@pytest.mark.parametrize(
    ("model", "spec", "expected"),
    [
        ("wan2.2", "t2v-14b", EvaluatedModel("Wan-AI/Wan2.2-T2V-A14B-Diffusers", "wan2.2", "t2v-14b")),
        ("qwen3", "32B", EvaluatedModel("Qwen/Qwen3-32B", "qwen3", "32B")),
        ("Qwen/Qwen3-32B", None, EvaluatedModel("Qwen/Qwen3-32B", "qwen3", "32b")),
        (
            "Wan-AI/Wan2.2-T2V-A14B-Diffusers",
            None,
            EvaluatedModel("Wan-AI/Wan2.2-T2V-A14B-Diffusers", "wan2.2", "t2v-a14b"),
        ),
        ("some-lab/New-7B", None, EvaluatedModel("some-lab/New-7B", "new", "7b")),
    ],
)
def test_a_model_is_found_by_family_and_spec_or_by_id(model: str, spec: str | None, expected: EvaluatedModel) -> None:
    assert evaluated_model(model, spec) == expected


def test_a_family_alone_is_not_guessed() -> None:
    assert evaluated_model("wan2.2", None) is None
    assert {"t2v-a14b", "i2v-a14b", "ti2v-5b"} <= set(specs_of("wan2.2"))
    assert {"wan2.2", "qwen3", "deepseek"} <= set(model_families())


def test_what_can_be_evaluated_is_of_the_kind_that_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    language, diffusion = set(model_families(pipelines=False)), set(model_families(pipelines=True))
    assert language | diffusion == set(model_families())
    assert "wan2.2" not in language
    assert "qwen3" not in diffusion
    assert main(["evaluate", "text"]) == 2
    missing = capsys.readouterr().err
    assert f"one of {', '.join(sorted(language))}\n" in missing
    assert "MXFP4, CHECKPOINT" in missing
    assert main(["evaluate", "video"]) == 2
    missing = capsys.readouterr().err
    assert f"one of {', '.join(sorted(diffusion))}\n" in missing
    assert "CHECKPOINT" not in missing


def test_a_path_needs_a_word_for_its_size(tmp_path: Path) -> None:
    directory = tmp_path / "MyModel"
    directory.mkdir()
    assert evaluated_model(str(directory), None) is None
    assert evaluated_model(str(directory), "3b") == EvaluatedModel(str(directory), "MyModel", "3b")


@pytest.mark.parametrize(
    ("model", "spec", "message"),
    [
        ("qwen3", "33b", "no spec '33b' in the catalog"),
        ("qwem3", "32b", "There is no model 'qwem3'. Did you mean qwen3"),
        ("Qwen/Qwen3-32B", "14b", "--spec 14b is not of the model Qwen3-32B"),
    ],
)
def test_wrong_names_are_told_with_the_nearest(model: str, spec: str, message: str) -> None:
    with pytest.raises(ModelingError, match=message):
        evaluated_model(model, spec)
