"""What one line says: each form of each fact, and the lines that must say nothing."""

from __future__ import annotations

import pytest

from latdoctor.collectors.logs.line_prefix import APPLICATION, KERNEL, LogLine, parse
from latdoctor.collectors.logs.oom_kills import OomKill, OomScope
from latdoctor.collectors.logs.patterns import (
    FACT_HINTS,
    CudaError,
    DriverMismatch,
    GpuLost,
    GpuNamed,
    LogFact,
    LoggedChange,
    ProcessStarted,
    SXid,
    Xid,
    parse_facts,
)
from latdoctor.evidence.subject_branch import normalise_pci

KERNEL_LINES: list[tuple[str, tuple[LogFact, ...]]] = [
    (
        "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s",
        (Xid(119, "0000:9b:00", "2024380", "nvidia-smi", "pid=2024380, name=nvidia-smi, Timeout after 6s"),),
    ),
    (
        "NVRM: Xid (PCI:0000:9B:00): 31, pid='<unknown>', name=<unknown>, Ch 00000008, intr 00000000. MMU Fault",
        (Xid(31, "0000:9b:00", "", "", "pid='<unknown>', name=<unknown>, Ch 00000008, intr 00000000. MMU Fault"),),
    ),
    (
        "NVRM: Xid (PCI:0018:01:00): 145, RLW_REMAP Nonfatal XC0 i0 Link -1 (0x00000000 0x1)",
        (Xid(145, "0018:01:00", "", "", "RLW_REMAP Nonfatal XC0 i0 Link -1 (0x00000000 0x1)"),),
    ),
    ("NVRM: Xid (PCI:0000:41:00 GPU-I:01): 94, Contained", (Xid(94, "0000:41:00", "", "", "Contained"),)),
    ("NVRM: Xid (0000:03:00): 43, Ch 10", (Xid(43, "0000:03:00", "", "", "Ch 10"),)),
    (
        "NVRM: Xid (PCI:0000:c1:00): 79, pid=1, name=x, GPU has fallen off the bus.",
        (
            Xid(79, "0000:c1:00", "1", "x", "pid=1, name=x, GPU has fallen off the bus."),
            GpuLost("0000:c1:00"),
        ),
    ),
    ("NVRM: GPU 0000:c1:00.0: GPU has fallen off the bus.", (GpuLost("0000:c1:00"),)),
    ("NVRM: GPU at 0000:01:00.0 has fallen off the bus.", (GpuLost("0000:01:00"),)),
    ("NVRM: The NVIDIA GPU 0000:b3:00.0", (GpuNamed("0000:b3:00"),)),
    ("NVRM: fallen off the bus and is not responding to commands.", (GpuLost(""),)),
    (
        "NVRM: The NVIDIA GPU 0000:b3:00.0#012 NVRM: (PCI ID: 10de:26b5) installed in this system has#012"
        " NVRM: fallen off the bus and is not responding to commands.",
        (GpuLost("0000:b3:00"),),
    ),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress",
        (SXid(12028, "0000:05:00", "nvidia-nvswitch3", "non-fatal"),),
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:59:00.0): 23001, Fatal, Link 12",
        (SXid(23001, "0000:59:00", "nvidia-nvswitch0", "fatal"),),
    ),
    ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Severity 1 Engine instance 32", ()),
    ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Data {0x00000000}", ()),
    ("NVRM: API mismatch: the client has the version 545.29.06, but", (DriverMismatch("545.29.06"),)),
    (
        "NVRM: API mismatch: the client has the version 295.40, but this kernel module has the version 304.43.  Please",
        (DriverMismatch("295.40", "304.43"),),
    ),
    ("Out of memory: Killed process 4242 (python3) total-vm:1kB, anon-rss:1kB", (OomKill("4242", "python3"),)),
    (
        "Memory cgroup out of memory: Killed process 7 (triton) total-vm:1kB",
        (OomKill("7", "triton", OomScope.CONTAINER),),
    ),
    ("Out of memory: Kill process 7 (java) score 900 or sacrifice child", (OomKill("7", "java"),)),
    # Lines that must say nothing.
    ("oom_reaper: reaped process 7 (java), now anon-rss:0kB", ()),
    ("NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d", ()),
    ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.158.01", ()),
    ("NVRM: Xid (PCI:0000:9b:00): garbled", ()),
    ("monitor: saw NVRM: Xid (PCI:0000:9b:00): 79, quoted by someone", ()),
    ("CUDA error: an illegal memory access was encountered", ()),
]

