"""DispatchFFNCombine: tokens sent to their experts' ranks, the experts' W8A8 network, results sent back and summed."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from typing import Any

import numpy as np
import torch

from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.expert_parallel import (
    Experts,
    dispatched,
    group_name,
    rank_and_size,
    returned,
    routes,
)
from tools.perf_data_collection.op_replay.host import float64 as double
from tools.perf_data_collection.op_replay.host.float64 import Array, float64, whole
from tools.perf_data_collection.op_replay.host.grouped import expert_product_swiglu_quant, grouped_product
from tools.perf_data_collection.op_replay.host.pieces import dynamic_quant
from tools.perf_data_collection.op_replay.kernel import C_ASCEND, CUSTOM_OPP, Kernel
from tools.perf_data_collection.op_replay.npu import argument_names, custom_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main


def operands(row: ReplayRow, make: OperandMaker) -> tuple[Experts]:
    """x (M, H), weights (e, H, N) and (e, N/2, H), global expert ids (M, k), scales (e·N) and (e·H), weights (M, k)."""
    x, ids = row.input(0, "x", 2), row.input(3, "expert_idx", 2)
    first, second = row.input(1, "weight1"), row.input(2, "weight2")
    if first.dtype != "INT8":
        raise RowError(f"Weights of {first.dtype} run another kernel, DispatchFFNCombineBF16: only int8 is replayed.")
    rank, size = rank_and_size()
    count = row.output(1, "expert_token_nums", 1, 2).shape
    experts = size * count[-1]
    if ids.shape[1] > experts:
        raise RowError(f"{ids.shape[1]} experts a token cannot be chosen among {experts}.")
    chosen = routes(
        ids.shape[0], ids.shape[1], experts=experts, rank=rank, is_balanced=bool(make.settings.get("balanced", True))
    )
    return (
        Experts(
            x=make(x),
            weight1=make(first),
            weight2=make(second),
            ids=make.integers(chosen, ids),
            scale1=make.place(make.filled(row.input(4, "scale1").shape, torch.float32).abs() * 1e-3 + 1e-3),
            scale2=make.place(make.filled(row.input(5, "scale2").shape, torch.float32).abs() * 1e-3 + 1e-3),
            probabilities=make(row.input(6, "probs", 2)),
            counts_shape=count,
            max_tokens=int(make.settings.get("max_output_size", 65536)),
        ),
    )


def launch(experts: Experts) -> object:
    """The arguments differ between releases: plain tensors in 0.12, no token counts before 0.15, biases from 0.19."""
    function = custom_function("_C_ascend", "dispatch_ffn_combine")
    names = argument_names(function)
    listed = (lambda tensor: [tensor]) if _takes_lists(function) else (lambda tensor: tensor)
    given: dict[str, Any] = {
        "x": experts.x,
        "weight1": listed(experts.weight1),
        "weight2": listed(experts.weight2),
        "expert_idx": experts.ids,
        "scale1": listed(experts.scale1),
        "scale2": listed(experts.scale2),
        "probs": experts.probabilities,
        "group": group_name(),
        "max_output_size": experts.max_tokens,
        "out": torch.empty_like(experts.x),
        "expert_token_nums": experts.ids.new_zeros(experts.counts_shape, dtype=torch.int32),
        "bias1": [],
        "bias2": [],
    }
    return function(**{name: value for name, value in given.items() if name in names})


def host(experts: Experts) -> tuple[torch.Tensor, torch.Tensor]:
    """Each token's output (M, H) and how many tokens this rank's experts got (e)."""
    tokens, scales = dynamic_quant(experts.x)
    sent = dispatched(experts, tokens, scales)
    inner = expert_product_swiglu_quant(
        sent.tokens, experts.weight1, sent.ends, experts.scale1.view(sent.ends.numel(), -1), sent.scales
    )
    outer = grouped_product(
        inner[0], experts.weight2, sent.ends, experts.scale2.view(sent.ends.numel(), -1), inner[1], experts.x.dtype
    )
    return returned(experts, sent, outer), sent.counts.view(experts.counts_shape)


def reference(experts: Experts) -> tuple[Array, Array]:
    """The same with the weights of all ranks at one place, token by token."""
    rank, size = rank_and_size()
    own = [whole(experts.ids), *(float64(part) for part in experts.weights)]
    everyone = [own]
    if size > 1:
        everyone = [[] for _ in range(size)]
        torch.distributed.all_gather_object(everyone, own)
    count = experts.weight1.shape[0]
    output = np.zeros(experts.x.shape)
    quantised, scales = double.quantised(float64(experts.x))
    for token, chosen in enumerate(own[0]):
        for expert, probability in zip(chosen, float64(experts.probabilities)[token], strict=True):
            _, weight1, weight2, scale1, scale2 = everyone[expert // count]
            place = expert % count
            hidden = quantised[token] @ weight1[place] * scale1.reshape(count, -1)[place] * scales[token]
            inner, inner_scale = double.quantised(double.swiglu(hidden))
            output[token] += probability * (inner @ weight2[place] * scale2.reshape(count, -1)[place] * inner_scale)
    counts = np.bincount(np.concatenate([other[0].ravel() for other in everyone]), minlength=size * count)
    return output, counts[rank * count : (rank + 1) * count].reshape(experts.counts_shape)


def _takes_lists(function: Any) -> bool:
    schema = getattr(function, function.overloads()[0])._schema
    return any(argument.name == "weight1" and "List" in str(argument.type) for argument in schema.arguments)


KERNEL = Kernel(
    "DispatchFFNCombine",
    operands,
    launch=launch,
    host=host,
    reference=reference,
    needs=frozenset({CUSTOM_OPP, C_ASCEND}),
    collective=True,
)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
