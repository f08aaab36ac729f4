"""How a measuring tool ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tensor_cast.errors import ModelingError
from tools.perf_data_collection.command import exit_status


def _raise(error: BaseException) -> Callable[[], int]:
    def run() -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("run", "status", "says"),
    [
        (lambda: None, 0, ""),
        (lambda: 3, 3, ""),
        (_raise(ModelingError("No database.")), 2, "error: No database.\n"),
        (_raise(ModelingError("Memory ran out.", exit_status=70)), 70, "error: Memory ran out.\n"),
        (_raise(KeyboardInterrupt()), 130, "Stopped.\n"),
    ],
)
def test_a_status_and_a_sentence(
    run: Callable[[], int | None], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(run, interrupted="Stopped.") == status
    assert capsys.readouterr().err == says


def test_a_reader_that_is_gone_is_no_traceback() -> None:
    code = (
        "import sys; from tools.perf_data_collection.command import exit_status;"
        "sys.exit(exit_status(lambda: print('line\\n' * 100_000)))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
