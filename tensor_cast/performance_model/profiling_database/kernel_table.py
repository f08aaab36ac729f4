"""The one table from the ops of a model to the kernels of an Ascend device."""

from __future__ import annotations

from tensor_cast.ops import Op
from tensor_cast.performance_model.profiling_database.kernels import Form, FormsOf, Kernel
from tensor_cast.performance_model.profiling_database.kernels_attention import ATTENTION_FORMS, ATTENTION_KERNELS
from tensor_cast.performance_model.profiling_database.kernels_matmul import MATMUL_FORMS, MATMUL_KERNELS
from tensor_cast.performance_model.profiling_database.kernels_moe import MOE_FORMS, MOE_KERNELS
from tensor_cast.performance_model.profiling_database.kernels_vector import VECTOR_FORMS, VECTOR_KERNELS

KERNELS: tuple[Kernel, ...] = (*MATMUL_KERNELS, *ATTENTION_KERNELS, *MOE_KERNELS, *VECTOR_KERNELS)
"""Every kernel whose rows are understood."""

FORMS: dict[str, FormsOf] = {**MATMUL_FORMS, **ATTENTION_FORMS, **MOE_FORMS, **VECTOR_FORMS}
"""Name of an op to the ways in which it may be launched."""


def forms(op: Op) -> tuple[Form, ...]:
    """The ways in which ``op`` may be launched, the likeliest first; none where no kernel is known for it."""
    find = FORMS.get(op.name)
    return find(op) if find is not None else ()


def kernels_of_type(kernel_type: str) -> tuple[Kernel, ...]:
    """The kernels that may have rows in the file of a kernel type."""
    return tuple(kernel for kernel in KERNELS if kernel_type in kernel.types)
