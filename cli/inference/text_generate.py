"""``msmodeling text-generate``: time and memory of a language model's prefill or decode, kernel by kernel."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cli.arguments.deployment import deployment_of
from cli.arguments.device import GB, add_device_arguments, device_profile
from cli.arguments.kernels import add_compilation_arguments
from cli.arguments.model import add_model_arguments, model_name
from cli.arguments.output import add_output_arguments, check_outputs
from cli.arguments.parallelism import STRATEGY, add_parallel_arguments
from cli.arguments.performance_model import add_performance_model_arguments, check_performance_model
from cli.arguments.quantization import LINEAR_ACTIONS, add_quantization_arguments
from tensor_cast.command_line import CommandParser, UsageError, number, whole_number, with_flags

if TYPE_CHECKING:
    from tensor_cast.advice import Remedy
    from tensor_cast.devices.profile import DeviceProfile
    from tensor_cast.estimate import Estimate
    from tensor_cast.models import ModelSpec
    from tensor_cast.workload import TextWorkload

    Subparsers = argparse._SubParsersAction[CommandParser]

_DESCRIPTION = """\
Estimate one step of a language model: its time kernel by kernel, what bounds each, and whether it fits.
The model, --device, --num-queries, --query-length and --quantize-linear-action have no default."""

_EXAMPLES = """\
examples:
  a prefill of two prompts of 3,500 tokens on one device:
    msmodeling text-generate Qwen/Qwen3-32B --device ATLAS_800_A2_376T_64G \\
        --num-queries 2 --query-length 3500 --quantize-linear-action DISABLED
  a decode step of 64 sequences on four, with fused kernels and 8-bit weights:
    msmodeling text-generate Qwen/Qwen3-32B --device ATLAS_800_A3_752T_128G_DIE --world-size 4 --tp-size 4 \\
        --decode --num-queries 64 --query-length 1 --context-length 4096 \\
        --quantize-linear-action W8A8_DYNAMIC --compile