APPLICATION_LINES: list[tuple[str, tuple[LogFact, ...]]] = [
    (
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        (CudaError(700, "cudaErrorIllegalAddress", True, ""),),
    ),
    (
        "torch.AcceleratorError: CUDA error: device-side assert triggered",
        (CudaError(710, "cudaErrorAssert", True, ""),),
    ),
    ("RuntimeError: cudaErrorInvalidValue: invalid argument", (CudaError(1, "cudaErrorInvalidValue", False, ""),)),
    ("CUDA error 700 at model.cu:12", (CudaError(700, "cudaErrorIllegalAddress", True, ""),)),
    ("CUDA failure 719: unspecified launch failure ; GPU=0", (CudaError(719, "cudaErrorLaunchFailure", True, ""),)),
    # Before CUDA 10.1 the numbers were others: the text decides.
    (
        "cuda runtime error (59) : device-side assert triggered at x.cu:3",
        (CudaError(710, "cudaErrorAssert", True, ""),),
    ),
    ("[E] Error Code 1: Cuda Runtime (invalid argument)", (CudaError(1, "cudaErrorInvalidValue", False, ""),)),
    ("cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY", (CudaError(2, "cudaErrorMemoryAllocation", False, ""),)),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        (CudaError(2, "cudaErrorMemoryAllocation", False, ""),),
    ),
    ("RuntimeError: CUDA out of memory. Tried", (CudaError(2, "cudaErrorMemoryAllocation", False, ""),)),
    (
        "(EngineCore_DP0 pid=812) ERROR CUDA error: misaligned address",
        (CudaError(716, "cudaErrorMisalignedAddress", True, "812"),),
    ),
    ("[rank3]: CUDA error: unknown error", (CudaError(999, "cudaErrorUnknown", False, "rank3"),)),
    (
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        (CudaError(None, "CUBLAS_STATUS_ALLOC_FAILED", False, ""),),
    ),
    ("CUDA error: something that nobody catalogued", (CudaError(None, "unrecognised", False, ""),)),
    ("cudaErrorBrandNew was returned", (CudaError(None, "cudaErrorBrandNew", False, ""),)),
    (
        "CUDA error: operation not permitted when stream is capturing",
        (CudaError(900, "cudaErrorStreamCaptureUnsupported", False, ""),),
    ),
    (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). x? Error 802: system not yet initialized",
        (CudaError(802, "cudaErrorSystemNotReady", False, ""),),
    ),
    (
        "Unexpected error from cudaGetDeviceCount(). Error 101: invalid device ordinal",
        (CudaError(101, "cudaErrorInvalidDevice", False, ""),),
    ),
    (
        "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 304: OS call failed or "
        "operation not supported on this OS (Triggered internally at CUDAFunctions.cpp:109.)",
        (CudaError(304, "cudaErrorOperatingSystem", False, ""),),
    ),
    (
        "UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 804: forward "
        "compatibility was attempted on non supported HW",
        (DriverMismatch(),),
    ),
    (
        "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected",
        (CudaError(100, "cudaErrorNoDevice", False, ""),),
    ),
    (
        "cudaGetDeviceCount returned 802 -> system not yet initialized",
        (CudaError(802, "cudaErrorSystemNotReady", False, ""),),
    ),
    (
        'CUDA error at simple.cu:9 code=802(cudaErrorSystemNotReady) "cudaSetDevice(d)"',
        (CudaError(802, "cudaErrorSystemNotReady", False, ""),),
    ),
    ("cudaMalloc failed: out of memory", (CudaError(2, "cudaErrorMemoryAllocation", False, ""),)),
    (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 7.00 MiB on device 0: cudaMalloc failed: out of memory",
        (CudaError(2, "cudaErrorMemoryAllocation", False, ""),),
    ),
    ("CUDA error 2 at ggml-cuda.cu:7: out of memory", (CudaError(2, "cudaErrorMemoryAllocation", False, ""),)),
    (
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 77 bytes.",
        (CudaError(2, "cudaErrorMemoryAllocation", False, ""),),
    ),
    (
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm.",
        (CudaError(2, "cudaErrorMemoryAllocation", False, ""),),
    ),
    (
        "RESOURCE_EXHAUSTED: Failed to allocate request for 2.00GiB (2147483648B) on device ordinal 0",
        (CudaError(2, "cudaErrorMemoryAllocation", False, ""),),
    ),
    (
        "OOM when allocating tensor with shape[64,512] and type float on GPU:0 by allocator GPU_0_bfc",
        (CudaError(2, "cudaErrorMemoryAllocation", False, ""),),
    ),
    (
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 4.00GiB requested by op Conv2D",
        (CudaError(2, "cudaErrorMemoryAllocation", False, ""),),
    ),
    (
        "CUDNN failure 4: CUDNN_STATUS_INTERNAL_ERROR ; GPU=0",
        (CudaError(None, "CUDNN_STATUS_INTERNAL_ERROR", False, ""),),
    ),
    (
        "could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED",
        (CudaError(None, "CUDNN_STATUS_ALLOC_FAILED", False, ""),),
    ),
    (
        "failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED",
        (CudaError(None, "CUBLAS_STATUS_EXECUTION_FAILED", False, ""),),
    ),
    ("NCCL error in: a.cpp:1, unhandled cuda error", (CudaError(None, "ncclUnhandledCudaError", False, ""),)),
    ("RuntimeError: HIP error: invalid device function", (CudaError(98, "cudaErrorInvalidDeviceFunction", False, ""),)),
    (
        "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!",
        (CudaError(209, "hipErrorNoBinaryForGpu", False, ""),),
    ),
    ("HIP out of memory. Tried to allocate 1 GiB", (CudaError(2, "cudaErrorMemoryAllocation", False, ""),)),
    ("hipMemcpy: hipErrorIllegalAddress", (CudaError(700, "hipErrorIllegalAddress", True, ""),)),
    (
        "GeForce with CUDA capability sm_120 is not compatible with the current PyTorch installation.",
        (CudaError(209, "cudaErrorNoKernelImageForDevice", False, ""),),
    ),
    ("ROCm error: out of memory", (CudaError(2, "cudaErrorMemoryAllocation", False, ""),)),
    ("Triton Error [CUDA]: device-side assert triggered", (CudaError(710, "cudaErrorAssert", True, ""),)),
    ("RuntimeError: No CUDA GPUs are available", (CudaError(100, "cudaErrorNoDevice", False, ""),)),
    (
        "Memory access fault by GPU node-1 (Agent handle: 0x1) on address 0x7f. Reason: Unknown.",
        (CudaError(700, "cudaErrorIllegalAddress", True, ""),),
    ),
    (
        "aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed",
        (CudaError(None, "HSA_STATUS_ERROR_OUT_OF_RESOURCES", False, ""),),
    ),
    ("failed call to cuInit: CUDA_ERROR_NO_DEVICE: x", (CudaError(100, "cudaErrorNoDevice", False, ""),)),
    ("Failed to initialize NVML: Driver/library version mismatch", (DriverMismatch(),)),
    ("CUDA driver version is insufficient for CUDA runtime version", (DriverMismatch(),)),
    ("RuntimeError: CUDA error: forward compatibility was attempted on non supported HW", (DriverMismatch(),)),
    ("Error 803: system has unsupported display driver / cuda driver combination", (DriverMismatch(),)),
    ("The NVIDIA driver on your system is too old (found version 11040).", (DriverMismatch(),)),
    ("cudaErrorInsufficientDriver", (DriverMismatch(),)),
    ("INFO:     Started server process [42]", (ProcessStarted(), LoggedChange("change.process_start"))),
    # Lines that must say nothing.
    ("CUDA error: no error", ()),
    ("Plan failed with an exception: CUDNN_STATUS_NOT_SUPPORTED", ()),
    ("cudnnCreate: CUDNN_STATUS_SUCCESS", ()),
    ("cudaGetDeviceCount returned 2", ()),
    ("RESOURCE_EXHAUSTED: grpc: received message larger than max (9 vs. 4)", ()),
    ("HTTP Error 101: invalid device ordinal number in the request", ()),
    (
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 4GiB. The caller states this is not a failure",
        (),
    ),
    (
        "Unable to allocate pinned system memory, pinned memory pool will not be available: "
        "CUDA driver version is insufficient for CUDA runtime version",
        (),
    ),
    ("0 CUDA errors", ()),
    ("CUDA error checking is enabled", ()),
    ("query answered cudaErrorNotReady", ()),
    ("Search for `cudaErrorIllegalAddress' in https://docs.nvidia.com/ for more information.", ()),
    ("For debugging consider passing CUDA_LAUNCH_BLOCKING=1", ()),
    ("using CUDA 12.4, cuda graphs enabled", ()),
    ("user asked: what is an Xid? NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus", ()),
    ("Out of memory: Killed process 4242 (python3)", ()),
]


