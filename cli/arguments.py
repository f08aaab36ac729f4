"""Flags that several commands share, and what the core makes of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from tensor_cast.command_line import CommandParser, UsageError, choice, given_path, number, whole_number
from tensor_cast.deployment import CHECKPOINT, ENGINES, EXECUTIONS, Deployment
from tensor_cast.devices.profile import DeviceProfile
from tensor_cast.dtypes import ACTIVATION_DTYPES, ALIASES
from tensor_cast.errors import did_you_mean
from tensor_cast.pricing import PERFORMANCE_MODELS
from tensor_cast.quantization import ATTENTION_DTYPES, LINEAR_SCHEMES

GB = 1e9
LINEAR_ACTIONS = (*LINEAR_SCHEMES, CHECKPOINT)
LINEAR_CHOICES = ", ".join(LINEAR_SCHEMES)
ATTENTION_CHOICES = ", ".join(ATTENTION_DTYPES)
COMPILATION_OPTIONS = (
    "enable_multistream",
    "enable_matmul_allreduce",
    "enable_sequence_parallel",
    "enable_dispatch_ffn_combine",
)
STRATEGY = ("tp_size", "dp_size", "pp_size", "ep_size", "moe_tp_size", "moe_dp_size")
"""Sizes of which at least one says how several devices are used."""

_PARALLEL_HELP = {
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


def add_device_arguments(parser: CommandParser) -> None:
    """The device, how many, and what of its memory is taken."""
    group = parser.add_argument_group("device")
    group.add_argument("--device", metavar="NAME", help="device by name or alias; `msmodeling devices` lists them")
    group.add_argument(
        "--device-file",
        dest="device_files",
        type=given_path,
        action="append",
        default=[],
        metavar="FILE",
        help="YAML file with devices of your own; may be given several times",
    )
    group.add_argument(
        "--reserved-memory-gb",
        type=number(0.0, 1e9),
        default=0.0,
        metavar="GB",
        help="memory of each device that something else keeps, in GB of 1e9 bytes (default: 0)",
    )


def device_profile(arguments: argparse.Namespace) -> DeviceProfile:
    """The profile that ``--device`` names."""
    from tensor_cast.devices.registry import get_device

    return get_device(arguments.device, arguments.device_files)


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


def add_parallel_arguments(parser: CommandParser) -> None:
    """How the work is spread over devices."""
    group = parser.add_argument_group(
        "parallelism", "Sizes must multiply to the world size; one that is left out follows from the others."
    )
    size = whole_number(1)
    group.add_argument(
        "--world-size", "--num-devices", type=size, default=1, metavar="N", help="devices in all (default: 1)"
    )
    for name, text in _PARALLEL_HELP.items():
        group.add_argument(f"--{name.replace('_', '-')}", type=size, metavar="N", help=text)
    group.add_argument(
        "--enable-sequence-parallel",
        action="store_true",
        help="norms and residuals on a share of the tokens: reduce-scatter and all-gather, not all-reduce",
    )
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
    group.add_argument(
        "--vision-tp-size",
        type=size,
        metavar="N",
        help="tensor parallelism of the vision encoder (default: 1, ranks share out whole images)",
    )


def add_compilation_arguments(parser: CommandParser) -> None:
    """Fused kernels."""
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
        help=f"serving engine whose own time is added to the step: {', '.join(ENGINES)} (default: none)",
    )
    group.add_argument(
        "--execution",
        type=choice(EXECUTIONS),
        metavar="HOW",
        default="graph",
        help="launch kernels as a captured graph, or eager: one by one, so that the device may wait for the host "
        "(default: graph)",
    )


def add_performance_model_arguments(parser: CommandParser) -> None:
    """Where kernel times come from."""
    group = parser.add_argument_group("performance model")
    group.add_argument(
        "--performance-model",
        type=choice(PERFORMANCE_MODELS),
        default="analytic",
        metavar="{analytic,profiling}",
        help="where kernel times come from: the analytic model, or measured times where a database has them "
        "(default: analytic)",
    )
    group.add_argument(
        "--profiling-database-path",
        type=given_path,
        metavar="DIR",
        help="directory of measured times for --performance-model profiling (default: the packaged one of the device)",
    )
    group.add_argument(
        "--disable-profiling-interpolation",
        action="store_true",
        help="take measured times for exactly the measured sizes only",
    )


def add_output_arguments(parser: CommandParser) -> None:
    """What is written where."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "--all-kernels", action="store_true", help="a row for each kernel (default: those below 0.1%% are one row)"
    )
    group.add_argument("--dump-input-shapes", action="store_true", help="a row for each shape, with shapes and dtypes")
    group.add_argument(
        "--dump-op-bound-results", action="store_true", help="what each row would take by each bound alone"
    )
    group.add_argument(
        "--json", type=given_path, metavar="FILE", help="write all figures as JSON; - for stdout, instead"
    )
    group.add_argument("--chrome-trace-file", type=given_path, metavar="FILE", help="write a trace for Perfetto")
    group.add_argument(
        "--log-level",
        type=choice(("DEBUG", "INFO", "WARNING", "ERROR")),
        default="WARNING",
        metavar="LEVEL",
        help="what is told on stderr: DEBUG, INFO, WARNING, ERROR (default: WARNING)",
    )


