#!/usr/bin/env python3
"""Check results directories of `msmodeling evaluate`: names, files, fields, and that they agree with each other.

    python skills/performance-evaluation/scripts/validate_results.py results/wan2.2_t2v-14b_a2-376t-64g_w1_u1_cfg0

A directory that only holds results directories, such as `results`, stands for all of them. Every fault is printed with
its file and field. The exit status is 0 for sound results, 1 for faults, 2 for a directory that does not exist.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

# Run by path: the repository's root is needed, not this directory.
sys.path[0] = str(Path(__file__).resolve().parents[3])

from tensor_cast.errors import ModelingError  # noqa: E402
from tensor_cast.evaluation.validate import results_within, validate_results  # noqa: E402


def main(argv: Sequence[str] | None = None) -> int:
    """Validate what the arguments name; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="validate_results.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, nargs="+", metavar="RESULTS_DIR", help="directories to check")
    parser.add_argument("--json", action="store_true", help="print the faults as JSON")
    arguments = parser.parse_args(argv)
    try:
        checked = [one for directory in arguments.results for one in results_within(directory)]
        found = {str(directory): validate_results(directory) for directory in checked}
    except ModelingError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    if arguments.json:
        document = [
            {"results": directory, "valid": not faults, "faults": [asdict(fault) for fault in faults]}
            for directory, faults in found.items()
        ]
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        for directory, faults in found.items():
            print(f"{directory}: {f'{len(faults)} faults' if faults else 'sound'}")
            for fault in faults:
                print(f"  {fault}")
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
