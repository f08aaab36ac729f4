"""The deployment that flags of parallelism, quantisation and kernels describe."""

from __future__ import annotations

import argparse
from typing import Any

from cli.arguments.kernels import compilation_options
from cli.arguments.parallelism import SIZES
from tensor_cast.deployment import Deployment


def deployment_of(arguments: argparse.Namespace) -> Deployment:
    """The deployment that the flags describe; what they leave out keeps the core's default.

    Raises:
        UsageError: an unknown compilation option.
        ModelingError: sizes or fusions that exclude each other.
    """
    options = compilation_options(arguments.compilation_config)
    sizes: dict[str, Any] = {name: getattr(arguments, name) for name in ("world_size", *SIZES)}
    return Deployment(
        **sizes,
        quantize_linear=arguments.quantize_linear_action,
        quantize_non_expert_linear=arguments.quantize_non_expert_linear_action,
        quantize_lmhead=arguments.quantize_lmhead,
        quantize_attention=arguments.quantize_attention_action,
        mxfp4_group_size=arguments.mxfp4_group_size,
        dtype=arguments.dtype,
        compile=arguments.compile,
        enable_sequence_parallel=arguments.enable_sequence_parallel or "enable_sequence_parallel" in options,
        enable_shared_expert_tp=arguments.enable_shared_expert_tp,
        enable_redundant_experts=arguments.enable_redundant_experts,
        expert_skew=arguments.expert_skew,
        shared_expert_ranks=arguments.shared_expert_ranks,
        vision_tp_size=arguments.vision_tp_size,
        enable_multistream="enable_multistream" in options,
        enable_matmul_allreduce="enable_matmul_allreduce" in options,
        enable_dispatch_ffn_combine="enable_dispatch_ffn_combine" in options,
        block_size=arguments.block_size,
        engine=arguments.engine,
        execution=arguments.execution,
    )