@pytest.mark.parametrize(("message", "expected"), KERNEL_LINES)
def test_kernel_line(message: str, expected: tuple[LogFact, ...]) -> None:
    assert parse_facts(LogLine(message, KERNEL)) == expected
    assert not expected or FACT_HINTS.search(message.encode())


@pytest.mark.parametrize(("message", "expected"), APPLICATION_LINES)
def test_application_line(message: str, expected: tuple[LogFact, ...]) -> None:
    assert parse_facts(LogLine(message, APPLICATION)) == expected
    assert not expected or FACT_HINTS.search(message.encode())


def test_the_writers_pid_is_the_processs() -> None:
    line = parse("Feb 23 16:24:18 h vllm[123]: CUDA error: unknown error", 1.7e9)
    assert parse_facts(line) == (CudaError(999, "cudaErrorUnknown", False, "123"),)


def test_a_bare_driver_line_counts_as_the_kernels() -> None:
    line = parse("               NVRM: fallen off the bus and is not responding to commands.", 1.7e9)
    assert parse_facts(line) == (GpuLost(""),)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("0000:9b:00", "0000:9b:00"),
        ("0000:9B:00.0", "0000:9b:00"),
        ("00000000:9B:00.0", "0000:9b:00"),
        ("PCI:0000:9b:00", "0000:9b:00"),
        ("00010000:9B:00.0", "10000:9b:00"),
        ("9b:00", "0000:9b:00"),
        ("0003:00", "0003:00:00"),
    ],
)
def test_pci_addresses_are_brought_to_one_form(text: str, normal: str) -> None:
    assert normalise_pci(text) == normal


def test_what_is_no_pci_address_is_refused() -> None:
    with pytest.raises(ValueError, match="not a PCI address"):
        normalise_pci("gpu0")
