"""Every generated row can be built by the script that replays it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tensor_cast.performance_model.profiling_database.coverage import REPLAYED_KERNELS  # noqa: E402
from tensor_cast.performance_model.profiling_database.shapes import Tensor  # noqa: E402
from tools.perf_data_collection.generate_shape_grid import main  # noqa: E402
from tools.perf_data_collection.op_replay.kernel import Kernel  # noqa: E402
from tools.perf_data_collection.op_replay.layouts import logical_shape, torch_dtype  # noqa: E402
from tools.perf_data_collection.op_replay.operands import OperandMaker  # noqa: E402
from tools.perf_data_collection.op_replay.rows import read_rows  # noqa: E402


class ShapesAlone(OperandMaker):
    """Operands without memory: a grid's rows are of many GiB."""

    def __init__(self) -> None:
        self.settings = {"balanced": True, "max_output_size": 65536}

    def __call__(self, spec: Tensor) -> Any:
        return torch.empty(logical_shape(spec), dtype=torch_dtype(spec.dtype), device="meta")

    def filled(self, shape: Sequence[int], dtype: Any) -> Any:
        return torch.empty(tuple(shape), dtype=dtype, device="meta")

    def place(self, tensor: Any, format_name: str = "ND") -> Any:
        return tensor.to("meta")


@pytest.mark.parametrize("models", [(), ("--target-models", "deepseek-ai/DeepSeek-V3.2,Qwen/Qwen3-32B")])
def test_operands_of_every_row(tmp_path: Path, models: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--database-path", str(tmp_path), *models, "--rows", "10", "--ops", *REPLAYED_KERNELS]
    assert main(words) == 0
    made = 0
    for path in sorted(tmp_path.glob("*.csv")):
        module = importlib.import_module(f"tools.perf_data_collection.op_replay.{path.stem}_run")
        (kernel,) = (value for value in vars(module).values() if isinstance(value, Kernel))
        for row in read_rows(path):
            # The replay of the fused experts runs one process a rank.
            size = int(row.cells.get("EP Size") or 1)
            if kernel.collective:
                monkeypatch.setattr(module, "rank_and_size", lambda size=size: (0, size))
            kernel.operands(row, ShapesAlone())
            made += 1
    assert made > 300
