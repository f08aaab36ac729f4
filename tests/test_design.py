"""The modules and floors that ``docs/design.md`` tells of are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
SOURCES = ("cli", "tensor_cast", "tools", "benchmarks", "skills/performance-evaluation/scripts")


def chapter(title: str) -> str:
    """The text under a heading, up to the next."""
    return DESIGN.split(f"\n## {title}")[1].split("\n## ")[0]


def test_every_module_is_listed_and_no_other() -> None:
    listed: set[str] = set()
    for package, names in re.findall(r"^- `([\w/-]+)/`: ((?:.+\n)(?:  .+\n)*)", chapter("Modules"), re.MULTILINE):
        listed |= {f"{package}/{name}" for name in re.split(r",\s+", names.strip()) if name.isidentifier()}
    paths = {path.relative_to(ROOT) for source in SOURCES for path in (ROOT / source).rglob("*.py")}
    # A kernel's replay is named after the kernel, of which there is a file each.
    modules = {path.with_suffix("").as_posix() for path in paths if not path.stem.endswith(("__init__", "_run"))}
    assert listed == modules


def test_the_layout_shows_only_files_that_exist() -> None:
    names = set(re.findall(r"[\w/]+\.(?:py|md)\b", chapter("Layout")))
    assert len(names) > 40
    assert {name for name in names if not any(ROOT.glob(f"**/{name}"))} == set()


def test_floors_are_those_that_are_checked() -> None:
    table = re.search(r"^layers = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S)
    assert table is not None
    checked = [floor.replace("tensor_cast.", "").split(" | ") for floor in re.findall(r'"(.+)"', table[1])]
    rows = re.findall(r"^    (\S.*)$", chapter("Floors"), re.MULTILINE)
    told = [re.split(r"  +", row)[0].replace("tools/perf_data_collection", "tools").split(" · ") for row in rows]
    assert told == checked
