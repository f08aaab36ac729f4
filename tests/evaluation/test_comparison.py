from __future__ import annotations

import copy
import json
import re
from datetime import datetime
from pathlib import Path

import pytest

from cli.main import main
from tensor_cast.errors import ModelingError
from tensor_cast.evaluation.comparison import (
    compared,
    comparison_path,
    differing_parameters,
    kernel_differences,
    same_workload,
)
from tensor_cast.evaluation.comparison_report import comparison_page
from tensor_cast.evaluation.language import Language
from tensor_cast.evaluation.pages.markdown import markdown
from tensor_cast.evaluation.results import Results, read_results

NOW = datetime(2025, 1, 31, 12, 0, 5)


@pytest.fixture
def pair(text_results: Path, shared_text_results: Path) -> list[Results]:
    return [read_results(text_results), read_results(shared_text_results)]


def test_kernel_differences_add_up_to_the_categories(pair: list[Results]) -> None:
    one, four = compared(pair)
    differences = kernel_differences(one, four)
    assert [abs(d.difference_s) for d in differences] == sorted(
        (abs(d.difference_s) for d in differences), reverse=True
    )
    for category, seconds in four.categories.items():
        total = sum(d.difference_s for d in differences if d.category == category)
        assert total == pytest.approx(seconds - one.categories[category], abs=1e-12)
    all_reduce = next(d for d in differences if d.name == "all_reduce")
    assert all_reduce.first_s is None
    assert all_reduce.other_s is not None


def test_only_what_differs_is_listed(pair: list[Results]) -> None:
    # Of dp_size one evaluation was given 1 and the other nothing, which is 1 as well.
    assert [one.config["parameters"]["dp_size"] for one in pair] == [None, 1]
    assert differing_parameters(compared(pair)) == {"world_size": [1, 4], "tp_size": [None, 4]}


def test_a_switch_is_told_as_the_report_tells_it(pair: list[Results]) -> None:
    other = copy.deepcopy(pair[0].config)
    other["parameters"]["compile"] = not pair[0].config["parameters"]["compile"]
    evaluations = compared([pair[0], Results(pair[1].directory, other, pair[0].summary)])
    assert re.search(
        r"`compile` \| (yes \| no|no \| yes) \|", markdown(comparison_page(evaluations, Language("en"), NOW))
    )


def test_the_page_holds_ratios_and_causes(pair: list[Results]) -> None:
    one, four = compared(pair)
    page = markdown(comparison_page([one, four], Language("en"), NOW))
    assert f"| Time to A | 1.00x | {four.time_s / one.time_s:.2f}x |" in page
    assert f"| Throughput to A | 1.00x | {four.throughput / one.throughput:.2f}x |" in page
    assert "What makes the difference of B to A" in page
    assert "| all_reduce |" in page
    assert "| absent |" in page


def test_different_workloads_are_not_compared_in_silence(pair: list[Results]) -> None:
    other = copy.deepcopy(pair[1].summary)
    other["estimate"]["workload"]["num_queries"] = 9.0
    evaluations = compared([pair[0], Results(pair[1].directory, pair[1].config, other)])
    assert not same_workload(evaluations)
    assert "The workloads differ" in markdown(comparison_page(evaluations, Language("en"), NOW))


def test_the_command_writes_beside_the_results(
    text_results: Path, shared_text_results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [str(text_results), str(shared_text_results)]
    assert main(["compare", *results, "--language", "zh"]) == 0
    written = list((text_results.parent / "compare").iterdir())
    assert sorted(path.suffix for path in written) == [".html", ".md"]
    assert all(re.fullmatch(r"comparison_\d{8}_\d{6}", path.stem) for path in written)
    assert "次评测对比" in written[0].read_text()
    assert "B  qwen3_0.6b_a2-376t-64g_w4_tp4_dp1_ep1" in capsys.readouterr().out
    for path in written:
        path.unlink()
    written[0].parent.rmdir()


def test_a_comparison_never_overwrites_another(pair: list[Results], tmp_path: Path) -> None:
    evaluations = compared(pair)
    first = comparison_path(evaluations, tmp_path, NOW)
    assert first.name == "comparison_20250131_120005.md"
    first.write_text("")
    assert comparison_path(evaluations, tmp_path, NOW).name == "comparison_20250131_120005_2.md"


def test_what_cannot_be_compared_is_refused(
    pair: list[Results], video_results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ModelingError, match="Compare 2 to 26"):
        compared(pair[:1])
    with pytest.raises(ModelingError, match="is given twice"):
        compared([pair[0], pair[0]])
    with pytest.raises(ModelingError, match="different kinds cannot be compared: text, video"):
        compared([pair[0], read_results(video_results)])
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text(json.dumps(pair[0].config))
    (broken / "summary.json").write_text("{}")
    assert main(["compare", str(pair[0].directory), str(broken)]) == 2
    assert "summary.json: schema_version: is missing (and" in capsys.readouterr().err
