"""The kinds of lines that are read besides the facts of `patterns.py`, and what finds them all in raw bytes."""

from __future__ import annotations

import re

from latdoctor.collectors.logs import (
    engine_lines,
    fabric_lines,
    gpu_access_lines,
    gpu_offload_lines,
    nccl_lines,
    pcie_lines,
)
