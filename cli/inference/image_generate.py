"""``msmodeling image-generate``: time and memory of generating an image, stage by stage and kernel by kernel."""

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
The model, --device, --height, --width and --quantize-linear-action have no default."""

_EXAMPLES = """\
examples:
  FLUX.1-dev on one device, fused kernels:
    msmodeling image-generate black-forest-labs/FLUX.1-dev --device H100_SXM_80G --resolution 1024x1024 \\
        --seq-len 512 --quantize-linear-action DISABLED --compile
  Qwen-Image-Edit with one given image and guidance on two devices:
    msmodeling image-generate Qwen/Qwen-Image-Edit --device ATLAS_800_A2_376T_64G --height 1024 --width 1024 \\
        --sample-step 50 --use-cfg --world-size 2 --cfg-parallel --quantize-linear-action DISABLED
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add ``image-generate`` to the command line."""
    parser = subparsers.add_parser(
        "image-generate",
        help="time and memory of generating an image",
        usage="msmodeling image-generate MODEL --device NAME --height PIXELS --width PIXELS\n"
        "           --quantize-linear-action SCHEME [options]",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    diffusion_arguments.add_arguments(parser, video=False)


def run(arguments: argparse.Namespace) -> int:
    """Estimate what the flags describe and print it.

    Raises:
        ModelingError: something is missing or wrong, or a result file cannot be written.
    """
    return diffusion.run(arguments, video=False)


if __name__ == "__main__":
    from cli.main import main

    sys.exit(main(["image-generate", *sys.argv[1:]]))
