"""The kinds of lines that are read besides the facts of `patterns.py`, and what finds them all in raw bytes."""

from __future__ import annotations

from latdoctor.collectors.logs import (
    cpu_fallback_lines,
    dependency_lines,
    engine_lines,
    fabric_lines,
    gpu_access_lines,
    gpu_offload_lines,
    host_failure_lines,
    kubelet_lines,
    memory_failures,
    nccl_lines,
    pcie_lines,
    python_lines,
    startup_memory,
)
from latdoctor.collectors.logs.candidates import Candidates
from latdoctor.collectors.logs.line_kind import LineKind
from latdoctor.collectors.logs.patterns import FACT_HINTS

# One per line, sorted by name.
LINE_KINDS: tuple[LineKind, ...] = (
    cpu_fallback_lines.KIND,
    dependency_lines.KIND,
    engine_lines.KIND,
    fabric_lines.KIND,
    gpu_access_lines.KIND,
    gpu_offload_lines.KIND,
    host_failure_lines.KIND,
    kubelet_lines.KIND,
    memory_failures.KIND,
    nccl_lines.KIND,
    pcie_lines.KIND,
    python_lines.KIND,
    startup_memory.KIND,
)

# A line without any of these contains nothing that is read.
CANDIDATE = Candidates(FACT_HINTS.pattern, LINE_KINDS)
