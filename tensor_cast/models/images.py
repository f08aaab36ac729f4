"""The images of a prefill: their tokens, and the encoder's kernels on one rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensor_cast.errors import ModelingError
from tensor_cast.graph import Block, Graph
from tensor_cast.layers.build import Build
from tensor_cast.layers.vision import ImageGrid
from tensor_cast.models.spec import ModelSpec
from tensor_cast.ops import Tensor
from tensor_cast.parallelism import RankGroup
from tensor_cast.quantity import Quantity, ceil_div
from tensor_cast.workload import TextWorkload

# Smallest image: what a decode builds to know the encoder's weights.
SMALLEST = ImageGrid(2, 2, 1)


def image_grid(spec: ModelSpec, workload: TextWorkload) -> ImageGrid:
    """Patches and tokens of one of the workload's images.

    Raises:
        ModelingError: the model takes no images, or its rule for them is not known.
    """
    if spec.vision is None:
        raise ModelingError(f"image_batch_size is given, but {spec.name} has no vision encoder that is modelled.")
    if spec.image_rule is None:
        raise ModelingError(f"How {spec.name} cuts an image into patches is not known: leave image_batch_size out.")
    assert workload.image_height is not None
    assert workload.image_width is not None
    return spec.image_rule.grid(workload.image_height, workload.image_width)


def with_image_tokens(spec: ModelSpec, workload: TextWorkload) -> TextWorkload:
    """The workload with its images' tokens in each query; unchanged when it has none or they are there already."""
    if not workload.image_batch_size or workload.image_tokens is not None:
        return workload
    tokens = image_grid(spec, workload).tokens * workload.image_batch_size
    return replace(workload, query_length=workload.query_length + tokens, image_tokens=tokens)


def encode_images(spec: ModelSpec, workload: TextWorkload, build: Build) -> tuple[Block, ...]:
    """Emit the encoder's kernels for this step's images; without images, return its blocks, which stay in memory.

    ``vision_tp_size`` ranks share each image, or tile of one; the TP group's other ranks take others, and an all-gather
    brings their tokens together, with what deepstack adds to them.

    Raises:
        ModelingError: ``vision_tp_size`` does not divide ``tp_size`` or the encoder.
    """
    if spec.vision is None:
        return ()
    shared = build.deployment.vision_tp_size or 1
    if build.tp % shared:
        raise ModelingError(f"--vision-tp-size {shared} does not divide --tp-size {build.tp}, whose ranks it groups.")
    splits = build.tp // shared
    runs = bool(workload.image_batch_size) and not build.decode
    grid = image_grid(spec, workload) if runs else SMALLEST
    tiles: Quantity = build.queries * float(workload.image_batch_size * grid.tiles)
    encoder = Build(
        graph=build.graph if runs else Graph(),
        deployment=replace(build.deployment, enable_sequence_parallel=False, enable_matmul_allreduce=False),
        parallel=replace(build.parallel, tp=shared, mlp_tp=shared, o_proj_tp=shared, dcp=1),
        dtype=build.dtype,
        queries=ceil_div(tiles, splits) if runs else 1.0,
        query_length=float(spec.vision.positions(grid)),
        cached_length=0.0,
        decode=False,
    )
    out = spec.vision.forward(encoder, grid)
    if not runs:
        return tuple(encoder.graph.blocks)
    if splits > 1:
        with build.graph.block("vision.gather", place="first"):
            shapes = tuple((tensor.shape[0] * splits, tensor.shape[1]) for tensor in out)
            encoder.communicate_together("all_gather", "vision.gather", out, RankGroup(splits, shared), shapes)
    return ()


def add_deepstack(spec: ModelSpec, workload: TextWorkload, build: Build, x: Tensor) -> None:
    """Add what deeper encoder layers say to image tokens of the first decoder layers' outputs ``x``, one layer each.

    Source: ``Qwen3VLTextModel._deepstack_process``, which touches the image tokens alone.
    """
    if spec.vision is None or not spec.vision.deepstack or not workload.image_batch_size or build.decode:
        return
    # A cached prefix may hold some of them.
    tokens = build.queries * np.minimum(workload.image_tokens or 0, build.query_length)
    rows = ceil_div(tokens, build.tp) if build.sequence_parallel else tokens
    count = min(len(spec.vision.deepstack), len(spec.layers))
    with build.graph.block("deepstack", count=count, place="first"):
        hidden, feature, out = (Tensor((rows, spec.hidden), x.dtype) for _ in range(3))
        build.elementwise("add", "deepstack", (hidden, feature), (out,), flops_per_element=1.0)
