"""Meaning of the names in a trace: event categories, CUDA and HIP calls, kernels, copies, return codes."""

from __future__ import annotations

import re
from enum import StrEnum

# Event categories of Kineto, old and new, in lower case.
OPERATORS = frozenset({"cpu_op", "operator"})
KERNELS = frozenset({"kernel"})
COPIES = frozenset({"gpu_memcpy", "memcpy"})
FILLS = frozenset({"gpu_memset", "memset"})
CALLS = frozenset({"cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime", "hip_driver"})
RANGES = frozenset({"cuda_profiler_range"})
# The profiler's own span, as long as the recording.
ENVELOPES = frozenset({"trace"})
# Host annotations repeated on the GPU's lanes; not GPU work.
ECHOES = frozenset({"gpu_user_annotation"})


class CallKind(StrEnum):
    """What a call of the CUDA or HIP API does."""

    LAUNCH = "launch"
    ALLOCATE = "allocate"
    FREE = "free"
    SYNCHRONISE = "synchronise"  # blocks the host
    COPY = "copy"
    LOAD = "load"  # of compiled code
    OTHER = "other"


class HostMark(StrEnum):
    """What the name of an event on the host marks."""

    NONE = ""
    STEP = "step"
    COMPILE = "compile"
    LAYER = "layer"


class CopyDirection(StrEnum):
    """Direction of a copy, as Kineto abbreviates it."""

    HOST_TO_DEVICE = "HtoD"
    DEVICE_TO_HOST = "DtoH"
    WITHIN_DEVICE = "DtoD"
    BETWEEN_DEVICES = "PtoP"
    OTHER = "other"


class HostMemory(StrEnum):
    """Kind of host memory that a copy reads or writes."""

    UNKNOWN = ""
    PAGEABLE = "pageable"
    PINNED = "pinned"


_STEP_PREFIX, LAYER_PREFIX = "ProfilerStep#", "nn.Module: "
# torch.compile and Triton compiling, as record_function marks, operators and Python frames name it. Compilations are
# nested, so only the time that they cover is meaningful.
_COMPILES = re.compile(
    r"_compile\.compile_inner|entire_frame_compile|\bcompile_inner\b|\(dynamo_timed\)"
    r"|_inductor/compile_fx\.py\(\d+\): (?:compile_fx|compile_fx_inner)$|triton/compiler/compiler\.py\(\d+\): compile$"
)

_API = r"(?:cuda|cu(?!da)|hip)"
# Driver calls count like runtime calls: compiled kernels are launched by cuLaunchKernel, and expandable segments are
# allocated by cuMemCreate and cuMemMap. Pinned host memory is not device memory.
_KINDS = (
    (CallKind.LAUNCH, re.compile(rf"{_API}(?!LaunchHostFunc)\w*Launch")),
    (
        CallKind.ALLOCATE,
        re.compile(
            rf"{_API}(?:Malloc(?!Host|MipmappedArray)|MemAlloc(?!Host)|MemCreate|MemMap(?!Array))|hipExtMallocWithFlags"
        ),
    ),
    (CallKind.FREE, re.compile(rf"{_API}(?:Free(?!Host|MipmappedArray)|MemFree(?!Host)|MemRelease|MemUnmap)")),
    (CallKind.SYNCHRONISE, re.compile(rf"{_API}\w*Synchronize")),
    (CallKind.LOAD, re.compile(rf"(?:{_API}(?:Module|Library)(?:Load|Compile)|nvrtcCompile|hiprtcCompile)")),
    (CallKind.COPY, re.compile(rf"{_API}(?:Graph)?Mem(?:cpy|set|Prefetch)")),
)

_DIRECTIONS = (
    (CopyDirection.HOST_TO_DEVICE, re.compile(r"HtoD|HostToDevice", re.IGNORECASE)),
    (CopyDirection.DEVICE_TO_HOST, re.compile(r"DtoH|DeviceToHost", re.IGNORECASE)),
    (CopyDirection.BETWEEN_DEVICES, re.compile(r"PtoP|PeerToPeer", re.IGNORECASE)),
    (CopyDirection.WITHIN_DEVICE, re.compile(r"DtoD|DeviceToDevice", re.IGNORECASE)),
)
_MEMORY_KINDS = re.compile(r"\(\w+ -> \w+\)")
_SUCCESS = frozenset({"0", "cudaSuccess", "CUDA_SUCCESS", "cudaErrorNotReady", "CUDA_ERROR_NOT_READY", ""})
_NOT_READY = 600  # cudaErrorNotReady: a query reports "still running", which is no failure


class KernelKind(StrEnum):
    """What a kernel computes, by its name."""

    COMMUNICATION = "communication"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    MATRIX_PRODUCT = "matrix product"
    NORMALISATION = "normalisation"
    REDUCTION = "reduction"
    ELEMENTWISE = "elementwise"
    OTHER = "other"


# The first pattern that matches decides. Names of cuBLAS, cuDNN, CUTLASS, NCCL, PyTorch and Triton.
_KERNELS = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (KernelKind.COMMUNICATION, r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter"),
        (KernelKind.ATTENTION, r"flash|fmha|attention|attn|softmax"),
        (KernelKind.CONVOLUTION, r"conv|winograd|implicit_gemm|wgrad|dgrad"),
        (KernelKind.MATRIX_PRODUCT, r"gemm|gemv|cutlass|cublas|splitk|_mm_|matmul|mul_mat|tensile|Cijk"),
        (KernelKind.NORMALISATION, r"norm"),
        (KernelKind.REDUCTION, r"reduce|_red_|cumsum|scan|sort|topk"),
        (KernelKind.ELEMENTWISE, r"elementwise|_poi_|vectorized|copy_|fill|cat|index|gather|scatter|dropout"),
    )
)


def kind_of_call(name: str) -> CallKind:
    """Return the kind of a call of the CUDA or HIP API."""
    return next((kind for kind, pattern in _KINDS if pattern.match(name)), CallKind.OTHER)


def kind_of_kernel(name: str) -> KernelKind:
    """Return what a kernel computes, by its name."""
    return next((kind for kind, pattern in _KERNELS if pattern.search(name)), KernelKind.OTHER)


def mark_of(name: str) -> HostMark:
    """Return what the name of a host event marks."""
    if name.startswith(_STEP_PREFIX):
        return HostMark.STEP
    if name.startswith(LAYER_PREFIX):
        return HostMark.LAYER
    return HostMark.COMPILE if _COMPILES.search(name[:400]) else HostMark.NONE


def direction_of_copy(name: str) -> CopyDirection:
    """Return the direction of a copy, by its name."""
    return next((way for way, pattern in _DIRECTIONS if pattern.search(name)), CopyDirection.OTHER)


def host_memory_of_copy(name: str) -> HostMemory:
    """Return the kind of host memory that a name such as `Memcpy HtoD (Pageable -> Device)` states."""
    kinds = _MEMORY_KINDS.search(name)
    if kinds is None or re.search(r"\bHost\b", kinds[0]):  # ROCm does not tell how the host's memory was allocated
        return HostMemory.UNKNOWN
    return HostMemory.PAGEABLE if "Pageable" in name else HostMemory.PINNED


def is_failure(result: int | str) -> bool:
    """Return whether a return code of the API means failure."""
    return result not in _SUCCESS if isinstance(result, str) else result not in {0, _NOT_READY}
