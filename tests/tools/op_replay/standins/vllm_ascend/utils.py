"""``enable_custom_op`` of the stand-in."""

import npu_schemas

from vllm_ascend import register


def enable_custom_op():
    register("_C_ascend", npu_schemas.C_ASCEND)
    return True
