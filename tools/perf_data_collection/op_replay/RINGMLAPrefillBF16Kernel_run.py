"""RINGMLAPrefillBF16Kernel: MLA prefill attention in rings: the first one causal, later ones merged into it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import numpy as np
import torch

from tools.perf_data_collection.fia_common import RING_MASK
from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.host.attention import attend_with_sum
from tools.perf_data_collection.op_replay.host.float64 import Array, attended, float64
from tools.perf_data_collection.op_replay.kernel import ATB, CUSTOM_OPP, Kernel
from tools.perf_data_collection.op_replay.layouts import torch_dtype
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.operands import OperandMaker
from tools.perf_data_collection.op_replay.rows import ReplayRow
from tools.perf_data_collection.op_replay.script import main

MASK, PREVIOUS_OUTPUT, PREVIOUS_LSE = 5, 13, 14


@dataclass(frozen=True)
class Operands:
    """Parts of query and key without and with rope, value (all T, heads, d), mask, lengths, what came before, scale.

    The row knows tokens and no requests, so it is replayed as one. Lengths stay on the host, as the call wants them.
    """

    q_nope: torch.Tensor
    q_rope: torch.Tensor
    k_nope: torch.Tensor
    k_rope: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    lengths: torch.Tensor
    before: torch.Tensor | None
    before_lse: torch.Tensor | None
    scale: float


def operands(row: ReplayRow, make: OperandMaker) -> tuple[Operands]:
    """The operands of a row."""
    names = ("q_nope", "q_rope", "k_nope", "k_rope", "value")
    parts = [row.input(slot, name, 3) for slot, name in enumerate(names)]
    before = [row.optional_input(slot) for slot in (PREVIOUS_OUTPUT, PREVIOUS_LSE)]
    if (before[0] is None) != (before[1] is None):
        raise RowError("pre_out and prev_lse come together: give both or neither.")
    tokens, keys = parts[0].shape[0], parts[2].shape[0]
    is_first = before[0] is None
    spec = row.optional_input(MASK)
    dtype = torch.bfloat16 if spec is None else torch_dtype(spec.dtype)
    mask = make.place(torch.ones(RING_MASK, RING_MASK, dtype=dtype).triu(1)) if is_first else None
    lengths = torch.tensor([tokens] if is_first else [[tokens], [keys]], dtype=torch.int32)
    scale = (parts[0].shape[-1] + parts[1].shape[-1]) ** -0.5
    q_nope, q_rope, k_nope, k_rope, value = (make(part) for part in parts)
    output, lse = (make.optional(spec) for spec in before)
    return (Operands(q_nope, q_rope, k_nope, k_rope, value, mask, lengths, output, lse, scale),)


def launch(given: Operands) -> object:
    """Results go into tensors that the caller gives."""
    tokens, heads, _ = given.q_nope.shape
    is_first = given.before is None
    return npu_function("atb.npu_ring_mla")(
        q_nope=given.q_nope,
        q_rope=given.q_rope,
        k_nope=given.k_nope,
        k_rope=given.k_rope,
        value=given.value,
        mask=given.q_nope.new_zeros(RING_MASK, RING_MASK) if given.mask is None else given.mask,
        seqlen=given.lengths,
        head_num=heads,
        kv_head_num=given.k_nope.shape[1],
        pre_out=given.before,
        prev_lse=given.before_lse,
        qk_scale=given.scale,
        kernel_type="kernel_type_high_precision",
        mask_type="mask_type_triu" if is_first else "no_mask",
        input_layout="type_bsnd",
        calc_type="calc_type_first_ring" if is_first else "calc_type_default",
        output=given.q_nope.new_empty(tokens, heads, given.value.shape[-1]),
        softmax_lse=given.q_nope.new_empty(heads, tokens, dtype=torch.float32),
    )


def host(given: Operands) -> tuple[torch.Tensor, torch.Tensor]:
    """The output (T, heads, d) and the log of the softmax's sum (heads, T)."""
    query, key = torch.cat((given.q_nope, given.q_rope), dim=-1), torch.cat((given.k_nope, given.k_rope), dim=-1)
    output, lse = attend_with_sum(query, key, given.value, given.scale, is_causal=given.before is None)
    if given.before is None or given.before_lse is None:
        return output, lse.T.contiguous()
    old = given.before_lse.T
    total = torch.logaddexp(old, lse)
    old_share, new_share = ((part - total).exp().unsqueeze(-1) for part in (old, lse))
    merged = given.before.float() * old_share + output.float() * new_share
    return merged.to(output.dtype), total.T.contiguous()


def reference(given: Operands) -> tuple[Array, Array]:
    """The same; a merge weighs both outputs by their sums of exponentials."""
    query = np.concatenate((float64(given.q_nope), float64(given.q_rope)), axis=-1)
    key = np.concatenate((float64(given.k_nope), float64(given.k_rope)), axis=-1)
    output, lse = attended(query, key, float64(given.value), given.scale, is_causal=given.before is None)
    if given.before is None or given.before_lse is None:
        return output, lse.T
    old, new = np.exp(float64(given.before_lse).T), np.exp(lse)
    merged = (float64(given.before) * old[..., None] + output * new[..., None]) / (old + new)[..., None]
    return merged, np.log(old + new).T


KERNEL = Kernel(
    "RINGMLAPrefillBF16Kernel",
    operands,
    launch=launch,
    host=host,
    reference=reference,
    needs=frozenset({CUSTOM_OPP, ATB}),
)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
