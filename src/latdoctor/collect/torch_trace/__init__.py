"""Profiler traces (Kineto)."""
