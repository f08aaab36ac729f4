"""The command line as a process: its entry points, pipes, terminals and weight."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUESTION = (
    "Qwen/Qwen3-32B", "--num-queries", "2", "--query-length", "3500", "--device", "ATLAS_800_A2_376T_64G",
    "--quantize-linear-action", "DISABLED",
)  # fmt: skip
MSMODELING = (sys.executable, "-m", "cli.main")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)


def test_the_module_and_the_command_are_one_program() -> None:
    module = run(sys.executable, "-m", "cli.inference.text_generate", *QUESTION)
    command = run(*MSMODELING, "text-generate", *QUESTION)
    assert (module.returncode, module.stderr) == (0, "")
    assert module.stdout == command.stdout
    # 65.5 GB of weights leave no room for both prompts on 64 GiB.
    assert module.stdout.startswith("Does not fit: ")


def test_a_reader_that_leaves_is_no_error() -> None:
    piped = f"{sys.executable} -m cli.main models | head -1; echo ${{PIPESTATUS[0]}}"
    found = run("bash", "-c", piped)
    assert found.stderr == ""
    assert found.stdout.splitlines()[0].split()[0] == "model"


def test_stdout_that_is_full_is_one_sentence() -> None:
    found = run("bash", "-c", f"{sys.executable} -m cli.main models > /dev/full")
    assert found.returncode == 1
    assert found.stderr == "error: Cannot write to stdout: no space left on device.\n"


def test_a_command_imports_only_what_it_needs() -> None:
    code = (
        "import sys; from cli.main import main; main(sys.argv[1:]);"
        "print([n for n in ('numpy', 'rich', 'polars', 'huggingface_hub', 'tensor_cast.models') if n in sys.modules])"
    )
    for words, loaded in (
        (("--help",), "[]"),
        (("text-generate", *QUESTION), "['numpy', 'tensor_cast.models']"),
    ):
        assert run(sys.executable, "-c", code, *words).stdout.splitlines()[-1] == loaded


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_terminal_of_100_columns(no_color: str, coloured: bool) -> None:
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "NO_COLOR": no_color}
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        (*MSMODELING, "text-generate", *QUESTION, "--compile", "--reserved-memory-gb", "9"),
        stdout=writer,
        cwd=ROOT,
        env=environment,
    )
    os.close(writer)
    read = bytearray()
    try:
        while chunk := os.read(reader, 65536):
            read += chunk
    except OSError:
        # Linux ends a terminal whose last writer is gone with EIO.
        pass
    os.close(reader)
    assert process.wait(60) == 0
    text = read.decode()
    assert ("\x1b[1;31m" in text) is coloured
    plain = text
    while "\x1b[" in plain:
        before, _, rest = plain.partition("\x1b[")
        plain = before + rest.partition("m")[2]
    assert max(len(line) for line in plain.splitlines()) <= 100
    # Nothing is cut; a band of errors has dots of its own.
    assert "…" not in plain.replace(" % … +", "")
    assert "This terminal is too narrow for: source" in plain
