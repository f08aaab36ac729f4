"""A stand-in for torch_npu: every call is held against its signature and recorded as the kernel it would launch.

Environment: STANDIN_OP_PLUGIN (release), STANDIN_NPUS (how many), STANDIN_LAUNCHES (directory of the records),
STANDIN_BREAKS (a function that raises), STANDIN_SLOW (seconds a call takes).
"""

import atexit
import os
import sys
import types

import npu_schemas
import standin_calls as calls
import torch

RELEASE = os.environ.get("STANDIN_OP_PLUGIN", "7.3.0")


class _Config:
    allow_internal_format = False


npu = types.ModuleType("torch.npu")
npu.is_available = lambda: int(os.environ.get("STANDIN_NPUS", "2")) > 0
npu.device_count = lambda: int(os.environ.get("STANDIN_NPUS", "2"))
npu.synchronize = lambda: None
npu.set_device = lambda number: None
npu.get_device_name = lambda: "stand-in"
npu.mem_get_info = lambda: (64 << 30, 64 << 30)
npu.config = _Config()
torch.npu = npu
sys.modules["torch.npu"] = npu
torch.utils.rename_privateuse1_backend("npu")
torch.Tensor.npu = calls.to_npu


class _Hccl(torch.distributed.ProcessGroupGloo):
    def get_hccl_comm_name(self, rank):
        return f"hccl_world_{rank}"


_groups = []  # torch keeps the C++ object alone, which would forget what Python added to it


def _new_group(store, rank, size, timeout):
    _groups.append(_Hccl(store, rank, size, timeout))
    return _groups[-1]


atexit.register(_groups.clear)  # its threads must not outlive the interpreter


if not hasattr(torch.distributed.Backend, "HCCL"):
    torch.distributed.Backend.register_backend("hccl", _new_group, devices=["npu"])


def npu_format_cast(self, acl_format, **options):
    assert npu.config.allow_internal_format, "an internal format needs npu.config.allow_internal_format"
    calls.check("npu_format_cast", npu_schemas.TORCH_NPU["npu_format_cast"]["7.1.0"], (self, acl_format), options)
    assert acl_format == 29, f"acl_format {acl_format} is not FRACTAL_NZ"
    return calls.fractal(self)


for _name, _history in npu_schemas.TORCH_NPU.items():
    _schema = npu_schemas.schema_in(_history, npu_schemas.OP_PLUGIN_RELEASES, RELEASE)
    if _schema is not None and _name not in ("npu_format_cast", "npu_ring_mla"):
        globals()[_name] = calls.function(_name, _schema)
atb = types.ModuleType("torch_npu.atb")
atb.npu_ring_mla = calls.function("npu_ring_mla", npu_schemas.TORCH_NPU["npu_ring_mla"]["7.1.0"])
