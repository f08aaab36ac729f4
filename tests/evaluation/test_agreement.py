from __future__ import annotations

from tensor_cast.evaluation.agreement import differences

DOCUMENT = {"total_time_s": 1.0, "ops": [{"name": "matmul", "count": 2}], "ttft_s": None}


def test_equal_documents_agree() -> None:
    assert differences([DOCUMENT, DOCUMENT, {**DOCUMENT}]) == []


def test_the_last_digit_counts() -> None:
    other = {**DOCUMENT, "total_time_s": 1.0000000000000002}
    assert differences([DOCUMENT, other]) == [
        "iteration 2: $.total_time_s is 1.0000000000000002, but 1.0 in iteration 1"
    ]


def test_a_difference_is_named_by_its_path_and_iteration() -> None:
    other = {**DOCUMENT, "ops": [{"name": "matmul", "count": 3}]}
    assert differences([DOCUMENT, DOCUMENT, other]) == ["iteration 3: $.ops[0].count is 3, but 2 in iteration 1"]


def test_absent_keys_lengths_and_types_are_differences() -> None:
    other = {"total_time_s": 1, "ops": [], "extra": 0}
    assert differences([DOCUMENT, other]) == [
        "iteration 2: $.total_time_s is 1, but 1.0 in iteration 1",
        "iteration 2: $.ops is 0 long, but 1 long in iteration 1",
        "iteration 2: $.ttft_s is absent, but there in iteration 1",
        "iteration 2: $.extra is there, but absent in iteration 1",
    ]


def test_no_more_than_twenty_differences_are_listed() -> None:
    assert len(differences([[0] * 50, [1] * 50])) == 20
