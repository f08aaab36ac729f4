"""The model: how it is named, found and read."""

from __future__ import annotations

import argparse

from tensor_cast.command_line import CommandParser, UsageError, choice


def add_model_arguments(parser: CommandParser) -> None:
    """The model, positional or as ``--model-id``, and how to find and read it."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="id in the catalog (`msmodeling models`), directory, config.json, or id on a hub",
    )
    group.add_argument("--model-id", metavar="MODEL", help="the same as MODEL")
    add_reading_arguments(group)


def add_reading_arguments(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """How a config is found and read."""
    group.add_argument(
        "--model-family", metavar="NAME", help="read the config as this family, whatever its model_type says"
    )
    add_remote_source_argument(group)


def add_remote_source_argument(group: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """Where ids that the catalog lacks are looked for."""
    group.add_argument(
        "--remote-source",
        type=choice(("huggingface", "modelscope")),
        default="huggingface",
        metavar="{huggingface,modelscope}",
        help="hub for ids that are not in the catalog; only config files are fetched (default: huggingface)",
    )


def model_name(arguments: argparse.Namespace) -> str | None:
    """The model, however it was given.

    Raises:
        UsageError: it was given twice, differently.
    """
    positional: str | None = arguments.model
    flag: str | None = arguments.model_id
    if positional is not None and flag is not None and positional != flag:
        raise UsageError(f"Two models are given, {positional} and --model-id {flag}: keep one.")
    return flag if positional is None else positional
