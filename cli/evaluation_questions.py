"""Questions on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from tensor_cast.command_line import UsageError
from tensor_cast.errors import did_you_mean

_LISTED = 40


def ask(name: str, choices: Sequence[str] = (), hint: str = "") -> str:
    """The answer to one question; of ``choices`` one must be chosen, by its name or number.

    Raises:
        UsageError: the input ended.
    """
    if choices:
        print(f"{name}{f' ({hint})' if hint else ''}, one of:")
        for number, text in enumerate(choices[:_LISTED], start=1):
            print(f"  {number:>2}  {text}")
        if len(choices) > _LISTED:
            print(f"      and {len(choices) - _LISTED} more")
    by_folded = {text.casefold(): text for text in choices}
    while True:
        answer = _read(f"{name}{f' ({hint})' if hint and not choices else ''}: ")
        if not answer:
            continue
        if not choices:
            return answer
        if answer.isdigit() and 1 <= int(answer) <= len(choices) and answer.casefold() not in by_folded:
            return choices[int(answer) - 1]
        if answer.casefold() in by_folded:
            return by_folded[answer.casefold()]
        print(f"{answer!r} is not one of them.{did_you_mean(answer, choices)}")


def ask_yes_or_no(question: str) -> bool:
    """Whether the answer is yes.

    Raises:
        UsageError: the input ended.
    """
    while True:
        answer = _read(f"{question} [Y/N] ").casefold()
        if answer in ("y", "yes", "n", "no"):
            return answer.startswith("y")


def _read(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except EOFError:
        raise UsageError("The input ended before the question was answered.") from None
