"""Checking and recording calls, and the tensors of the stand-in's device."""

import json
import os
import time
from pathlib import Path

import npu_schemas
import torch

DTYPES = {
    torch.bfloat16: "DT_BF16",
    torch.float16: "FLOAT16",
    torch.float32: "FLOAT",
    torch.int8: "INT8",
    torch.uint8: "UINT8",
    torch.int32: "INT32",
    torch.int64: "INT64",
    torch.bool: "BOOL",
}
ON_HOST = {("npu_ring_mla", "seqlen")}
MATMUL = os.environ.get("STANDIN_MATMUL", "MatMulV2")
LAUNCHED_BY_TORCH = {
    "add": lambda args, result: ("Add", args, [result]),
    "argmax": lambda args, result: ("ArgMaxV2", [args[0], ((), "INT64", "ND")], [result]),
    "matmul": lambda args, result: ("BatchMatMulV2", args, [result]),
    "mm": lambda args, result: (MATMUL, args, [result]),
    "embedding": lambda args, result: ("GatherV2", [args[1], args[0], ((1,), "INT64", "ND")], [result]),
    "__getitem__": lambda args, result: (
        "Index",
        [args[0], ((1,), "INT64", "ND"), ((1,), "INT64", "ND"), args[1]],
        [result],
    ),
    "masked_fill_": lambda args, result: ("MaskedFill", [*args[:2], ((), "FLOAT", "ND")], [result]),
    "pad": lambda args, result: (
        "PadV3",
        [args[0], ((2 * args[0].dim(),), "INT64", "ND"), ((), "INT64", "ND")],
        [result],
    ),
    "softmax": lambda args, result: ("SoftmaxV2", args[:1], [result]),
    "sort": lambda args, result: ("Sort", args[:1], [result[0], (tuple(result[1].shape), "INT32", "ND")]),
    "copy_": lambda args, result: ("TensorMove", [args[1]], [result]),
    "contiguous": lambda args, result: ("Transpose", [args[0], ((args[0].dim(),), "INT64", "ND")], [result]),
}
VIEWS = ("t", "transpose")


class NpuTensor(torch.Tensor):
    """A tensor on the stand-in's device: plain torch functions on it are recorded as their kernels."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        launched = LAUNCHED_BY_TORCH.get(name)
        is_copy = name != "contiguous" or not torch.Tensor.is_contiguous(args[0])
        if launched and is_copy:
            for position, value in enumerate(args):
                assert not isinstance(value, torch.Tensor) or isinstance(value, cls), (
                    f"{name}: argument {position} is not on the NPU"
                )
        result = super().__torch_function__(func, types, args, kwargs or {})
        if name in VIEWS and isinstance(result, cls):
            result.stored = stored(args[0])
        elif name == "contiguous" and is_copy and isinstance(result, cls):
            result.stored = None
        if launched and is_copy:
            slow_down(name)
            record(*launched(list(args), result))
        return result


def to_npu(tensor):
    """``Tensor.npu()``."""
    assert not isinstance(tensor, NpuTensor), "the tensor is on the NPU already"
    return tensor.clone().as_subclass(NpuTensor)


def fractal(tensor):
    """A tensor cast to FRACTAL_NZ: values as before, the stored shape in blocks of 16 x 32 bytes."""
    *batch, rows, columns = tensor.shape
    width = 32 // tensor.element_size()
    result = tensor.as_subclass(torch.Tensor).clone().as_subclass(NpuTensor)
    shape = (*batch, -(-columns // width), -(-rows // 16), 16, width)
    result.stored = (shape, DTYPES[tensor.dtype], "FRACTAL_NZ")
    return result


def stored(tensor):
    """Shape, dtype and format as a kernel would be given them."""
    if getattr(tensor, "stored", None) is not None:
        return tensor.stored
    return tuple(tensor.shape), DTYPES[tensor.dtype], "ND"


def record(kernel, inputs, outputs):
    """Write a launch into this process's record."""
    directory = os.environ.get("STANDIN_LAUNCHES")
    if not directory:
        return
    described = []
    if inputs == "raw":  # launched through a raw handler: the profiler knows no operands
        inputs, outputs = "N/A", "N/A"
    for side in (inputs, outputs):
        if side == "N/A":
            described.append(side)
            continue
        entries = []
        for entry in side:
            if isinstance(entry, torch.Tensor):
                entry = stored(entry)
            if entry is None:
                entries.append(("", "DT_UNDEFINED", "NULL"))
            elif isinstance(entry, tuple):
                entries.append((",".join(map(str, entry[0])), *entry[1:]))
        described.append(entries)
    with (Path(directory) / f"launches_{os.getpid()}.jsonl").open("a") as stream:
        stream.write(json.dumps([kernel, *described]) + "\n")


