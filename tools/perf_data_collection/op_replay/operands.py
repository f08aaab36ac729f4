"""Making the tensors of a row on whatever device it is replayed on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tensor_cast.performance_model.profiling_database.shapes import Tensor
from tools.perf_data_collection.op_replay.errors import RowError
from tools.perf_data_collection.op_replay.layouts import FRACTAL_NZ, logical_shape, torch_dtype

if TYPE_CHECKING:
    from tools.perf_data_collection.op_replay.backends import Backend

_POOL_ELEMENTS = 1 << 16
_INTEGERS_BELOW = 8


class OperandMaker:
    """Tensors filled with repeatable values: floats in [-1, 1), whole numbers 0 to 7, booleans.

    Values come from a small pool that is laid out again and again, because drawing billions of random numbers would
    take longer than the kernels; nothing is left uninitialised, since denormals and NaNs change a CPU's times. They
    are made on the host and copied, so that no kernel but the replayed one appears in a device's profile.
    ``settings`` are a script's own flags by name.
    """

    def __init__(self, backend: Backend, settings: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        self.settings = settings or {}
        generator = torch.Generator().manual_seed(seed)
        self.backend = backend
        self._floats = torch.rand(_POOL_ELEMENTS, generator=generator) * 2 - 1
        self._integers = torch.randint(_INTEGERS_BELOW, (_POOL_ELEMENTS,), generator=generator, dtype=torch.int8)
        self._shift = 0

    def __call__(self, spec: Tensor) -> torch.Tensor:
        """A tensor of the operand's dtype and logical shape, in its format where the device has formats.

        Raises:
            RowError: its dtype or its layout is unknown.
        """
        return self.place(self.filled(logical_shape(spec), torch_dtype(spec.dtype)), spec.format)

    def optional(self, spec: Tensor | None) -> torch.Tensor | None:
        """The same for an operand that may be absent."""
        return None if spec is None else self(spec)

    def filled(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A host tensor of pool values."""
        pool = (self._floats if dtype.is_floating_point else self._integers).roll(self._shift)
        self._shift += 7919
        pool = pool % 2 == 1 if dtype is torch.bool else pool.to(dtype)
        count = math.prod(shape)
        whole = count // _POOL_ELEMENTS * _POOL_ELEMENTS
        flat = torch.empty(count, dtype=dtype)
        flat[:whole].view(-1, _POOL_ELEMENTS).copy_(pool)
        flat[whole:].copy_(pool[: count - whole])
        return flat.view(tuple(shape))

    def integers(self, values: torch.Tensor | Sequence[int], spec: Tensor) -> torch.Tensor:
        """Given whole numbers in the operand's dtype and shape.

        Raises:
            RowError: the operand is of a dtype that does not hold every whole number.
        """
        dtype = torch_dtype(spec.dtype)
        if dtype.is_floating_point:
            raise RowError(f"Indices and lengths are {spec.dtype} in the row: give their slot INT32 or INT64.")
        return self.place(torch.as_tensor(values).to(dtype).reshape(spec.shape))

    def place(self, tensor: torch.Tensor, format_name: str = "ND") -> torch.Tensor:
        """A host tensor moved to the device, cast to FRACTAL_NZ where the device has it."""
        return self.backend.place(tensor, is_fractal=format_name == FRACTAL_NZ)