"""

_EXAMPLE_MODELS = ("Qwen/Qwen3-32B", "deepseek-ai/DeepSeek-V3", "meta-llama/Llama-3.1-8B", "openai/gpt-oss-120b")

_log = logging.getLogger("msmodeling")


def add_parser(subparsers: Subparsers) -> None:
    """Add ``text-generate`` to the command line."""
    parser = subparsers.add_parser(
        "text-generate",
        help="time and memory of a language model's prefill or decode",
        usage="msmodeling text-generate MODEL --device NAME --num-queries N --query-length N\n"
        "           --quantize-linear-action SCHEME [options]",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    add_model_arguments(parser)
    add_device_arguments(parser)
    _add_workload_arguments(parser)
    add_quantization_arguments(parser)
    add_parallel_arguments(parser)
    add_compilation_arguments(parser)
    add_performance_model_arguments(parser)
    parser.add_argument_group("structure").add_argument(
        "--num-hidden-layers-override",
        type=whole_number(1),
        metavar="N",
        help="keep only the first N decoder layers",
    )
    add_output_arguments(parser)


def _add_workload_arguments(parser: CommandParser) -> None:
    group = parser.add_argument_group("workload")
    group.add_argument(
        "--num-queries", type=whole_number(1), metavar="N", help="sequences in flight over the whole deployment"
    )
    group.add_argument(
        "--query-length",
        type=whole_number(1),
        metavar="N",
        help="new tokens a sequence in this step: a prefill's prompt, a decode's 1, or the tokens that a "
        "speculative decode verifies (drafted tokens + 1)",
    )
    group.add_argument(
        "--context-length",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="tokens of each sequence that are already in the KV cache (default: 0)",
    )
    group.add_argument("--decode", action="store_true", help="a decode step (default: a prefill)")
    group.add_argument(
        "--prefix-cache-hit-rate",
        type=number(0.0, 1.0),
        default=0.0,
        metavar="RATE",
        help="share of a prefill's prompt that the prefix cache holds, from 0 to below 1 (default: 0)",
    )
    group.add_argument(
        "--num-mtp-tokens",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="tokens that the model's multi-token-prediction layers draft in a decode step (default: 0)",
    )
    group.add_argument(
        "--draft-model", metavar="MODEL", help="a smaller model that drafts tokens for a decode step; as MODEL"
    )
    group.add_argument(
        "--num-draft-tokens",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="tokens that the draft model drafts in a decode step (default: 0)",
    )
    group.add_argument(
        "--mtp-acceptance-rate",
        type=number(0.0, 1.0, inclusive=True),
        nargs="+",
        default=(),
        metavar="RATE",
        help="probability that a drafted token is accepted if all before it were: one rate, or one a drafted token",
    )
    group.add_argument(
        "--acceptance-length",
        type=number(1.0),
        metavar="TOKENS",
        help="measured tokens that a speculative step yields a sequence, the model's own included, instead of a rate",
    )
    group.add_argument(
        "--image-batch-size",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="images of each query, whose tokens a prefill computes on top of --query-length (default: 0)",
    )
    group.add_argument("--image-height", type=whole_number(1), metavar="PIXELS", help="height of an image as given")
    group.add_argument("--image-width", type=whole_number(1), metavar="PIXELS", help="width of an image as given")
    group.add_argument(
        "--block-size",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="tokens of a KV cache block; sequences occupy whole blocks (default: 1)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Estimate what the flags describe and print it.

    Raises:
        ModelingError: something is missing or wrong, or a result file cannot be written.
    """
    from tensor_cast.simulator import simulate

    logging.basicConfig(level=arguments.log_level, format="%(levelname)s %(message)s", stream=sys.stderr, force=True)
    _require(arguments)
    check_performance_model(arguments)
    check_outputs(arguments)
    started = time.perf_counter()
    device = device_profile(arguments)
    _log.info("device %s, family %s: %s", device.name, device.family, device.description)
    spec = _spec(arguments)
    _log.info("model %s, family %s, from %s", spec.name, spec.family, spec.origin)
    loaded = time.perf_counter()
    _log.debug("model and device loaded in %.1f ms", (loaded - started) * 1e3)
    workload = _workload(arguments)
    deployment = deployment_of(arguments)
    _require_strategy(arguments, spec, device)
    reserved_bytes = arguments.reserved_memory_gb * GB
    estimate = simulate(
        spec,
        device=device,
        workload=workload,
        deployment=deployment,
        reserved_bytes=reserved_bytes,
        performance_model=arguments.performance_model,
        database=arguments.profiling_database_path,
        interpolate=not arguments.disable_profiling_interpolation,
    )
    flags = {name: f"--{name.replace('_', '-')}" for name in vars(arguments)}
    estimate = replace(estimate, warnings=tuple(with_flags(warning, flags) for warning in estimate.warnings))
    room = _room(estimate, spec, reserved_bytes)
    _log.debug("%d kernels estimated in %.1f ms", len(estimate.kernels), (time.perf_counter() - loaded) * 1e3)
    _write(arguments, estimate, room)
    return 0


def _require(arguments: argparse.Namespace) -> None:
    """Name all that is missing at once, with what could be given."""
    missing: list[tuple[str, str]] = []
    name = model_name(arguments)
    if name is None:
        from tensor_cast.models.catalog import catalog_ids

        known = len(catalog_ids())
        text = f"a directory, a config.json, a hub's id, or one of the {known} that `msmodeling models` lists, such as"
        missing.append(("MODEL", f"{text} {', '.join(_EXAMPLE_MODELS)}"))
    if arguments.device is None:
        from tensor_cast.devices.registry import DeviceRegistry

        missing.append(("--device", f"one of {', '.join(DeviceRegistry(arguments.device_files))}"))
    if arguments.num_queries is None:
        missing.append(("--num-queries", "sequences in flight, a whole number of at least 1"))
    if arguments.query_length is None:
        missing.append(("--query-length", "new tokens a sequence: a prefill's prompt, or a decode's 1"))
    if arguments.quantize_linear_action is None:
        missing.append(("--quantize-linear-action", f"one of {', '.join(LINEAR_ACTIONS)}"))
    if missing:
        names = ", ".join(name for name, _ in missing)
        width = max(len(name) for name, _ in missing)
        lines = [f"  {name.ljust(width)}  {text}" for name, text in missing]
        closest = _closest_models(name)
        raise UsageError("\n".join([f"Missing and without a default: {names}.", *lines, *closest]))


def _closest_models(name: str | None) -> list[str]:
    """A line for a model that would not be found offline either."""
    from tensor_cast.models import catalog

    if name is None or Path(name).exists() or catalog.find(name) is not None:
        return []
    closest = catalog.closest_ids(name)
    return [f"The model {name} is not in the catalog; the closest there: {', '.join(closest)}."] if closest else []


