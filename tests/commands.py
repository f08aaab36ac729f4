"""Commands run in this process, as the command line would."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.main import main


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command ``words`` prints; it must end well and write nothing to standard error."""
    status = main(words)
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    return out


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """The JSON that it writes."""
    found: dict[str, Any] = json.loads(printed(capsys, *words, "--json", "-"))
    return found
