"""Nsight Systems exports, and the tables of `nsys stats` and nvprof."""
