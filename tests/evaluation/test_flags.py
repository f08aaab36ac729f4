from __future__ import annotations

from tensor_cast.evaluation.flags import as_arguments, command_line, with_changes


def test_flags_become_arguments_as_they_are_typed() -> None:
    flags = {
        "--decode": True,
        "--compile": False,
        "--num-queries": "8",
        "--compilation-config": ["enable_multistream", "enable_matmul_allreduce"],
        "--device-file": ["a.yaml", "my b.yaml"],
    }
    assert as_arguments(flags) == [
        *("--decode", "--num-queries", "8"),
        *("--compilation-config", "enable_multistream", "enable_matmul_allreduce"),
        *("--device-file", "a.yaml", "--device-file", "my b.yaml"),
    ]


def test_a_change_takes_the_place_of_what_it_changes() -> None:
    changed = with_changes({"--tp-size": "4", "--decode": True}, {"--tp-size": "2", "--dp-size": "2"})
    assert list(changed.items()) == [("--tp-size", "2"), ("--decode", True), ("--dp-size", "2")]


def test_a_line_is_quoted_for_a_shell() -> None:
    assert command_line("msmodeling", "--model", "my model") == "msmodeling --model 'my model'"
