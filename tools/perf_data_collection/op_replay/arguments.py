"""The flags that all replay commands share."""

from __future__ import annotations

import argparse
from pathlib import Path

from tensor_cast.command_line import given_path, number, whole_number
from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.paths import DATA_DIRECTORY
from tools.perf_data_collection.database_arguments import add_database_arguments, database_path

UPDATE_MODES = ("all", "missing-only")
BACKEND_NAMES = ("npu", "cuda", "cpu")
DEFAULT_TIMEOUT_S = 300.0
LONGEST_S = 1e6
"""Eleven days; what a timer takes ends at the platform's ``time_t``."""
DEFAULT_EP_SIZE = 16
EP_SIZE_FLAG = "--dispatch-ffn-combine-ep-size"
SCRIPT_EP_SIZE_FLAG = "--ep-size"
EXIT_OUT_OF_MEMORY = 70
"""Exit status of an operator's script after which nothing more can be run on the device."""
_RESUME_STEM = ".replay_journal"


def add_replay_arguments(parser: argparse.ArgumentParser, *, repeat_count: int) -> None:
    """Add the database, what to run and how."""
    add_database_arguments(parser)
    group = parser.add_argument_group("replay")
    group.add_argument(
        "--repeat-count",
        type=whole_number(1),
        default=repeat_count,
        metavar="N",
        help="measured runs of each row (default: %(default)s)",
    )
    group.add_argument(
        "--update-mode",
        choices=UPDATE_MODES,
        default="all",
        help="measure every row, or only rows without a valid duration (default: %(default)s)",
    )
    group.add_argument(
        "--backend",
        choices=BACKEND_NAMES,
        default="npu",
        help="device to run on: msprof times an NPU, torch's profiler a GPU, the clock a CPU (default: %(default)s)",
    )
    group.add_argument(
        "--warmup",
        type=whole_number(0),
        metavar="N",
        help="unmeasured runs before (default: 1 on a CPU or GPU, 0 on an NPU, where msprof records them too)",
    )
    group.add_argument(
        "--timeout-s",
        type=number(1e-6, LONGEST_S, inclusive=True),
        default=DEFAULT_TIMEOUT_S,
        metavar="S",
        help="longest time a row may take before it is given up (default: %(default)g)",
    )
    group.add_argument("--fail-fast", action="store_true", help="stop at the first row or operator that fails")
    group.add_argument("--dry-run", action="store_true", help="say what would be run and run nothing")


def add_internal_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the commands tell each other."""
    parser.add_argument("--journal", type=given_path, help=argparse.SUPPRESS)
    parser.add_argument("--profile-output", type=given_path, help=argparse.SUPPRESS)
    parser.add_argument("--progress", help=argparse.SUPPRESS)


def add_rank_arguments(parser: argparse.ArgumentParser, ep_size_flag: str) -> None:
    """Add how DispatchFFNCombine is spread over processes; torchrun's spellings, with one dash or two."""
    group = parser.add_argument_group("DispatchFFNCombine", "one process an NPU, as many as the expert-parallel size")
    group.add_argument(
        ep_size_flag,
        dest="ep_size",
        type=whole_number(1),
        default=DEFAULT_EP_SIZE,
        metavar="N",
        help="expert-parallel size (default: %(default)s)",
    )
    group.add_argument(
        "-nproc-per-node",
        "--nproc-per-node",
        type=whole_number(1),
        metavar="N",
        help="processes on each machine (default: the EP size over the machines)",
    )
    group.add_argument(
        "-nnodes", "--nnodes", type=whole_number(1), default=1, metavar="N", help="machines (default: %(default)s)"
    )
    group.add_argument(
        "-node-rank",
        "--node-rank",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="this machine (default: %(default)s)",
    )
    group.add_argument(
        "-master-addr",
        "--master-addr",
        default="127.0.0.1",
        metavar="HOST",
        help="address of machine 0 (default: %(default)s)",
    )
    group.add_argument(
        "-master-port",
        "--master-port",
        type=whole_number(1),
        metavar="PORT",
        help="its port; must be given with several machines (default: a free one)",
    )


def check_ranks(arguments: argparse.Namespace) -> None:
    """Refuse a spread that does not fit the EP size.

    Raises:
        ModelingError: the processes are not as many, or several machines have no port to meet at.
    """
    per_node = processes_per_node(arguments)
    if not per_node:
        raise ModelingError(
            f"The EP size {arguments.ep_size} cannot be shared out evenly over {arguments.nnodes} machines: give "
            "another -nnodes."
        )
    if per_node * arguments.nnodes != arguments.ep_size:
        raise ModelingError(
            f"{per_node} processes on {arguments.nnodes} machines are not the EP size {arguments.ep_size}: "
            "nproc-per-node times nnodes must equal it."
        )
    if arguments.nnodes > 1 and arguments.master_port is None:
        raise ModelingError("Several machines need -master-port, the same on each of them.")
    if arguments.node_rank >= arguments.nnodes:
        raise ModelingError(f"-node-rank {arguments.node_rank} is not below -nnodes {arguments.nnodes}.")


def processes_per_node(arguments: argparse.Namespace) -> int:
    """Processes on this machine; 0 when the EP size cannot be spread evenly."""
    if arguments.nproc_per_node is not None:
        return int(arguments.nproc_per_node)
    return 0 if arguments.ep_size % arguments.nnodes else int(arguments.ep_size // arguments.nnodes)


def shared_flags(arguments: argparse.Namespace, directory: Path) -> list[str]:
    """The replay flags for a command that this one starts."""
    flags = ["--database-path", str(directory), "--repeat-count", str(arguments.repeat_count)]
    flags += ["--update-mode", arguments.update_mode, "--backend", arguments.backend]
    flags += ["--timeout-s", str(arguments.timeout_s)]
    if arguments.warmup is not None:
        flags += ["--warmup", str(arguments.warmup)]
    return flags + (["--fail-fast"] if arguments.fail_fast else [])


def rank_flags(arguments: argparse.Namespace, ep_size_flag: str) -> list[str]:
    """The spread for a command that this one starts."""
    flags = [ep_size_flag, str(arguments.ep_size)]
    if arguments.nproc_per_node is not None:
        flags += ["-nproc-per-node", str(arguments.nproc_per_node)]
    flags += ["-nnodes", str(arguments.nnodes), "-node-rank", str(arguments.node_rank)]
    flags += ["-master-addr", arguments.master_addr]
    return flags + ([] if arguments.master_port is None else ["-master-port", str(arguments.master_port)])


def replay_directory(arguments: argparse.Namespace) -> Path:
    """The database to replay.

    Raises:
        ModelingError: it does not exist, its versions are unknown, or an NPU's packaged times would be overwritten by
            another device's.
    """
    if arguments.database_path is None and arguments.backend != "npu":
        raise ModelingError(
            f"--backend {arguments.backend} needs --database-path: give a directory of its own for this machine's "
            "times."
        )
    directory = database_path(arguments).resolve()
    if arguments.backend != "npu" and directory.is_relative_to(DATA_DIRECTORY.resolve()):
        raise ModelingError(
            f"{directory} holds an NPU's times, which --backend {arguments.backend} would overwrite: copy it and give "
            "the copy with --database-path."
        )
    if not directory.is_dir():
        raise ModelingError(f"The database directory {directory} does not exist.")
    return directory


def journal_path(directory: Path) -> Path:
    """Where a run on a database keeps what it has done, for ``--resume``."""
    return directory / f"{_RESUME_STEM}.jsonl"
