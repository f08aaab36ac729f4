"""Bytes that a row's operands take on the device."""

from __future__ import annotations

import numpy as np

from tensor_cast.dtypes import dtype_bytes
from tensor_cast.performance_model.profiling_database.layouts import Dtypes, Layout, Operand, project_dtype
from tensor_cast.quantity import Quantity

GIB = 1024**3
UNKNOWN_BYTES = 2.0
"""An element of an operand whose dtype a layout does not tell: activations are of two bytes."""
_OTHER_BYTES = {
    "DOUBLE": 8.0,
    "UINT64": 8.0,
    "INT64": 8.0,
    "UINT32": 4.0,
    "INT16": 2.0,
    "UINT16": 2.0,
    "UINT8": 1.0,
    "BOOL": 1.0,
}


def element_bytes(dtype: str) -> float:
    """Bytes of one element of a dtype, as a profiler spells it (``DT_BF16``, ``FLOAT16``, ``FP16``) or the project."""
    bare = dtype.upper().removeprefix("DT_")
    known = project_dtype(bare) or project_dtype(dtype) or dtype.lower()
    try:
        return dtype_bytes(known)
    except KeyError:
        return _OTHER_BYTES.get(bare, UNKNOWN_BYTES)


def operand_bytes(layout: Layout, coordinates: dict[str, np.typing.NDArray[np.float64]], dtypes: Dtypes) -> Quantity:
    """Bytes of all inputs and outputs that a new row of ``layout`` has; sizes may be arrays of many rows."""
    total: Quantity = 0.0
    for side in layout.written_sides:
        for operand in side:
            if operand.dimensions is not None and not operand.optional:
                elements: Quantity = 1.0
                for dimension in operand.dimensions:
                    elements = elements * dimension.value(coordinates)
                total = total + elements * _operand_element_bytes(operand, dtypes)
    return total


def _operand_element_bytes(operand: Operand, dtypes: Dtypes) -> float:
    if not operand.dtype:
        return UNKNOWN_BYTES
    name = dtypes[operand.dtype] if operand.dtype[0].islower() else operand.dtype.split("|")[0]
    return element_bytes(name)
