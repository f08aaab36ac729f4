"""What a killed torchrun leaves behind."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

CHILD = (
    "import sys, time; from tools.perf_data_collection.comm_bench.launcher import end_with_launcher;"
    "end_with_launcher(0.05, {'TORCHELASTIC_RUN_ID': 'run'} if sys.argv[1] == 'torchrun' else {});"
    "print('up', flush=True); time.sleep(60)"
)
LAUNCHER = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2]]);"
    "print(child.pid, flush=True); child.wait()"
)


@pytest.mark.parametrize(("kind", "survives"), [("torchrun", False), ("a shell", True)])
def test_a_rank_ends_with_torchrun_and_with_nothing_else(kind: str, survives: bool) -> None:
    command = [sys.executable, "-c", LAUNCHER, CHILD, kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as launcher:
        assert launcher.stdout is not None
        child = int(launcher.stdout.readline())
        assert launcher.stdout.readline() == "up\n"
        launcher.kill()
        launcher.wait()
        # The pipe ends when the last process that holds it does.
        ended, _, _ = select.select([launcher.stdout], [], [], 1.0 if survives else 20.0)
        assert bool(ended) is not survives
        if survives:
            os.kill(child, 9)
