"""Kernels: which are fused, who launches them and how."""

from __future__ import annotations

from tensor_cast.command_line import CommandParser, UsageError, choice
from tensor_cast.deployment import ENGINES, EXECUTIONS
from tensor_cast.errors import did_you_mean

COMPILATION_OPTIONS = (
    "enable_multistream",
    "enable_matmul_allreduce",
    "enable_sequence_parallel",
    "enable_dispatch_ffn_combine",
)


def add_compilation_arguments(parser: CommandParser) -> None:
    """Fused kernels, the serving engine, and how kernels are launched."""
    group = parser.add_argument_group("kernels")
    group.add_argument(
        "--compile",
        action="store_true",
        help="fuse kernels as a serving engine's graph mode does (default: one for each operation)",
    )
    group.add_argument(
        "--compilation-config",
        nargs="+",
        action="extend",
        default=[],
        metavar="OPTION",
        help=f"more fusions, with --compile: {', '.join(COMPILATION_OPTIONS)}",
    )
    group.add_argument(
        "--engine",
        type=choice(ENGINES),
        metavar="ENGINE",
        default="none",
        help="serving engine whose own time is added to the step, and whose own kernels of experts are priced where "
        f"known: {', '.join(ENGINES)} (default: none)",
    )
    group.add_argument(
        "--execution",
        type=choice(EXECUTIONS),
        metavar="HOW",
        default="graph",
        help="launch kernels as a captured graph, or eager: one by one, so that the device may wait for the host "
        "(default: graph)",
    )


def compilation_options(given: list[str]) -> set[str]:
    """What ``--compilation-config`` asks for, in the spelling of a deployment.

    Raises:
        UsageError: it is not one of ``COMPILATION_OPTIONS``.
    """
    names = [name for text in given for name in text.replace(",", " ").split()]
    options = {name.casefold().replace("-", "_"): name for name in names}
    unknown = [name for folded, name in options.items() if folded not in COMPILATION_OPTIONS]
    if unknown:
        raise UsageError(
            f"--compilation-config does not know {', '.join(unknown)}: it takes {', '.join(COMPILATION_OPTIONS)}."
            f"{did_you_mean(unknown[0], COMPILATION_OPTIONS)}"
        )
    return set(options)
