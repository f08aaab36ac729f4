"""What several kernels share of their implementation in torch, for machines without an NPU."""
