"""Flags that ``video-generate`` and ``image-generate`` share."""

from __future__ import annotations

from cli.arguments.device import add_device_arguments
from cli.arguments.model import add_remote_source_argument
from cli.arguments.output import add_output_arguments
from cli.arguments.performance_model import add_performance_model_arguments
from cli.arguments.quantization import LINEAR_CHOICES, activation_dtype, add_format_arguments
from tensor_cast.command_line import CommandParser, choice, number, whole_number
from tensor_cast.quantization import LINEAR_SCHEMES
from tensor_cast.video_deployment import ATTENTION_BACKENDS

STAGES = ("denoise", "text", "vae")


def add_arguments(parser: CommandParser, *, video: bool) -> None:
    """All flags, in groups."""
    _add_model_arguments(parser)
    add_device_arguments(parser)
    _add_workload_arguments(parser, video=video)
    _add_quantization_arguments(parser)
    _add_parallel_arguments(parser)
    _add_attention_arguments(parser)
    _add_cache_arguments(parser)
    parser.add_argument_group("kernels").add_argument(
        "--compile",
        action="store_true",
        help="fuse kernels as a serving engine's graph mode does (default: one for each operation)",
    )
    add_performance_model_arguments(parser)
    add_output_arguments(parser)


def _add_model_arguments(parser: CommandParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="id or short name in the catalog (`msmodeling models`), diffusers directory, or id on a hub",
    )
    group.add_argument("--model-id", metavar="MODEL", help="the same as MODEL")
    add_remote_source_argument(group)
    group.add_argument(
        "--offload-inactive-expert",
        action="store_true",
        help="of two denoisers keep only the running one on the device (default: both stay)",
    )
    group.add_argument(
        "--no-vae-tiling",
        action="store_true",
        help="run the VAE on the whole video at once where it usually works in tiles (HunyuanVideo, CogVideoX)",
    )


def _add_workload_arguments(parser: CommandParser, *, video: bool) -> None:
    group = parser.add_argument_group("workload")
    size = whole_number(1)
    group.add_argument("--height", type=size, metavar="PIXELS", help="height of the output")
    group.add_argument("--width", type=size, metavar="PIXELS", help="width of the output")
    group.add_argument(
        "--resolution", metavar="HEIGHTxWIDTH", help="both at once, such as 480x832, instead of --height and --width"
    )
    if video:
        group.add_argument("--frame-num", type=size, metavar="N", help="frames of the output")
    else:
        group.add_argument(
            "--reference-images",
            type=size,
            metavar="N",
            help="images that an editing model is given (default: 1 where it takes any)",
        )
    group.add_argument("--batch-size", type=size, default=1, metavar="N", help="samples at once (default: 1)")
    group.add_argument("--seq-len", type=size, default=64, metavar="N", help="text tokens a prompt (default: 64)")
    group.add_argument("--sample-step", type=size, default=28, metavar="N", help="denoising steps (default: 28)")
    group.add_argument(
        "--use-cfg", action="store_true", help="classifier-free guidance: a second forward a step (default: one)"
    )
    group.add_argument(
        "--flow-shift",
        type=number(1e-6),
        metavar="SHIFT",
        help="shift of the noise schedule, which shares out steps between two denoisers (default: the pipeline's)",
    )
    group.add_argument(
        "--stages",
        nargs="+",
        type=choice(STAGES),
        default=list(STAGES),
        metavar="STAGE",
        help=f"what is priced, of {', '.join(STAGES)}; denoise always is (default: all)",
    )


def _add_quantization_arguments(parser: CommandParser) -> None:
    group = parser.add_argument_group("quantisation")
    group.add_argument(
        "--quantize-linear-action",
        type=choice(LINEAR_SCHEMES),
        metavar="SCHEME",
        help=f"linear layers of transformer blocks: {LINEAR_CHOICES}",
    )
    add_format_arguments(group, attention="both products of attention", dtype="bfloat16")
    group.add_argument(
        "--vae-dtype", type=activation_dtype(), metavar="DTYPE", help="format of the VAE (default: --dtype)"
    )


def _add_parallel_arguments(parser: CommandParser) -> None:
    group = parser.add_argument_group("parallelism", "Ulysses size x 2 with --cfg-parallel makes the world size.")
    size = whole_number(1)
    group.add_argument(
        "--world-size", "--num-devices", type=size, default=1, metavar="N", help="devices in all (default: 1)"
    )
    group.add_argument(
        "--ulysses-size",
        type=size,
        metavar="N",
        help="ranks that share out tokens, and heads inside attention: an all-to-all before and after it",
    )
    group.add_argument(
        "--cfg-parallel",
        action="store_true",
        help="the two forwards of --use-cfg on two groups of ranks, which meet once a step",
    )


def _add_attention_arguments(parser: CommandParser) -> None:
    group = parser.add_argument_group("attention")
    group.add_argument(
        "--attention-backend",
        type=choice(ATTENTION_BACKENDS),
        default=ATTENTION_BACKENDS[0],
        metavar="NAME",
        help=f"{', '.join(ATTENTION_BACKENDS)} (default: {ATTENTION_BACKENDS[0]})",
    )
    group.add_argument("--attention-block-size", type=whole_number(1), metavar="N", help="keys a block (default: 128)")
    group.add_argument(
        "--attention-sparsity",
        type=number(0.0, 1.0),
        metavar="SHARE",
        help="share of blocks that block_sparse_attention skips, from 0 to below 1 (default: 0)",
    )


def _add_cache_arguments(parser: CommandParser) -> None:
    group = parser.add_argument_group("step cache")
    group.add_argument(
        "--dit-cache", action="store_true", help="reuse what transformer blocks added in an earlier step"
    )
    group.add_argument(
        "--cache-step-range",
        metavar="FIRST,END",
        help="steps that may reuse, the first included and the last not (default: all)",
    )
    group.add_argument(
        "--cache-step-interval",
        type=whole_number(2),
        metavar="N",
        help="of these steps every N-th computes all blocks (default: 2)",
    )
    group.add_argument(
        "--cache-block-range",
        metavar="FIRST,END",
        help="blocks that are reused, the first included and the last not (default: all)",
    )
