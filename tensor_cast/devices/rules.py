"""What is assumed of a device where its file is silent; ``docs/devices.md`` explains each rule.

A rate of a quantised format (int8, fp8, fp4, int4) is never assumed: devices differ in which of them they have at all.
"""

from __future__ import annotations

from tensor_cast.devices.profile import CollectiveCost, KernelCost

# About the median of the measured families (Ascend A3, NVIDIA Ampere, Hopper, Blackwell, Ada).
KERNELS: dict[str, KernelCost] = {
    "matmul": KernelCost(0.70, 0.80, 0.50, 5e-6),
    "grouped_matmul": KernelCost(0.70, 0.80, 0.50, 12e-6),
    "attention_prefill": KernelCost(0.45, 0.80, 0.50, 15e-6),
    "attention_decode": KernelCost(0.45, 0.80, 0.50, 12e-6),
    "vector": KernelCost(0.70, 0.80, 0.50, 4e-6),
}
COLLECTIVE = CollectiveCost(link_efficiency=0.7, fixed_s=10e-6)

FLOAT16 = "assumed: float16 runs at the bfloat16 rate"
FLOAT32_VECTOR = "assumed: vector float32 is 1/16 of the bfloat16 matrix rate, as on the A100"
FLOAT32_MATRIX = "assumed: float32 matrix work runs on the vector units, at their float32 rate"
MATRIX_CORES = "assumed: 1, so that partly filled waves of tiles are not counted"
VECTOR_CORES = "assumed: as many as matrix cores"
CACHE = "assumed: 0, so that every byte comes from memory"
KERNEL = "assumed: about the median of the measured families"
LAUNCH_GAP_S = 0.0
LAUNCH_GAP = "assumed: kernels of a graph follow one another without a gap"
HOST_LAUNCH_S = 8e-6
HOST_LAUNCH = "assumed: 8 us, PyTorch's usual time for an operator on an x86 host (5 to 10 us)"

NEUTRAL = (
    *("wave_s", "step_s", "start_s", "share_bytes", "head_step", "overlap"),
    *("peer_s", "one_shot_s", "direct_bytes", "direct_reduce_bytes", "schedule_s"),
)
ROOFLINE = "assumed: a plain roofline, whose parts overlap and whose tiles and cores cost nothing beside their work"
NO_LINK = "assumed: a device without interconnect stands alone"

VECTOR_SHARE = 1 / 16
