"""Measuring collectives: HCCL on NPUs, NCCL on GPUs, gloo anywhere."""
