"""What a ``<Kernel>_run.py`` states about its kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.perf_data_collection.op_replay.operands import OperandMaker
    from tools.perf_data_collection.op_replay.rows import ReplayRow

CUSTOM_OPP = "custom_opp"
"""Needs vllm-ascend's custom operators: ASCEND_CUSTOM_OPP_PATH and LD_LIBRARY_PATH."""
C_ASCEND = "c_ascend"
"""Is called through torch.ops._C_ascend, which vllm-ascend registers."""
VLLM_TRITON = "vllm_triton"
"""Is called through torch.ops.vllm, which vllm-ascend's Triton operators register."""
ATB = "atb"
"""Needs the NNAL package (ATB libraries) beside CANN."""


@dataclass(frozen=True)
class Kernel:
    """One kernel type.

    ``operands`` turns a database row into the arguments of the three others: ``launch`` is the call that launches
    the kernel on an NPU, ``host`` the same operation in torch for a CPU or a GPU, and ``reference`` the result in
    float64 (NumPy), written apart from both and meant for small shapes. Each of the three returns the kernel's
    outputs in slot order; in-place operations return the tensors that they changed. A kernel that plain torch
    launches gives one function for both. A ``collective`` kernel runs on several processes at once.
    """

    name: str
    operands: Callable[[ReplayRow, OperandMaker], tuple[Any, ...]]
    launch: Callable[..., Any]
    host: Callable[..., Any]
    reference: Callable[..., Any]
    needs: frozenset[str] = frozenset()
    collective: bool = False
