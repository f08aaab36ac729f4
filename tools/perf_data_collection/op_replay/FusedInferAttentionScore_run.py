"""FusedInferAttentionScore: attention of many requests, packed or in a batch, with paged keys, masks and MLA's rope."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

import numpy as np
import torch

from tools.perf_data_collection.op_replay.fused_attention import AttentionCall, attention_call
from tools.perf_data_collection.op_replay.host.attention import attend, attend_with_sum
from tools.perf_data_collection.op_replay.host.float64 import Array, attended, float64
from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.npu import npu_function
from tools.perf_data_collection.op_replay.script import main


def launch(call: AttentionCall) -> object:
    """The attention's output and the log of its sums."""
    return npu_function("npu_fused_infer_attention_score")(call.query, call.key, call.value, **call.keywords())


def host(call: AttentionCall) -> tuple[torch.Tensor, ...]:
    """Output in the query's layout, batch and heads exchanged for BNSD_NBSD; the sums (…, 1) when the row has them."""
    output = call.query.new_empty(*call.query.shape[:-1], call.value.shape[-1] // _heads_in_last(call))
    sums = torch.empty(*call.query.shape[:-1], 1, dtype=torch.float32, device=call.query.device)
    for place, query, key, value in call.requests():
        if call.with_sum:
            own, lse = attend_with_sum(query, key, value, call.scale, is_causal=call.is_causal)
            sums[place] = lse.unsqueeze(-1) if call.layout == "TND" else lse.T.unsqueeze(-1)
        else:
            own = attend(query, key, value, call.scale, is_causal=call.is_causal)
        output[place] = own if call.layout == "TND" else own.transpose(0, 1)
    if call.layout == "BNSD_NBSD":
        output = output.transpose(0, 1).contiguous()
    return (output, sums) if call.with_sum else (output,)


def reference(call: AttentionCall) -> tuple[Array, ...]:
    """The same, request by request and head by head."""
    outputs, sums = [], []
    for _, query, key, value in call.requests():
        own, lse = attended(float64(query), float64(key), float64(value), call.scale, is_causal=call.is_causal)
        outputs.append(own if call.layout == "TND" else own.swapaxes(0, 1))
        sums.append((lse if call.layout == "TND" else lse.T)[..., None])
    join = np.concatenate if call.layout == "TND" else np.stack
    output = join(outputs)
    output = output.swapaxes(0, 1) if call.layout == "BNSD_NBSD" else output
    return (output, join(sums)) if call.with_sum else (output,)


def _heads_in_last(call: AttentionCall) -> int:
    return call.kv_heads if call.table is not None and call.value.dim() == 3 else 1


KERNEL = Kernel("FusedInferAttentionScore", attention_call, launch=launch, host=host, reference=reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
