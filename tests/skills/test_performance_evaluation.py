"""Every command of the skill is run, file by file and in order, as somebody who follows it would."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "skills" / "performance-evaluation"
PAGES = [SKILL / "SKILL.md", *sorted((SKILL / "references").glob("*.md"))]
_COMMANDS = re.compile(r"^( *)```bash\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_FENCES = re.compile(r"^ *```(\w*)$", re.MULTILINE)
INSTALL = "pip install -e ."


def _commands(page: Path) -> str:
    return "\n".join(block for _, block in _COMMANDS.findall(page.read_text(encoding="utf-8")))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory where the skill and the commands are found, and where a profiler has written."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, line in {
        "msmodeling": f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -m cli.main "$@"',
        "python": f'exec "{sys.executable}" "$@"',
        # The installation itself is what the README's first command and CI do.
        "pip": '[ "$*" = "install -e ." ]',
    }.items():
        program = programs / name
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
    (tmp_path / "skills").symlink_to(ROOT / "skills")
    profile = tmp_path / "profiling" / "ASCEND_PROFILER_OUTPUT"
    profile.mkdir(parents=True)
    (profile / "kernel_details.csv").write_text(
        "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)\n"
        "1,aclnnMatmul_MatMulV3Common_MatMulV3,MatMulV3,AI_CORE,1764246877073569.640\t,170.4,0\n"
    )
    return tmp_path


def test_pages_hold_commands_and_nothing_else_in_fences() -> None:
    assert len(PAGES) == 8
    assert {kind for page in PAGES for kind in _FENCES.findall(page.read_text())} == {"bash", ""}
    assert sum(_commands(page).count("msmodeling ") for page in PAGES) > 25
    assert INSTALL in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_works(page: Path, place: Path) -> None:
    commands = _commands(page)
    assert commands
    if "time_kernel.py" in commands:
        pytest.importorskip("torch")
    if "Against a measurement" in page.read_text():
        # Its examples go on from the results that SKILL.md makes.
        commands = f"{_commands(SKILL / 'SKILL.md')}\n{commands}"
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=place,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_skill_is_found_in_both_languages() -> None:
    _, front, _ = (SKILL / "SKILL.md").read_text().split("---\n", 2)
    assert "name: performance-evaluation" in front
    assert "how fast is" in front
    assert "性能" in front


@pytest.fixture
def time_kernel() -> ModuleType:
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("time_kernel", SKILL / "scripts" / "time_kernel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["time_kernel"] = module
    spec.loader.exec_module(module)
    return module


def test_warm_up_is_not_timed_and_every_repeat_is(time_kernel: ModuleType) -> None:
    calls: list[int] = []
    timing = time_kernel.measure(lambda: calls.append(1), "cpu", warm_up=3, repeats=5)
    # 3 to warm up, 5 timed one by one, 5 back to back.
    assert len(calls) == 13
    assert timing.fastest_us <= timing.median_us <= timing.slowest_us
    assert not timing.launch_bound


def test_a_device_that_outruns_the_host_is_launch_bound(time_kernel: ModuleType) -> None:
    def timing(device: str, host_launch_us: float) -> bool:
        return bool(time_kernel.Timing(device, 10.0, 9.0, 11.0, host_launch_us, 20.0, 5).launch_bound)

    assert timing("npu", 20.0)
    assert not timing("npu", 5.0)
    assert not timing("cpu", 20.0)


def test_kernel_times_are_printed_as_json(time_kernel: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert time_kernel.main(["add", "--m", "16", "--k", "16", "--device", "cpu", "--repeats", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["repeats"] == 3
