"""MatMulV2: a matrix product; CANN chooses by size which of three kernels torch.mm launches."""

from __future__ import annotations

import sys
from pathlib import Path

if __package__ in (None, ""):
    # Run by path: the first entry is this directory, and the repository's root is needed instead.
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from tools.perf_data_collection.op_replay.kernel import Kernel
from tools.perf_data_collection.op_replay.products import matrix_operands, matrix_product, matrix_reference
from tools.perf_data_collection.op_replay.script import main

KERNEL = Kernel("MatMulV2", matrix_operands, launch=matrix_product, host=matrix_product, reference=matrix_reference)

if __name__ == "__main__":
    sys.exit(main(KERNEL))
