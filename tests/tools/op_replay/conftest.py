"""Running the commands as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ROOT / "tools" / "perf_data_collection"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., list[str]]:
    """The command line of start_microbench.py on the database ``tmp_path / "db"``; its status file is apart."""

    def build(*flags: str, script: str = "start_microbench.py") -> list[str]:
        status = [] if "_run.py" in script else ["--status-path", str(tmp_path / "status.json")]
        return [sys.executable, str(TOOLS / script), "--database-path", str(tmp_path / "db"), *status, *flags]

    return build


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run start_microbench.py in this process to its end; what it starts runs in processes of its own."""
    from tools.perf_data_collection import start_microbench

    def run(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
        for name, value in {"OMP_NUM_THREADS": "1", **environment}.items():
            monkeypatch.setenv(name, value)
        places = ["--database-path", str(tmp_path / "db"), "--status-path", str(tmp_path / "status.json")]
        capfd.readouterr()
        status = start_microbench.main([*places, *flags])
        output, errors = capfd.readouterr()
        return subprocess.CompletedProcess([], status, output, errors)

    return run


STANDINS = Path(__file__).parent / "standins"


@pytest.fixture
def npu_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Environment of a machine with NPUs, all of it stand-ins; this process finds them too."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    msprof = binaries / "msprof"
    msprof.write_text(f'#!/bin/sh\nexec {sys.executable} {STANDINS / "msprof.py"} "$@"\n')
    msprof.chmod(0o755)
    monkeypatch.syspath_prepend(STANDINS)
    yield {
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "PYTHONPATH": str(STANDINS),
        "ASCEND_CUSTOM_OPP_PATH": "/opp",
        "LD_LIBRARY_PATH": "/opp/op_api/lib",
        "ATB_HOME_PATH": "/atb",
    }
    forget_standins()


def forget_standins() -> None:
    """Take the stand-ins out of this process."""
    for name in [
        name
        for name in sys.modules
        if name.split(".")[0] in ("torch_npu", "vllm_ascend", "standin_calls", "standin_kernels")
    ]:
        del sys.modules[name]
    torch = sys.modules.get("torch")
    if torch is not None and "npu" in vars(torch):
        del torch.npu, torch.Tensor.npu
        sys.modules.pop("torch.npu", None)
