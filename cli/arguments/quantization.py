"""Quantisation: formats of weights, KV cache and hidden states."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tensor_cast.command_line import CommandParser, choice, whole_number
from tensor_cast.deployment import CHECKPOINT
from tensor_cast.dtypes import ACTIVATION_DTYPES, ALIASES
from tensor_cast.quantization import ATTENTION_DTYPES, LINEAR_SCHEMES

LINEAR_ACTIONS = (*LINEAR_SCHEMES, CHECKPOINT)
LINEAR_CHOICES = ", ".join(LINEAR_SCHEMES)
ATTENTION_CHOICES = ", ".join(ATTENTION_DTYPES)


def add_quantization_arguments(parser: CommandParser) -> None:
    """Formats of weights, KV cache and hidden states."""
    group = parser.add_argument_group("quantisation")
    group.add_argument(
        "--quantize-linear-action",
        type=choice(LINEAR_ACTIONS),
        metavar="SCHEME",
        help=f"linear layers: {LINEAR_CHOICES}, or {CHECKPOINT} for what the config's quantization_config says",
    )
    group.add_argument(
        "--quantize-non-expert-linear-action",
        type=choice(LINEAR_SCHEMES),
        metavar="SCHEME",
        help="linear layers other than routed experts, where not as --quantize-linear-action",
    )
    group.add_argument("--quantize-lmhead", action="store_true", help="quantise the output head like other layers")
    add_format_arguments(group, attention="KV cache and attention")


def add_format_arguments(group: argparse._ArgumentGroup, *, attention: str, dtype: str | None = None) -> None:
    """Formats of ``attention``, of MXFP4's scales, and of what is not quantised: ``dtype``, or the model's own."""
    group.add_argument(
        "--quantize-attention-action",
        type=choice(ATTENTION_DTYPES),
        default="DISABLED",
        metavar="SCHEME",
        help=f"{attention}: {ATTENTION_CHOICES} (default: DISABLED)",
    )
    group.add_argument(
        "--mxfp4-group-size", type=whole_number(1), default=32, metavar="N", help="weights a scale (default: 32)"
    )
    add_dtype_argument(group, default=dtype)


def activation_dtype() -> Callable[[str], str]:
    """The type of a flag that takes a format of hidden states."""
    return choice((*ACTIVATION_DTYPES, *(alias for alias, name in ALIASES.items() if name in ACTIVATION_DTYPES)))


def add_dtype_argument(group: argparse._ArgumentGroup | argparse.ArgumentParser, *, default: str | None = None) -> None:
    """Format of what is not quantised: ``default``, or the model's own."""
    otherwise = default or "the model's"
    group.add_argument(
        "--dtype",
        type=activation_dtype(),
        default=default,
        metavar="DTYPE",
        help=f"hidden states and unquantised weights: {', '.join(ACTIVATION_DTYPES)} (default: {otherwise})",
    )
