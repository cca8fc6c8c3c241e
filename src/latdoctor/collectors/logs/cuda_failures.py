"""Failed calls of CUDA, HIP and their libraries in an application's words: line → code, name and consequence.

PyTorch, TensorRT, JAX, TensorFlow, llama.cpp and NCCL each word the same failure in their own way. HIP has CUDA's
errors under names of its own, which are kept; its code is that of CUDA.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from latdoctor.collectors.logs import error_code_tables


@dataclass(frozen=True, slots=True)
class FailedCall:
    """`code` is None where the line has only a name, as from the CUDA libraries.

    `sticky`: every later call of the process fails too. `driver`: driver and toolkit do not fit each other.
    """

    code: int | None
    name: str
    sticky: bool = False
    driver: bool = False


_TRIGGER = re.compile(
    r"\b(?:cuda|hip|rocm)[ _]?(?:(?:runtime|driver|api) )?(?:error|failure)\b|\bcuda runtime \("
    r"|\bTriton Error \[(?:CUDA|HIP)\]"
    # cudaMalloc failed: …; cudaGetDeviceCount returned 802 -> …; failed to initialize CUDA: …
    r"|\bcu(?:da)?[A-Z]\w{2,60}(?:\(\))? (?:failed|returned)\b|\bfailed (?:to initialize CUDA|call to cuInit)\b",
    re.I,
)
_NAME = re.compile(r"\b(cudaError[A-Z]\w{1,60}|CUDA_ERROR_[A-Z_]{2,60}|hipError[A-Z]\w{1,60})\b")
_NUMBER = re.compile(r"[\s:=#(]{0,4}(?:code[\s:=]{0,3}|with error )?(\d{1,4})\b")
# Unexpected error from cudaGetDeviceCount(). … Error 802: system not yet initialized
_NUMBERED = re.compile(r"\bError (\d{1,4}): (.{1,120})")
_CUDA = re.compile("cuda", re.I)
_STATUS = re.compile(r"\b((?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE|CUFFT|CURAND|ROCBLAS|MIOPEN)_STATUS_[A-Z_]{2,60})\b")
_LOWER_STATUS = re.compile(
    r"\b((?:miopenStatus|rocblas_status_|hipblas_status_|HIPBLAS_STATUS_)(?!Success|success)\w{2,60})\b"
)
_OUT_OF_MEMORY = re.compile(
    r"\b(?:CUDA|HIP|XPU|MPS backend) out of memory\b|\b(?:torch(?:\.cuda)?|cupy\.cuda\.memory)\.OutOfMemoryError\b"
    r"|\bRESOURCE_EXHAUSTED: .{0,200}?(?:out of memory|failed to allocate|ran out of)"
    r"|\bOOM when allocating tensor\b|\bran out of memory trying to allocate\b|\bError Code 2: OutOfMemory\b"
    r"|\bggml_vulkan: Device memory allocation of size \d+ failed"
    r"|\bOut of memory error on GPU \d|\bbfc_arena\b.{0,80}Failed to allocate memory for requested buffer"
    r"|\bfailed to allocate (?:CUDA|ROCm|HIP|Vulkan|Metal)\d* buffer of size\b"
    r"|\bCUDA failed with error out of memory\b",
    re.I,
)
# TensorFlow tries smaller pieces afterwards; a plan of cuDNN that fails is one of several.
_HARMLESS = re.compile(r"this is not a failure|Plan failed with")
_NO_GPU = re.compile(r"\bNo CUDA GPUs are available\b")
_ACCESS_FAULT = re.compile(r"\bMemory access fault by GPU\b|\bHSA_STATUS_ERROR_MEMORY_(?:APERTURE_VIOLATION|FAULT)\b")
_HSA = re.compile(r"\b(HSA_STATUS_ERROR(?:_[A-Z_]{2,60})?)\b")
# A build, a kernel or a number type that the GPU's compute capability does not have.
_UNFIT = re.compile(
    r"\bsm_\d{2,3}\w? is not compatible with the current PyTorch"
    r"|\bptxas fatal\s{1,4}: Value 'sm_\w{2,6}' is not defined for option 'gpu-name'"
    r"|\bnvcc fatal\s{1,4}: Unsupported gpu architecture 'compute_\w{2,6}'"
    r"|\bBfloat16 is only supported on GPUs with compute capability of at least"
    r"|\bRuntime compute cap \d{2,3} is not compatible with compile time compute cap"
    r"|\bFlash ?Attention only supports (?:Ampere|Turing|Hopper) GPUs or newer"
    r"|\bis not supported for the current GPU\. Min(?:imum)? capability: \d"
    r"|\bgenerated on an incompatible device, expecting compute \d"
    r"|\bTarget GPU SM \d{2,3} is not supported by this TensorRT release",
    re.I,
)
_UNFIT_HINTS = (
    rb"ptxas fatal|Unsupported gpu architecture|compute capability of at least|compile time compute cap"
    rb"|GPUs or newer|for the current GPU\.|incompatible device, expecting|by this TensorRT release"
)
# A line without any of these has no failure. On bytes, so that most lines are never decoded.
HINTS = (
    # Not "cuda graph", which is in every line of SGLang's statistics.
    rb"(?i:cuda(?:[^ \n]|$| (?:[^g\n]|g[^r\n]|gr[^a\n]))|outofmemory)|hipError|HIP (?:runtime )?error"
    rb"|HIP out of memory|_STATUS_|RESOURCE_EXHAUSTED"
    rb"|OOM when allocating|out of memory trying to allocate|failed call to cuInit|MPS backend out of memory"
    rb"|ROCm error|Memory access fault by GPU|HSA_STATUS_ERROR|Device memory allocation of size"
    rb"|Out of memory error on GPU|bfc_arena.{0,80}Failed to allocate|failed to allocate (?:ROCm|HIP|Vulkan|Metal)"
    + rb"|"
    + _UNFIT_HINTS
)
_NCCL = re.compile(r"\bunhandled cuda error\b", re.I)
_UNKNOWN_WORDS = re.compile(r": (?!no error|success|none)[A-Za-z]", re.I)
# PyTorch repeats the error's name in a separate line that refers to the documentation.
_DOCUMENTATION = re.compile(r"Search for [`'\"]?(?:cudaError|hipError)")
# The result "not yet" of a query.
_NO_ERRORS = frozenset({"cudaErrorNotReady", "CUDA_ERROR_NOT_READY", "hipErrorNotReady"})
_SUCCESSES = frozenset({"SUCCESS"})
# What HIP names otherwise than CUDA.
_HIP_CODES = {
    "hipErrorOutOfMemory": 2, "hipErrorNotInitialized": 3, "hipErrorInvalidImage": 200, "hipErrorInvalidContext": 201,
    "hipErrorNoBinaryForGpu": 209, "hipErrorECCNotCorrectable": 214, "hipErrorIllegalAddress": 700,
    "hipErrorLaunchOutOfResources": 701, "hipErrorLaunchTimeOut": 702, "hipErrorLaunchFailure": 719,
}  # fmt: skip


def failure_in(message: str) -> FailedCall | None:
    """The failed call that `message` reports, by name, then text, then number; None for most lines."""
    if _DOCUMENTATION.search(message) or _HARMLESS.search(message):
        return None
    if named := _NAME.search(message):
        return _named(named[1])
    if _OUT_OF_MEMORY.search(message):
        return _of_row(2)
    for pattern, code in ((_UNFIT, 209), (_NO_GPU, 100), (_ACCESS_FAULT, 700)):
        if pattern.search(message):
            return _of_row(code)
    if hsa := _HSA.search(message):
        return FailedCall(None, hsa[1])
    return _triggered(message) or _numbered(message) or _of_library(message)


def _named(name: str) -> FailedCall | None:
    if name in _NO_ERRORS:
        return None
    row = error_code_tables.by_name(name)
    if row is None and name.startswith("hip"):
        row = error_code_tables.by_name(f"cuda{name.removeprefix('hip')}")
        row = row or error_code_tables.cuda_codes().get(_HIP_CODES.get(name, -1))
        return FailedCall(row.code, name, row.sticky) if row else FailedCall(None, name)
    return FailedCall(None, name) if row is None else FailedCall(row.code, row.name, row.sticky, row.driver)


def _of_row(code: int) -> FailedCall:
    row = error_code_tables.cuda_codes()[code]
    return FailedCall(row.code, row.name, row.sticky, row.driver)


def _triggered(message: str) -> FailedCall | None:
    trigger = _TRIGGER.search(message)
    if not trigger:
        return None
    rest = message[trigger.end() :][:300]
    # `returned 2` may be a count of devices: such a number counts only with the text of its error.
    number = None if trigger[0].endswith("returned") else _NUMBER.match(rest)
    row = error_code_tables.by_text(rest) or (error_code_tables.cuda_codes().get(int(number[1])) if number else None)
    if row is not None:
        return FailedCall(row.code, row.name, row.sticky, row.driver)
    if library := _of_library(rest):
        return library
    if _NCCL.search(message):
        return FailedCall(None, "ncclUnhandledCudaError")
    return FailedCall(None, "unrecognised") if _UNKNOWN_WORDS.match(rest) else None


def _numbered(message: str) -> FailedCall | None:
    """The number and the text of one row together: other software numbers its errors too."""
    found = _NUMBERED.search(message) if _CUDA.search(message) else None
    row = error_code_tables.by_text(found[2]) if found else None
    return _of_row(row.code) if found and row and row.code == int(found[1]) else None


def _of_library(text: str) -> FailedCall | None:
    found = _STATUS.search(text) or _LOWER_STATUS.search(text)
    if found is None or found[1].rpartition("_STATUS_")[2] in _SUCCESSES:
        return None
    return FailedCall(None, found[1])
