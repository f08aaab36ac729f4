"""Read, show and price every config: python benchmarks/all_configs.py [--configs DIRECTORY] [--verbose]

Takes the language models of the catalog or, with ``--configs``, every ``*.config.json`` of a directory, whose
``provenance.csv`` may give counted parameters (columns ``file``, ``params_counted``, ``flag``). Each is read, shown and
priced once in prefill and once in decode on the smallest of a few device groups that it fits. Prints how many were
tried, match the count exactly, differ, have no count, and were refused, and the seconds; exit status 1 when one differs
without an explanation in ``docs/models.md``, or ends in anything but a result or one sentence.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from tensor_cast.deployment import Deployment
from tensor_cast.errors import ModelingError
from tensor_cast.models import ModelSpec, catalog
from tensor_cast.models.facts import model_facts
from tensor_cast.models.families import read_spec
from tensor_cast.simulator import simulate
from tensor_cast.workload import TextWorkload

DEVICE = "ATLAS_800_A3_752T_128G_DIE"
WORLD_SIZES = (1, 2, 4, 8, 16, 32, 64)
STEPS = (
    TextWorkload(num_queries=4, query_length=2048),
    TextWorkload(num_queries=16, query_length=1, context_length=4096, decode=True),
)
# Parameters that the counted class has and ours leaves out, and why: see docs/models.md.
EXPLAINED = {"reconstructed--baidu--ERNIE-4.5-21B-A3B-PT.config.json": 27 * 64}


@dataclass(frozen=True)
class Entry:
    """A config to try; ``counted`` are the parameters of its reference class, where somebody counted them."""

    name: str
    config: dict[str, Any]
    counted: int | None = None
    flag: str = ""


def of_catalog() -> Iterator[Entry]:
    """Every language model of the catalog."""
    for model in catalog.catalog_ids():
        entry = catalog.find(model)
        if entry is not None and entry.pipeline is None:
            yield Entry(model, entry.config or {})


def of_directory(directory: Path) -> Iterator[Entry]:
    """Every ``*.config.json`` of a directory."""
    rows: dict[str, dict[str, str]] = {}
    provenance = directory / "provenance.csv"
    if provenance.is_file():
        with provenance.open(encoding="utf-8") as file:
            rows = {row["file"]: row for row in csv.DictReader(file)}
    for path in sorted(directory.glob("*.config.json")):
        row = rows.get(path.name, {})
        counted = row.get("params_counted")
        config = json.loads(path.read_text(encoding="utf-8"))
        yield Entry(path.name, config, int(counted) if counted else None, row.get("flag", ""))


def price(spec: ModelSpec) -> str:
    """Price both steps on the fewest ranks that hold the model; in words, where that was."""
    last = "no tensor-parallel size divides it"
    for world in WORLD_SIZES:
        tp = min(world, 8) if spec.has_experts else world
        deployment = Deployment(world_size=world, tp_size=tp, ep_size=world if spec.has_experts else None)
        try:
            estimates = [simulate(spec, device=DEVICE, workload=step, deployment=deployment) for step in STEPS]
        except ModelingError as error:
            last = str(error)
            continue
        if all(estimate.fits for estimate in estimates):
            prefill, decode = (float(estimate.total_time_s) * 1e3 for estimate in estimates)
            return f"{world} devices: prefill {prefill:.1f} ms, decode {decode:.2f} ms"
        last = f"does not fit on {world} devices"
    return last


def outcome(entry: Entry) -> tuple[str, str]:
    """(what came of it, in words)."""
    try:
        spec = read_spec(entry.config, name=entry.name, where=entry.name)
    except ModelingError as error:
        return "refused", str(error)
    facts = model_facts(spec)
    facts.to_dict()
    words = f"{facts.parameters.total:,} parameters; {price(spec)}"
    if spec.ignored_keys:
        words += f"; ignored: {', '.join(spec.ignored_keys)}"
    if entry.counted is None:
        return "not counted", words
    difference = entry.counted - facts.parameters.total
    if not difference:
        return "exact", words
    return "explained" if difference == EXPLAINED.get(entry.name) else "differs", f"{words}; counted {entry.counted:,}"


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", type=Path, metavar="DIRECTORY", help="read *.config.json here, not the catalog")
    parser.add_argument("--verbose", action="store_true", help="a line a config")
    arguments = parser.parse_args()
    if arguments.configs is not None and not arguments.configs.is_dir():
        parser.error(f"{arguments.configs} is not a directory.")
    entries = list(of_catalog() if arguments.configs is None else of_directory(arguments.configs))
    started = time.perf_counter()
    counts: Counter[str] = Counter()
    for entry in entries:
        try:
            result, words = outcome(entry)
        except Exception as error:
            result, words = "crashed", f"{type(error).__name__}: {error}"
        counts[result] += 1
        if arguments.verbose or result in ("refused", "differs", "crashed"):
            print(f"{result:12}{entry.name}: {words}")
    seconds = time.perf_counter() - started
    summary = ", ".join(f"{counts[key]} {key}" for key in ("exact", "explained", "not counted", "differs", "refused"))
    print(f"{len(entries)} configs tried: {summary}, {counts['crashed']} crashed; {seconds:.1f} s")
    return 1 if counts["differs"] or counts["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
