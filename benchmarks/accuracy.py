"""How right the predictions are: python benchmarks/accuracy.py [--measured DIRECTORY] [--write]

Prices every usable published measurement and prints the error of each group, on the rows that no constant was fitted
on. With ``--measured`` it reads the tables of that directory, without it the figures that the project carries
(``benchmarks/figures.json``). ``--write`` writes ``docs/accuracy.md``, ``docs/accuracy.json`` and a scatter plot a
group; ``--json PATH`` writes every row.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.accuracy_kernels import a3_groups, nvidia_groups
from benchmarks.accuracy_report import markdown, scatter, write, write_json
from benchmarks.accuracy_rows import Group, Summary
from benchmarks.accuracy_steps import recipes, serving_groups, steps

ROOT = Path(__file__).resolve().parents[1]
OWN_FIGURES = ROOT / "benchmarks" / "figures.json"
PAGE = ROOT / "docs" / "accuracy.md"
FIGURES = PAGE.with_suffix(".json")
PLOTS = ROOT / "docs" / "images" / "accuracy"

Table = Iterable[Mapping[str, Any]]


def main() -> None:
    """Price, print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, help="directory of the measured tables")
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md, its JSON and its plots")
    parser.add_argument("--json", type=Path, help="write every row to this file")
    arguments = parser.parse_args()
    groups = groups_of(own_tables() if arguments.measured is None else read_tables(arguments.measured))
    for group in groups:
        print(line_of(group))
    if arguments.json is not None:
        write_json(arguments.json, groups, rows=True)
    if arguments.write:
        for group in groups:
            if group.held_out:
                scatter(group, PLOTS / f"{group.name}.png")
        write(PAGE, markdown(groups, plots=PLOTS, target=PAGE))
        write_json(FIGURES, groups, rows=False)


def groups_of(tables: Mapping[str, Table]) -> list[Group]:
    """Every group, priced; ``tables`` by the name of the file that has their columns."""
    return [
        steps(tables["ascend_steps"]),
        recipes(tables["e2e"]),
        *serving_groups(tables["e2e_nvidia_silicon"]),
        *nvidia_groups(tables["kernels_nvidia"]),
        *a3_groups(tables["kernels_a3"], tables["comm_a3"]),
    ]


def read_tables(directory: Path) -> dict[str, Table]:
    """The tables of a directory of measurements."""
    import polars as pl

    def rows(name: str) -> Table:
        return pl.read_csv(directory / f"{name}.csv", infer_schema_length=None).iter_rows(named=True)

    names = ("e2e", "e2e_nvidia_silicon", "kernels_nvidia", "kernels_a3", "comm_a3")
    cases = json.loads((directory / "ascend_steps.json").read_text(encoding="utf-8"))["cases"]
    return {"ascend_steps": cases, **{name: rows(name) for name in names}}


def own_tables() -> dict[str, Table]:
    """The figures that the project carries, in the columns of the same tables; absent ones are empty."""
    document = json.loads(OWN_FIGURES.read_text(encoding="utf-8"))
    return {
        name: [Columns({**table.get("common", {}), **row}) for row in table["rows"]] for name, table in document.items()
    }


class Columns(dict[str, Any]):
    """A row whose columns are empty where it does not have them, as in a table."""

    def __missing__(self, key: str) -> None:
        return None


def line_of(group: Group) -> str:
    """A group in one line."""
    summary = Summary.of(group.held_out)
    unpriced = sum(group.unpriced.values())
    if summary is None:
        return f"{group.title}: no row, {unpriced} not priced"
    return (
        f"{group.title}: n={summary.count}, mean {summary.mean:.1%}, median {summary.median:.1%}, "
        f"p90 {summary.p90:.1%}, bias {summary.bias:+.1%}, in band {summary.covered:.0%}, {unpriced} not priced"
        + (f" (aim: {group.aim})" if group.aim else "")
    )


if __name__ == "__main__":
    main()
