"""Measure collectives among the processes of a torchrun, by message size and group size.

HCCL on NPUs, NCCL on GPUs, gloo anywhere. Every result is checked before it is timed; rank 0 writes the rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from tensor_cast.command_line import CommandParser, given_path, whole_number
from tensor_cast.errors import ModelingError
from tools.perf_data_collection.comm_bench.plan import BACKENDS, BYTES_GRID, DTYPES, OPS, Case, Settings, plan
from tools.perf_data_collection.command import exit_status

if TYPE_CHECKING:
    from tools.perf_data_collection.comm_bench.results import Results
    from tools.perf_data_collection.comm_bench.session import Session

_EXAMPLES = """examples:
  torchrun --nproc_per_node=16 tools/perf_data_collection/comm_bench/generate_comm_microbench.py \\
      --database-path ./hccl_data --ops all_reduce all_gather --num-devices 16 8 4 2
  torchrun --nproc_per_node=2 tools/perf_data_collection/comm_bench/generate_comm_microbench.py \\
      --backend gloo --num-devices 2 --bytes-grid 1024 65536 1048576

One line a row goes to stdout; what was left out or failed goes to stderr. Exit status: 0 all measured, 1 some failed
or a file could not be written, 2 a wrong request, 130 interrupted.
"""
_HEADER = f"{'op':<15}{'bytes':>12}{'devices':>9}{'tier':>6}{'us':>14}{'GB/s':>10}"


def build_parser() -> CommandParser:
    """The command's flags."""
    parser = CommandParser(
        prog="generate_comm_microbench.py",
        description=__doc__,
        epilog=_EXAMPLES,
    )
    whole = whole_number(1)
    parser.add_argument(
        "--database-path",
        type=given_path,
        metavar="DIR",
        help="directory of the hcom_*.csv files (default: print, write nothing)",
    )
    parser.add_argument("--ops", nargs="+", choices=OPS, default=list(OPS), help="collectives (default: all)")
    parser.add_argument(
        "--num-devices", nargs="+", type=whole, default=[16], metavar="N", help="group sizes (default: 16)"
    )
    parser.add_argument(
        "--topology-tier",
        type=whole_number(0),
        metavar="T",
        help="0 inter-pod, 1 intra-pod, 2 die (default: derived from the grid)",
    )
    parser.add_argument(
        "--grid-shape",
        nargs="+",
        type=whole,
        default=[48, 8, 2],
        metavar="N",
        help="devices at each level of the interconnect, outermost first (default: 48 8 2)",
    )
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="torch.bfloat16", help="default: %(default)s")
    parser.add_argument(
        "--bytes-grid",
        nargs="+",
        type=whole,
        metavar="BYTES",
        help="message sizes (default: 1 KiB to 512 MiB in powers of two)",
    )
    parser.add_argument(
        "--output-csv", type=given_path, metavar="FILE", help="the file to write, only with a single --ops"
    )
    parser.add_argument("--backend", choices=BACKENDS, help="default: hccl with an NPU, nccl with a GPU, else gloo")
    parser.add_argument(
        "--iterations", type=whole, default=10, metavar="N", help="timed calls a row, their median counts (default: 10)"
    )
    parser.add_argument(
        "--warmup", type=whole_number(0), default=20, metavar="N", help="untimed calls before them (default: 20)"
    )
    parser.add_argument("--resume", action="store_true", help="leave out rows that the files have already")
    parser.add_argument(
        "--timeout-s",
        type=whole,
        default=300,
        metavar="S",
        help="longest time for a collective, and to wait for another process (default: 300)",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure as the arguments say; returns the exit status."""
    return exit_status(lambda: _run(build_parser().parse_args(argv)))


def _run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    try:
        import torch.distributed
    except ImportError:
        raise ModelingError("PyTorch is not installed: pip install 'msmodeling[torch]'.") from None

    from tools.perf_data_collection.comm_bench.accelerator import open_accelerator
    from tools.perf_data_collection.comm_bench.launcher import end_with_launcher
    from tools.perf_data_collection.comm_bench.measure import measure_all
    from tools.perf_data_collection.comm_bench.results import Results, bandwidth
    from tools.perf_data_collection.comm_bench.session import Session

    # torch 2.13 renames the tensor forms; older versions and torch_npu have only these.
    warnings.filterwarnings("ignore", "`torch.distributed.(all_gather_into|reduce_scatter)_tensor`", FutureWarning)
    end_with_launcher()
    session = Session(arguments.timeout_s)
    results = Results(arguments.database_path, arguments.output_csv, DTYPES[arguments.dtype].column)
    try:
        settings = _agreed_settings(session, arguments)
        cases = _agreed_cases(session, settings, results, resume=arguments.resume)
    except ModelingError as error:
        # All processes of a node fail alike here.
        if session.speaks_for_node:
            print(f"error: {error}", file=sys.stderr, flush=True)
        session.part()
        return error.exit_status
    if not cases:
        session.part()
        return 0
    accelerator = open_accelerator(settings.backend, session.local_rank, settings.timeout_s)
    session.join(settings.backend)
    provenance = {
        "backend": settings.backend,
        "library": accelerator.version(),
        "torch": torch.__version__,
        "grid_shape": list(settings.grid_shape),
        "warmup": settings.warmup,
        "iterations": settings.iterations,
    }

    def write(case: Case, duration: float) -> None:
        results.write(case, duration, provenance)
        print(
            f"{case.op:<15}{case.message_bytes:>12}{case.num_devices:>9}{case.topology_tier:>6}"
            f"{duration:>14.2f}{bandwidth(case, duration):>10.2f}",
            flush=True,
        )

    groups = session.groups(sorted({case.num_devices for case in cases}))
    try:
        failures = measure_all(cases, groups, settings, session, accelerator, write)
    except ModelingError as error:
        # Before others end, upon which torchrun ends this process.
        print(f"error: {error}", file=sys.stderr, flush=True)
        session.part()
        return error.exit_status
    session.leave()
    if session.is_leader:
        for failure in failures:
            print(f"failed: {failure}", file=sys.stderr)
        target = arguments.output_csv or arguments.database_path or "nowhere: give --database-path to keep them"
        print(f"{len(cases) - len(failures)} of {len(cases)} rows measured, written to {target}", flush=True)
    return 1 if failures else 0


def _check(arguments: argparse.Namespace) -> None:
    if arguments.output_csv is not None and len(set(arguments.ops)) > 1:
        raise ModelingError(
            f"--output-csv is one file, and {len(set(arguments.ops))} collectives are asked for: name a single one "
            "with --ops, or give --database-path.",
            exit_status=1,
        )
    if arguments.topology_tier is not None and arguments.topology_tier >= len(arguments.grid_shape):
        raise ModelingError(
            f"--topology-tier {arguments.topology_tier} is not a level of --grid-shape "
            f"{' '.join(map(str, arguments.grid_shape))}: 0 to {len(arguments.grid_shape) - 1}."
        )
    size = DTYPES[arguments.dtype].bytes
    wrong = [str(number) for number in arguments.bytes_grid or () if number % size]
    if wrong:
        raise ModelingError(
            f"--bytes-grid {' '.join(wrong)}: give multiples of {size}, the bytes of a {arguments.dtype} element."
        )


def _settings(arguments: argparse.Namespace, backend: str) -> Settings:
    def unique(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(values))

    return Settings(
        ops=tuple(dict.fromkeys(arguments.ops)),
        num_devices=unique(arguments.num_devices),
        topology_tier=arguments.topology_tier,
        grid_shape=tuple(arguments.grid_shape),
        dtype=arguments.dtype,
        bytes_grid=unique(arguments.bytes_grid or BYTES_GRID),
        backend=backend,
        iterations=arguments.iterations,
        warmup=arguments.warmup,
        timeout_s=arguments.timeout_s,
    )


def _agreed_settings(session: Session, arguments: argparse.Namespace) -> Settings:
    """The settings, compared with those of all processes before anything that could hang."""
    from tools.perf_data_collection.comm_bench.accelerator import choose_backend

    unusable: ModelingError | None = None
    try:
        backend = choose_backend(arguments.backend)
    except ModelingError as error:
        unusable, backend = error, f"{arguments.backend} (not usable)"
    settings = _settings(arguments, backend)
    session.agree({**settings.to_dict(), "resume": arguments.resume})
    if unusable is not None:
        raise unusable
    return settings


def _agreed_cases(session: Session, settings: Settings, results: Results, *, resume: bool) -> list[Case]:
    """What all ranks measure; only the leader looks into the files, which other nodes may not have."""
    cases, doubts = plan(settings, session.world_size)
    if not cases:
        if session.is_leader:
            print("\n".join(f"warning: {doubt}" for doubt in doubts), file=sys.stderr)
        raise ModelingError(
            f"No group of --num-devices {' '.join(map(str, settings.num_devices))} can be formed of "
            f"{session.world_size} processes: start more (--nproc_per_node), or give smaller groups."
        )
    if session.is_leader:
        try:
            known = results.measured(cases) if resume else set()
        except ModelingError as error:
            session.decide("known rows", json.dumps(str(error)))
            raise
        session.decide("known rows", json.dumps([number for number, case in enumerate(cases) if case in known]))
        for doubt in doubts:
            print(f"warning: {doubt}", file=sys.stderr)
        if known:
            print(f"{len(known)} of {len(cases)} rows are there already.")
        if len(known) < len(cases):
            print(_HEADER, flush=True)
    skipped = json.loads(session.hear_leader("known rows"))
    if isinstance(skipped, str):
        raise ModelingError(skipped)
    return [case for number, case in enumerate(cases) if number not in set(skipped)]


if __name__ == "__main__":
    sys.exit(main())
