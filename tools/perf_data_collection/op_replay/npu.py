"""What an NPU run needs of its machine, each missing piece with the sentence that says how to get it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from tensor_cast.errors import ModelingError
from tools.perf_data_collection.op_replay.kernel import ATB, C_ASCEND, VLLM_TRITON

CUSTOM_OPP_OPERATORS = frozenset(
    {
        "AddRmsNormBias",
        "DispatchFFNCombine",
        "KvRmsNormRopeCache",
        "RINGMLAPrefillBF16Kernel",
        "SparseFlashAttention",
        "split_qkv_rmsnorm_rope_kernel",
    }
)
"""Operators whose kernels come with vllm-ascend's custom operator package."""
CUSTOM_OPP_VARIABLES = ("ASCEND_CUSTOM_OPP_PATH", "LD_LIBRARY_PATH")
VLLM_ASCEND_VARIABLE = "VLLM_ASCEND_PATH"
VENDOR_DIRECTORIES = ("vllm-ascend", "custom_transformer")
"""Below ``_cann_ops_custom/vendors``: the name up to vllm-ascend 0.18, and the one from 0.20 on."""
_DEFAULT_CHECKOUT = Path("..") / "vllm-ascend"


def require_msprof() -> str:
    """The path of msprof.

    Raises:
        ModelingError: it is not installed, or its environment is not set.
    """
    if found := shutil.which("msprof"):
        return found
    raise ModelingError(
        "msprof not found: install CANN's toolkit and set its environment "
        "(source /usr/local/Ascend/ascend-toolkit/set_env.sh), or use --backend cpu.",
        exit_status=1,
    )


def require_npu() -> ModuleType:
    """torch_npu, with an NPU behind it.

    Raises:
        ModelingError: torch, torch_npu or the NPU is missing.
    """
    for name in ("torch", "torch_npu"):
        if importlib.util.find_spec(name) is None:
            raise ModelingError(
                f"{name} is not installed: install the torch and torch_npu that match your CANN, or use --backend cpu.",
                exit_status=1,
            )
    try:
        torch = importlib.import_module("torch")
        torch_npu = importlib.import_module("torch_npu")
    except (ImportError, OSError) as error:
        raise ModelingError(
            f"torch_npu cannot be loaded ({error}): set CANN's environment "
            "(source /usr/local/Ascend/ascend-toolkit/set_env.sh).",
            exit_status=1,
        ) from None
    if not torch.npu.is_available():
        raise ModelingError(
            'No NPU is available to torch_npu: look at "npu-smi info" and ASCEND_RT_VISIBLE_DEVICES, '
            "or use --backend cpu.",
            exit_status=1,
        )
    return torch_npu


def visible_npus() -> int:
    """How many NPUs torch_npu sees, 0 when that cannot be told."""
    try:
        importlib.import_module("torch_npu")
        return int(importlib.import_module("torch").npu.device_count())
    except Exception:  # a broken accelerator stack raises anything; then nothing is known
        return 0


def require_custom_opp(operators: Iterable[str], environment: Mapping[str, str] = os.environ) -> None:
    """Make sure that the custom operator package is set up if an operator needs it.

    Raises:
        ModelingError: a variable is missing; the message gives the lines to set them.
    """
    needing = sorted(CUSTOM_OPP_OPERATORS.intersection(operators))
    if not needing or all(environment.get(name, "").strip() for name in CUSTOM_OPP_VARIABLES):
        return
    vendor = _vendor_directory()
    raise ModelingError(
        f"{', '.join(needing)} needs vllm-ascend's custom operators; set both variables:\n"
        f"  export ASCEND_CUSTOM_OPP_PATH={vendor}:$ASCEND_CUSTOM_OPP_PATH\n"
        f"  export LD_LIBRARY_PATH={vendor}/op_api/lib:$LD_LIBRARY_PATH",
        exit_status=1,
    )


def prepare(needs: frozenset[str]) -> None:
    """Register what a kernel's call needs before its first row.

    Raises:
        ModelingError: vLLM-Ascend or the ATB libraries are missing.
    """
    if C_ASCEND in needs:
        _vllm_ascend("vllm_ascend.utils").enable_custom_op()
    if VLLM_TRITON in needs:
        _vllm_ascend("vllm_ascend.ops.register_custom_ops")
        _vllm_ascend("vllm_ascend.ops.triton.triton_utils").init_device_properties_triton()
    if ATB in needs and not os.environ.get("ATB_HOME_PATH", "").strip():
        raise ModelingError(
            "The ATB libraries are not set up: install NNAL and source /usr/local/Ascend/nnal/atb/set_env.sh.",
            exit_status=1,
        )


def npu_function(name: str, since: str = "") -> Callable[..., Any]:
    """A function of torch_npu, by its dotted name below it.

    Raises:
        ModelingError: this version of torch_npu has none.
    """
    found: Any = importlib.import_module("torch_npu")
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        remedy = f"it came with op-plugin {since}" if since else "install one that matches your CANN"
        raise ModelingError(f"This torch_npu has no {name}: {remedy}.", exit_status=1)
    return found  # type: ignore[no-any-return]


def custom_function(namespace: str, name: str) -> Any:
    """An operator below ``torch.ops``.

    Raises:
        ModelingError: nothing registered it.
    """
    torch = importlib.import_module("torch")
    try:
        return getattr(getattr(torch.ops, namespace), name)
    except AttributeError:
        raise ModelingError(
            f"This vLLM-Ascend registers no torch.ops.{namespace}.{name}: install a release that has it.", exit_status=1
        ) from None


def argument_names(function: Any) -> tuple[str, ...]:
    """Argument names of an operator below ``torch.ops``: they differ between releases."""
    overload = getattr(function, function.overloads()[0])
    return tuple(argument.name for argument in overload._schema.arguments)


def _vllm_ascend(module: str) -> ModuleType:
    checkout = Path(os.environ.get(VLLM_ASCEND_VARIABLE, "").strip() or _DEFAULT_CHECKOUT)
    if importlib.util.find_spec("vllm_ascend") is None and checkout.is_dir():
        sys.path.append(str(checkout.resolve()))
        importlib.invalidate_caches()
    if importlib.util.find_spec("vllm_ascend") is None:
        raise ModelingError(
            f"vllm_ascend is not installed and not at {checkout}: install vLLM-Ascend, or point {VLLM_ASCEND_VARIABLE} "
            "at its checkout.",
            exit_status=1,
        )
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModelingError(
            f"{module} cannot be imported ({error.name} is missing): install a vLLM-Ascend that has it.", exit_status=1
        ) from None


def _vendor_directory() -> str:
    package = importlib.util.find_spec("vllm_ascend")
    root = Path(package.submodule_search_locations[0]) if package and package.submodule_search_locations else None
    if root is None:
        return "/path/to/vllm_ascend/_cann_ops_custom/vendors/vllm-ascend"
    vendors = root / "_cann_ops_custom" / "vendors"
    return str(
        next((vendors / name for name in VENDOR_DIRECTORIES if (vendors / name).is_dir()), vendors / "vllm-ascend")
    )
