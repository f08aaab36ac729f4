"""Importing this registers the stand-in's Triton operators."""

import npu_schemas

from vllm_ascend import register

register("vllm", npu_schemas.VLLM)
