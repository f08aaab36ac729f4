"""Parallelism: how the work is spread over devices."""

from __future__ import annotations

import argparse

from tensor_cast.command_line import CommandParser, number, whole_number

STRATEGY = ("tp_size", "dp_size", "pp_size", "ep_size", "moe_tp_size", "moe_dp_size")
"""Sizes of which at least one says how several devices are used."""

SIZES = {
    "tp_size": "tensor parallelism: ranks that share attention heads and the columns of linear layers",
    "dp_size": "data parallelism: groups that share out the queries",
    "pp_size": "pipeline parallelism: stages of consecutive layers",
    "ep_size": "expert parallelism: ranks that share out the routed experts",
    "moe_tp_size": "tensor parallelism inside each routed expert",
    "moe_dp_size": "replicas of all routed experts",
    "mlp_tp_size": "tensor parallelism of dense MLPs, where not --tp-size",
    "o_proj_tp_size": "tensor parallelism of attention's output projection, where not --tp-size",
    "lmhead_tp_size": "tensor parallelism of the output head, where not --tp-size",
    "dcp_size": "decode context parallelism: ranks of a tensor-parallel group that share out the KV cache's tokens",
}
"""Parallel sizes of a deployment beside the world's, with what is said of each."""


def add_parallel_arguments(parser: CommandParser) -> None:
    """How the work is spread over devices."""
    group = parser.add_argument_group(
        "parallelism", "Sizes must multiply to the world size; one that is left out follows from the others."
    )
    size = whole_number(1)
    group.add_argument(
        "--world-size", "--num-devices", type=size, default=1, metavar="N", help="devices in all (default: 1)"
    )
    for name, text in SIZES.items():
        group.add_argument(f"--{name.replace('_', '-')}", type=size, metavar="N", help=text)
    group.add_argument(
        "--enable-sequence-parallel",
        action="store_true",
        help="norms and residuals on a share of the tokens: reduce-scatter and all-gather, not all-reduce",
    )
    _add_expert_arguments(group)
    group.add_argument(
        "--vision-tp-size",
        type=size,
        metavar="N",
        help="tensor parallelism of the vision encoder (default: 1, ranks share out whole images)",
    )


def _add_expert_arguments(group: argparse._ArgumentGroup) -> None:
    """Where shared and spare experts are, and how unevenly the ranks are busy."""
    group.add_argument(
        "--enable-shared-expert-tp", action="store_true", help="shard shared experts over the tensor-parallel group"
    )
    group.add_argument(
        "--enable-redundant-experts", action="store_true", help="one spare expert on every expert-parallel rank"
    )
    group.add_argument(
        "--expert-skew",
        type=number(1.0),
        metavar="RATIO",
        help="tokens of the busiest expert-parallel rank over the mean of all; 1: even (default: with an engine as "
        "uneven as vLLM-Ascend was seen to leave them, otherwise 1)",
    )
    group.add_argument(
        "--shared-expert-ranks",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="expert-parallel ranks that hold shared experts alone, at work beside the others (default: 0, none)",
    )
