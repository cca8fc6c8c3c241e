"""Warnings that a framework computes on the CPU though a GPU was wanted, and the placement of nodes by ONNX Runtime.

A service that is meant to run on a CPU prints none of these: lines that merely name the CPU are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from latdoctor.collectors.logs.line_events import EventLines, Found
from latdoctor.collectors.logs.line_kind import LineKind
from latdoctor.collectors.logs.line_prefix import LogLine

CPU_FALLBACK, CPU_NODES, GPU_NODES, MEMCPY_NODES = (
    "log.cpu_fallback", "offload.nodes_cpu", "offload.nodes_gpu", "offload.memcpy_nodes",
)  # fmt: skip
SIGNALS = (CPU_FALLBACK, CPU_NODES, GPU_NODES, MEMCPY_NODES)


class FallbackReason(StrEnum):
    """Why the GPU is not used, as far as the line shows."""

    PROVIDER_NOT_CREATED = "provider-not-created"  # the execution provider of ONNX Runtime failed
    PROVIDER_NOT_AVAILABLE = "provider-not-available"  # this build of ONNX Runtime does not have it
    LIBRARY_NOT_LOADED = "library-not-loaded"  # CUDA, cuDNN or the provider's own library
    CUDA_NOT_INITIALISED = "cuda-not-initialised"
    BUILT_WITHOUT_GPU = "built-without-gpu"
    NO_GPU = "no-gpu"
    FELL_BACK = "fell-back"


_PROVIDER = r"(?P<provider>[A-Za-z]{2,40}ExecutionProvider)"
_FORMS: tuple[tuple[FallbackReason, str, re.Pattern[str]], ...] = tuple(
    (reason, framework, re.compile(pattern, re.IGNORECASE))
    for reason, framework, pattern in (
        (FallbackReason.PROVIDER_NOT_CREATED, "onnxruntime", rf"Failed to create {_PROVIDER}"),
        (
            FallbackReason.PROVIDER_NOT_AVAILABLE,
            "onnxruntime",
            rf"Specified provider '{_PROVIDER}' is not in available provider names",
        ),
        (
            FallbackReason.LIBRARY_NOT_LOADED,
            "onnxruntime",
            r"(?:Failed to load library|failed with error \d{1,5} .{0,20}when trying to load) .{0,200}"
            r"onnxruntime_providers_(?:cuda|tensorrt|rocm|migraphx)",
        ),
        (FallbackReason.FELL_BACK, "onnxruntime", r"Falling back to \['CPUExecutionProvider'\]"),
        (FallbackReason.CUDA_NOT_INITIALISED, "pytorch", r"UserWarning: CUDA initialization: "),
        (
            FallbackReason.NO_GPU,
            "pytorch",
            r"User provided device_type of 'cuda', but CUDA is not available"
            r"|(?:CUDA|GPU) (?:nor MPS are|is not|not) (?:available|found|detected).{0,60}"
            r"(?:default|fall|us|runn)ing (?:back )?(?:to |on )?(?:the )?CPU|FP16 is not supported on CPU; using FP32",
        ),
        (
            FallbackReason.LIBRARY_NOT_LOADED,
            "tensorflow",
            r"Cannot dlopen some GPU libraries",  # it has found a GPU by then
        ),
        (
            FallbackReason.NO_GPU,
            "tensorflow",
            r"Could not find cuda drivers on your machine, GPU will not be used"
            r"|Could not load dynamic library 'lib(?:cu|nv)",
        ),
        (FallbackReason.FELL_BACK, "paddle", r"CUDA device is not set properly\. ?CPU device will be used"),
        (
            FallbackReason.NO_GPU,
            "jax",
            r"No GPU/TPU found, falling back to CPU|CUDA-enabled jaxlib is not installed\. Falling back to cpu",
        ),
        (
            FallbackReason.BUILT_WITHOUT_GPU,
            "",
            r"Torch not compiled with CUDA enabled|not compiled with GPU (?:offload )?support"
            r"|not built with CUDA backend; switching to CPU|is compiled with no CUDA",
        ),
        (
            FallbackReason.FELL_BACK,
            "",
            r"Could not find a compatible CUDA device|(?:falling back|fallback|switching|reverting) (?:to|on) (?:the )?"
            r"CPU\b|\bUsing CPU\. Note: This module is much faster with a GPU",
        ),
    )
)
_PLACED = re.compile(r"\b(?:Node\(s\)|All nodes) placed on \[(\w{3,60})\]\. Number of nodes: (\d{1,7})")
_MEMCPY = re.compile(r"\b(\d{1,7}) Memcpy nodes are added to the graph")


def find(line: LogLine) -> Iterator[Found]:
    """The fallback that a line reports, or where nodes of a graph are placed."""
    message = line.message
    if found := _PLACED.search(message):
        yield Found(CPU_NODES if found[1] == "CPUExecutionProvider" else GPU_NODES, value=float(found[2]))
    elif found := _MEMCPY.search(message):
        yield Found(MEMCPY_NODES, value=float(found[1]))
    for reason, framework, pattern in _FORMS:
        if reported := pattern.search(message):
            provider = reported.groupdict().get("provider", "")
            if provider == "CPUExecutionProvider":
                continue
            named = {"framework": framework, "provider": provider}
            yield Found(CPU_FALLBACK, {"kind": reason.value, **{key: name for key, name in named.items() if name}})
            return


KIND = LineKind(
    "cpu-fallback",
    (
        rb"ExecutionProvider|onnxruntime_providers|CUDA initialization|Memcpy nodes|compiled with no CUDA",
        rb"not compiled with|not built with CUDA",
        rb"(?i:(?:falling back|fallback|switching|reverting|defaulting|using) (?:to|on)? ?(?:the )?CPU)",
        rb"(?:CUDA is not|CUDA not|MPS are) available|Cannot dlopen|Could not load dynamic lib",
        rb"GPU will not be used|compatible CUDA device|much faster with a GPU|CPU device will be used",
        rb"(?i:(?:cuda|gpu) (?:is )?not (?:available|found|detected))|FP16 is not supported on CPU",
    ),
    lambda artifact: EventLines(artifact, find),
)