def slow_down(name):
    wanted, _, seconds = os.environ.get("STANDIN_SLOW", "").partition("=")
    if wanted == name:
        time.sleep(float(seconds))


def function(name, schema_text, launch=None):
    """A function with this signature that checks its arguments, records the launch and returns its outputs."""
    schema = torch._C.parse_schema(f"{name}{schema_text}")

    def call(*args, **kwargs):
        given = check(name, schema, args, kwargs)
        if os.environ.get("STANDIN_BREAKS") == name:
            raise RuntimeError(f"{name} call failed, error code is 561002")
        slow_down(name)
        from standin_kernels import KERNELS

        kernel, inputs, outputs = KERNELS[name](given)
        record(kernel, inputs, outputs)
        made = [
            entry if isinstance(entry, torch.Tensor) else torch.zeros(entry[0]).as_subclass(NpuTensor)
            for entry in outputs
            if entry is not None
        ]
        return made[0] if len(made) == 1 else tuple(made)

    call.__name__ = name
    return call


def check(name, schema, args, kwargs):
    """Bind a call to a signature as torch would; returns every argument by name."""
    schema = torch._C.parse_schema(f"{name}{schema}") if isinstance(schema, str) else schema
    given = {}
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    assert len(args) <= len(positional), f"{name} takes {len(positional)} positional arguments, got {len(args)}"
    for argument, value in zip(positional, args, strict=False):
        given[argument.name] = value
    known = {argument.name for argument in schema.arguments}
    for key, value in kwargs.items():
        assert key in known, f"{name} has no argument {key}"
        assert key not in given, f"{name}: {key} is given twice"
        given[key] = value
    for argument in schema.arguments:
        if argument.name not in given:
            assert argument.has_default_value(), f"{name} lacks {argument.name}"
            given[argument.name] = argument.default_value
        else:
            check_type(name, argument, given[argument.name])
    return given


def check_type(name, argument, value):
    """Refuse a value that the argument's type does not take, or a tensor of another rank or on the host."""
    expected = str(argument.type)
    if expected.startswith("Optional["):
        if value is None:
            return
        expected = expected.removeprefix("Optional[").removesuffix("]")
    what = f"{name}: {argument.name}={type(value).__name__}"
    if expected in ("Tensor", "List[Tensor]"):
        tensors = value if expected == "List[Tensor]" else [value]
        assert isinstance(tensors, list), f"{what} is no list"
        for tensor in tensors:
            assert isinstance(tensor, torch.Tensor), f"{what} is no tensor"
            is_on_host = not isinstance(tensor, NpuTensor)
            assert is_on_host == ((name, argument.name) in ON_HOST), f"{what} is on the wrong device"
            ranks = npu_schemas.RANKS.get((name, argument.name))
            assert ranks is None or tensor.dim() in ranks, f"{what} has {tensor.dim()} dimensions, not {ranks}"
    elif expected.startswith("List["):
        assert isinstance(value, list | tuple), f"{what} is no list of numbers"
        assert all(type(item) is int for item in value), f"{what} holds something else than whole numbers"
    elif isinstance(value, torch.dtype):
        assert "dtype" in argument.name, f"{what} is a dtype"  # the binding takes dtypes in every release
    else:
        kinds = {"int": int, "float": (int, float), "bool": bool, "str": str}[expected]
        assert isinstance(value, kinds), f"{what} is no {expected}"
        assert expected == "bool" or not isinstance(value, bool), f"{what} is no {expected}"


def numbers(count):
    """A list argument of lengths as the kernel's int64 slot."""
    return None if count is None else ((len(count),), "INT64", "ND")