def _spec(arguments: argparse.Namespace) -> ModelSpec:
    from tensor_cast.models import load_spec

    name = model_name(arguments)
    assert name is not None
    spec = load_spec(name, family=arguments.model_family, remote_source=arguments.remote_source)
    if arguments.num_hidden_layers_override is not None:
        spec = spec.with_layers(arguments.num_hidden_layers_override)
    if arguments.draft_model is None:
        return spec
    if not arguments.num_draft_tokens:
        raise UsageError(f"--draft-model {arguments.draft_model} needs --num-draft-tokens: how many it drafts a step.")
    return replace(spec, draft=load_spec(arguments.draft_model, remote_source=arguments.remote_source))


def _workload(arguments: argparse.Namespace) -> TextWorkload:
    from tensor_cast.workload import TextWorkload

    return TextWorkload(
        num_queries=arguments.num_queries,
        query_length=arguments.query_length,
        context_length=arguments.context_length,
        decode=arguments.decode,
        prefix_cache_hit_rate=arguments.prefix_cache_hit_rate,
        num_mtp_tokens=arguments.num_mtp_tokens,
        mtp_acceptance_rate=tuple(arguments.mtp_acceptance_rate),
        num_draft_tokens=arguments.num_draft_tokens,
        acceptance_length=arguments.acceptance_length,
        image_batch_size=arguments.image_batch_size,
        image_height=arguments.image_height,
        image_width=arguments.image_width,
    )


def _require_strategy(arguments: argparse.Namespace, spec: ModelSpec, device: DeviceProfile) -> None:
    """Several devices are never shared out by a guess: recommend a strategy to paste."""
    world = arguments.world_size
    given = any(getattr(arguments, name) is not None for name in STRATEGY)
    if world == 1 or given or world > device.interconnect.device_count:
        return
    from tensor_cast.advice import as_flags, recommend_strategy

    sizes = recommend_strategy(spec, device, world)
    raise UsageError(
        f"--world-size {world} needs a parallel strategy. For {spec.name} on {device.name} this one suits: "
        f"{as_flags(dict(sizes))}"
    )


class _Room(NamedTuple):
    """What would make a request fit, and the most queries of its length that fit at once."""

    remedies: tuple[Remedy, ...]
    most_queries: int


def _room(estimate: Estimate, spec: ModelSpec, reserved_bytes: float) -> _Room:
    from tensor_cast.advice import most_queries, what_would_fit

    workload, deployment, device = estimate.workload, estimate.deployment, estimate.device
    request: Any = {"device": device, "workload": workload, "deployment": deployment, "reserved_bytes": reserved_bytes}
    if estimate.fits:
        return _Room((), most_queries(spec, **request))
    remedies = what_would_fit(spec, **request)
    # Fewer queries are the first remedy where any number of them fits.
    return _Room(remedies, int(remedies[0].changes.get("num_queries", 0)) if remedies else 0)


def _write(arguments: argparse.Namespace, estimate: Estimate, room: _Room) -> None:
    """Files first: when one cannot be written, nothing has been printed that looks like success."""
    from tensor_cast.reporting.output_file import write_whole

    if arguments.chrome_trace_file is not None:
        from tensor_cast.reporting.trace import chrome_trace

        write_whole(
            arguments.chrome_trace_file,
            chrome_trace(estimate, title=f"{estimate.model.name} on {estimate.device.name}"),
        )
        _log.info("trace written to %s", arguments.chrome_trace_file)
    if arguments.json is not None:
        text = json.dumps(_document(estimate, room), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        if str(arguments.json) == "-":
            sys.stdout.write(text)
            return
        write_whole(arguments.json, text)
        _log.info("figures written to %s", arguments.json)
    from cli.console import show
    from tensor_cast.reporting.table import report

    show(
        report(
            estimate,
            remedies=room.remedies,
            most_queries=room.most_queries,
            input_shapes=arguments.dump_input_shapes,
            op_bounds=arguments.dump_op_bound_results,
            all_kernels=arguments.all_kernels,
            database=arguments.profiling_database_path,
        )
    )


def _document(estimate: Estimate, room: _Room) -> dict[str, Any]:
    would_fit = [{"changes": remedy.changes, "used_bytes": remedy.used_bytes} for remedy in room.remedies]
    return {**estimate.to_dict(), "would_fit": would_fit, "most_queries": room.most_queries}


if __name__ == "__main__":
    from cli.main import main

    sys.exit(main(["text-generate", *sys.argv[1:]]))
