"""``msmodeling video-generate``: time and memory of generating a video, stage by stage and kernel by kernel."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from cli.inference import diffusion, diffusion_arguments

if TYPE_CHECKING:
    from tensor_cast.command_line import CommandParser

    Subparsers = argparse._SubParsersAction[CommandParser]

_DESCRIPTION = """\
Estimate a whole generation: text encoder, every denoising step, VAE; what bounds each kernel, and whether it fits.
The model, --device, --height, --width, --frame-num and --quantize-linear-action have no default."""

_EXAMPLES = """\
examples:
  Wan 2.2 with guidance on eight devices, 8-bit weights:
    msmodeling video-generate Wan-AI/Wan2.2-T2V-A14B-Diffusers --device ATLAS_800_A2_376T_64G \\
        --resolution 480x832 --frame-num 81 --quantize-linear-action W8A8_DYNAMIC \\
        --world-size 8 --ulysses-size 4 --use-cfg --cfg-parallel
  HunyuanVideo on one device, half of the steps of half of its blocks reused:
    msmodeling video-generate hunyuanvideo-community/HunyuanVideo --device H100_SXM_80G \\
        --height 720 --width 1280 --frame-num 129 --seq-len 256 --sample-step 50 \\
        --quantize-linear-action DISABLED --dit-cache --cache-step-range 5,45 --cache-block-range 10,50
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add ``video-generate`` to the command line."""
    parser = subparsers.add_parser(
        "video-generate",
        help="time and memory of generating a video",
        usage="msmodeling video-generate MODEL --device NAME --height PIXELS --width PIXELS --frame-num N\n"
        "           --quantize-linear-action SCHEME [options]",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    diffusion_arguments.add_arguments(parser, video=True)


def run(arguments: argparse.Namespace) -> int:
    """Estimate what the flags describe and print it.

    Raises:
        ModelingError: something is missing or wrong, or a result file cannot be written.
    """
    return diffusion.run(arguments, video=True)


if __name__ == "__main__":
    from cli.main import main

    sys.exit(main(["video-generate", *sys.argv[1:]]))
