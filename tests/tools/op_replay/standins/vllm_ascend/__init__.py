"""A stand-in for vllm-ascend: registers the operators that the release in STANDIN_VLLM_ASCEND has."""

import os

import npu_schemas
import standin_calls as calls
import torch

RELEASE = os.environ.get("STANDIN_VLLM_ASCEND", "0.18.0")


class _Operator:
    """What ``torch.ops.<namespace>.<name>`` is to its callers."""

    def __init__(self, name, schema_text):
        self.default = type("Overload", (), {"_schema": torch._C.parse_schema(f"{name}{schema_text}")})
        self._call = calls.function(name, schema_text)

    def overloads(self):
        return ["default"]

    def __call__(self, *args, **kwargs):
        return self._call(*args, **kwargs)


def register(namespace, histories):
    holder = getattr(torch.ops, namespace)
    for name, history in histories.items():
        schema = npu_schemas.schema_in(history, npu_schemas.VLLM_ASCEND_RELEASES, RELEASE)
        if schema is not None:
            setattr(holder, name, _Operator(name, schema))
        elif name in vars(holder):  # of another release in the same process
            delattr(holder, name)
