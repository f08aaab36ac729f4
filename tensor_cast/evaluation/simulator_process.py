"""Running the simulator's command line in a fresh process, its output streamed as it comes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensor_cast.errors import ModelingError
from tensor_cast.evaluation.flags import command_line
from tensor_cast.evaluation.kernel_rows import KernelRow, kernels_alone, rows_of_trace

PROGRAM = "msmodeling"
_ROOT = Path(__file__).resolve().parents[2]
OnLine = Callable[[str], None]


@dataclass(frozen=True)
class Simulation:
    """One run that ended well: its JSON document, and its kernels by name, part and shape where they were asked for."""

    document: dict[str, Any]
    kernels: tuple[KernelRow, ...]
    wall_time_s: float


class SimulatorError(ModelingError):
    """The simulator refused the request or failed; ``str`` is its own sentence."""


def simulate_in_process(
    arguments: Sequence[str],
    *,
    log: Path | None = None,
    with_kernels: bool = False,
    on_line: OnLine = lambda _line: None,
) -> Simulation:
    """Run ``msmodeling`` with ``arguments`` and collect what it found.

    Args:
        arguments: the command and its flags, without ``--json``.
        log: file that every line of output goes to, at once; its first line is the command, its last the exit status.
        with_kernels: collect kernels by shape, too.
        on_line: called with each line of output.

    Raises:
        SimulatorError: it ended with another status than 0; carries its sentence and status.
    """
    with tempfile.TemporaryDirectory(prefix="msmodeling-") as scratch:
        document, trace = Path(scratch, "estimate.json"), Path(scratch, "trace.json")
        outputs = ["--json", str(document)]
        if with_kernels:
            outputs += ["--chrome-trace-file", str(trace)]
        started = time.perf_counter()
        status, lines = _stream([*arguments, *outputs], command_line(PROGRAM, *arguments), log, on_line)
        wall_time_s = time.perf_counter() - started
        if status != 0:
            raise SimulatorError(_refusal(lines), exit_status=status if status in (1, 2) else 1)
        return Simulation(
            kernels_alone(json.loads(document.read_text(encoding="utf-8"))),
            rows_of_trace(json.loads(trace.read_text(encoding="utf-8"))) if with_kernels else (),
            wall_time_s,
        )


def _stream(arguments: Sequence[str], title: str, log: Path | None, on_line: OnLine) -> tuple[int, list[str]]:
    """Exit status and lines of the process, which is ended with this one."""
    lines: list[str] = []
    with (log or Path(os.devnull)).open("w", encoding="utf-8", buffering=1) as stream:
        stream.write(f"$ {title}\n")
        process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=_environment(),
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                stream.write(line)
                lines.append(line.rstrip("\n"))
                on_line(lines[-1])
            status = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            process.stdout.close()
        stream.write(f"exit status {status}\n")
    return status, lines


def _environment() -> dict[str, str]:
    """This checkout's packages before any other, and nothing of the working directory."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",
        "NO_COLOR": "1",
    }


def _refusal(lines: Sequence[str]) -> str:
    """What the simulator said: from its ``error:`` on, or its last line."""
    for index, line in enumerate(lines):
        if line.startswith("error: "):
            return "\n".join([line.removeprefix("error: "), *lines[index + 1 :]])
    return f"The simulator failed: {lines[-1] if lines else 'it said nothing'}."
