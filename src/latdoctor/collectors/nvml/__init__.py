"""This machine's GPUs, as the driver tells them through NVML."""
