"""``msmodeling models``: the models that work offline, and what follows from one's config alone."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from cli import pipelines
from cli.arguments.model import add_reading_arguments
from cli.arguments.quantization import ATTENTION_CHOICES, LINEAR_ACTIONS, LINEAR_CHOICES, add_dtype_argument
from cli.console import show
from tensor_cast.command_line import CommandParser, UsageError, choice, whole_number
from tensor_cast.quantization import ATTENTION_DTYPES, LINEAR_SCHEMES

if TYPE_CHECKING:
    from tensor_cast.deployment import Deployment
    from tensor_cast.models import ModelSpec
    from tensor_cast.reporting.model_table import CatalogRow

    Subparsers = argparse._SubParsersAction[CommandParser]

_TEXT_FLAGS = (
    "context_length",
    "tp_size",
    "quantize_linear_action",
    "quantize_non_expert_linear_action",
    "quantize_attention_action",
    "dtype",
    "block_size",
    "model_family",
)
"""Flags of language models alone; ``None`` where they are not given."""

_EXAMPLES = """\
examples:
  msmodeling models
  msmodeling models show Qwen/Qwen3-32B --context-length 32768 --tp-size 8
  msmodeling models show ./my-model/config.json --json
  msmodeling models show Wan-AI/Wan2.2-T2V-A14B-Diffusers --height 480 --width 832 --frame-num 81
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add ``models`` and ``models show`` to the command line."""
    parser = subparsers.add_parser(
        "models",
        help="list the known models, or show what follows from one's config",
        description="List the models of the catalog, or show what follows from one model's config alone.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    commands = parser.add_subparsers(dest="models_command", metavar="{list,show}")
    listing = commands.add_parser("list", help="the models of the catalog, as without a command")
    # Suppressed where it is not given here: it may have been given before "list".
    listing.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print the list as JSON")
    details = commands.add_parser(
        "show",
        help="parameters, weights, KV cache and FLOPs of one model, with their derivation",
        description="Parameters, weights, KV cache and FLOPs a token of one model, from its config alone.",
    )
    details.add_argument(
        "model", metavar="ID_OR_PATH", help="id in the catalog, directory, config.json, or id on a hub"
    )
    details.add_argument("--json", dest="show_json", action="store_true", help="print the figures as JSON")
    details.add_argument(
        "--context-length", type=whole_number(1), metavar="N", help="tokens of the sequence whose KV cache is shown"
    )
    details.add_argument("--tp-size", type=whole_number(1), metavar="N", help="tensor-parallel ranks (default: 1)")
    details.add_argument(
        "--quantize-linear-action",
        type=choice(LINEAR_ACTIONS),
        metavar="SCHEME",
        help=f"format of weights: {LINEAR_CHOICES}, or CHECKPOINT (default: as the checkpoint has them)",
    )
    details.add_argument(
        "--quantize-non-expert-linear-action",
        type=choice(LINEAR_SCHEMES),
        metavar="SCHEME",
        help="format of weights other than routed experts, where not as --quantize-linear-action",
    )
    details.add_argument(
        "--quantize-attention-action",
        type=choice(ATTENTION_DTYPES),
        metavar="SCHEME",
        help=f"format of the KV cache: {ATTENTION_CHOICES} (default: DISABLED, as --dtype)",
    )
    add_dtype_argument(details)
    details.add_argument(
        "--block-size",
        type=whole_number(1),
        metavar="N",
        help="tokens of a KV cache block; a sequence occupies whole blocks (default: 1)",
    )
    add_reading_arguments(details)
    pipelines.add_size_arguments(details)


def run(arguments: argparse.Namespace) -> int:
    """Print what was asked for; 0 when done.

    Raises:
        ModelingError: the model is not found, or its config cannot be used.
    """
    if arguments.models_command == "show":
        _show(arguments)
    else:
        _list(as_json=arguments.json)
    return 0


def _list(*, as_json: bool) -> None:
    from tensor_cast.models.catalog import catalog_ids

    rows = [_row(model_id) for model_id in catalog_ids()]
    if as_json:
        _print_json(
            [
                {
                    "id": r.id,
                    "family": r.family,
                    "parameters": {"total": r.parameters, "active": r.active},
                    "supported": r.parameters is not None,
                }
                for r in rows
            ]
        )
        return
    from tensor_cast.reporting.model_table import catalog_table

    show(catalog_table(rows))


def _row(model_id: str) -> CatalogRow:
    """One line; a model that cannot be read is shown with what it is, not hidden."""
    from tensor_cast.errors import ModelingError
    from tensor_cast.models.families import read_spec
    from tensor_cast.models.parameters import count_parameters
    from tensor_cast.models.source import load_config
    from tensor_cast.reporting.model_table import CatalogRow

    loaded = load_config(model_id)
    if loaded.pipeline is not None:
        return pipelines.catalog_row(loaded)
    try:
        spec = read_spec(loaded.config, name=model_id, where=model_id)
        counted = count_parameters(spec)
    except ModelingError:
        return CatalogRow(model_id, f"{loaded.config.get('model_type')}: not supported yet")
    return CatalogRow(model_id, spec.family, counted.total, counted.active)


def _show(arguments: argparse.Namespace) -> None:
    from tensor_cast.models import load_spec
    from tensor_cast.models.facts import model_facts
    from tensor_cast.models.source import load_config

    loaded = load_config(arguments.model, remote_source=arguments.remote_source)
    if loaded.pipeline is not None:
        _refuse_given(arguments, _TEXT_FLAGS, f"{loaded.name} is a diffusion pipeline", "language models")
        pipelines.show_pipeline(arguments, loaded)
        return
    _refuse_given(arguments, pipelines.SIZE_FLAGS, f"{loaded.name} is a language model", "diffusion pipelines")
    spec = load_spec(arguments.model, family=arguments.model_family, remote_source=arguments.remote_source)
    facts = model_facts(
        spec,
        tp=arguments.tp_size or 1,
        context_length=arguments.context_length,
        deployment=_formats(arguments, spec),
    )
    if arguments.show_json:
        _print_json(facts.to_dict())
        return
    from tensor_cast.reporting.model_table import model_report

    show(model_report(facts))


def _refuse_given(arguments: argparse.Namespace, names: tuple[str, ...], what: str, others: str) -> None:
    """Refuse flags that would change nothing."""
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) is not None]
    if given:
        raise UsageError(f"{what}: {', '.join(given)} {'belongs' if len(given) == 1 else 'belong'} to {others} alone.")


def _formats(arguments: argparse.Namespace, spec: ModelSpec) -> Deployment:
    from tensor_cast.deployment import CHECKPOINT, Deployment

    return Deployment(
        quantize_linear=arguments.quantize_linear_action or (CHECKPOINT if spec.checkpoint else "DISABLED"),
        quantize_non_expert_linear=arguments.quantize_non_expert_linear_action,
        quantize_attention=arguments.quantize_attention_action or "DISABLED",
        dtype=arguments.dtype,
        block_size=arguments.block_size or 1,
    )


def _print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