def check_performance_model(arguments: argparse.Namespace) -> None:
    """Refuse flags of measured times without asking for any, and a database that is not there.

    Raises:
        UsageError: one is given with the analytic model, or the path is no directory.
    """
    given = {
        "--profiling-database-path": arguments.profiling_database_path is not None,
        "--disable-profiling-interpolation": arguments.disable_profiling_interpolation,
    }
    useless = [flag for flag, is_given in given.items() if is_given]
    if useless and arguments.performance_model != "profiling":
        raise UsageError(f"{useless[0]} is about measured times: add --performance-model profiling, or leave it out.")
    path = arguments.profiling_database_path
    if path is not None and not path.is_dir():
        raise UsageError(f"--profiling-database-path {path} is no directory.")


def check_outputs(arguments: argparse.Namespace) -> None:
    """Refuse result files that could not be written, before anything is computed.

    Raises:
        ModelingError: there is no such directory, it may not be written, or one file would be written over the other.
    """
    from tensor_cast.reporting.output_file import check_writable

    trace = arguments.chrome_trace_file
    if str(trace) == "-":
        raise UsageError("--chrome-trace-file - is no file: only --json may be - for stdout; give a file.")
    if None not in (arguments.json, trace) and arguments.json.resolve() == trace.resolve():
        raise UsageError(f"--json and --chrome-trace-file are both {trace}: give two files.")
    for flag, path in (("--json", arguments.json), ("--chrome-trace-file", arguments.chrome_trace_file)):
        if path is not None and (flag, str(path)) != ("--json", "-"):
            check_writable(path, flag)


def deployment(arguments: argparse.Namespace) -> Deployment:
    """The deployment that the flags describe; what they leave out keeps the core's default.

    Raises:
        UsageError: an unknown compilation option.
        ModelingError: sizes or fusions that exclude each other.
    """
    options = _compilation_options(arguments.compilation_config)
    sizes: dict[str, Any] = {name: getattr(arguments, name) for name in ("world_size", *_PARALLEL_HELP)}
    return Deployment(
        **sizes,
        quantize_linear=arguments.quantize_linear_action,
        quantize_non_expert_linear=arguments.quantize_non_expert_linear_action,
        quantize_lmhead=arguments.quantize_lmhead,
        quantize_attention=arguments.quantize_attention_action,
        mxfp4_group_size=arguments.mxfp4_group_size,
        dtype=arguments.dtype,
        compile=arguments.compile,
        enable_sequence_parallel=arguments.enable_sequence_parallel or "enable_sequence_parallel" in options,
        enable_shared_expert_tp=arguments.enable_shared_expert_tp,
        enable_redundant_experts=arguments.enable_redundant_experts,
        expert_skew=arguments.expert_skew,
        shared_expert_ranks=arguments.shared_expert_ranks,
        vision_tp_size=arguments.vision_tp_size,
        enable_multistream="enable_multistream" in options,
        enable_matmul_allreduce="enable_matmul_allreduce" in options,
        enable_dispatch_ffn_combine="enable_dispatch_ffn_combine" in options,
        block_size=arguments.block_size,
        engine=arguments.engine,
        execution=arguments.execution,
    )


def _compilation_options(given: list[str]) -> set[str]:
    names = [name for text in given for name in text.replace(",", " ").split()]
    options = {name.casefold().replace("-", "_"): name for name in names}
    unknown = [name for folded, name in options.items() if folded not in COMPILATION_OPTIONS]
    if unknown:
        raise UsageError(
            f"--compilation-config does not know {', '.join(unknown)}: it takes {', '.join(COMPILATION_OPTIONS)}."
            f"{did_you_mean(unknown[0], COMPILATION_OPTIONS)}"
        )
    return set(options)
