"""Attention's output projection over more ranks than attention itself (``--o-proj-tp-size``)."""

from __future__ import annotations

from tensor_cast.layers.build import Build, shard
from tensor_cast.layers.linear import linear
from tensor_cast.ops import Tensor
from tensor_cast.parallelism import RankGroup
from tensor_cast.quantity import ceil_div
from tensor_cast.quantization import LinearScheme


def wide_output_projection(build: Build, x: Tensor, *, width: int, hidden: int, scheme: LinearScheme) -> Tensor:
    """(tokens, width) -> residual rows of hidden, the weight being split over ``o_proj_tp`` = d x tp ranks.

    The d data-parallel ranks trade rows for columns (all-to-all), multiply all their tokens with their share of the
    weight, and reduce-scatter the partial sums back to their own tokens; the TP group then gathers what each rank of it
    holds.
    """
    ranks = build.parallel.o_proj_tp
    spread = ranks // build.tp
    share = shard(width, spread, "columns of a rank's attention output", "--o-proj-tp-size / --tp-size =")
    rows = x.shape[0]
    part = "attention.output"
    exchanged = build.communicate("all_to_all", part, x, RankGroup(spread, build.tp), (rows * spread, share))
    partial = linear(build, exchanged, k=share, n=hidden, part=part, scheme=scheme)
    own = build.communicate("reduce_scatter", part, partial, RankGroup(ranks), (ceil_div(rows, build.tp), hidden))
    if build.sequence_parallel:
        return own
    return build.communicate("all_gather", part, own, build.tp_group, (rows, hidden))
