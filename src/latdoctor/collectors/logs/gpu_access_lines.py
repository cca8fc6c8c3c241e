"""Lines in which nvidia-smi, NVML, the kernel module, the container runtime or the device plugin reports that it cannot
reach a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from latdoctor.collectors.logs import GPU_LOST, XID
from latdoctor.collectors.logs.error_code_tables import lookup_xid
from latdoctor.collectors.logs.line_events import EventLines, Found
from latdoctor.collectors.logs.line_kind import LineKind
from latdoctor.collectors.logs.line_prefix import LogLine
from latdoctor.evidence.gpu_access import ACCESS_ERROR, AccessFailure
from latdoctor.evidence.model import Value
from latdoctor.evidence.subject_branch import pci_of

UNLICENSED = "gpu.vgpu_unlicensed"

_F = AccessFailure
# What NVML says, as nvidia-smi, its bindings and its callers word it.
_NVML_WORDS: tuple[tuple[re.Pattern[str], AccessFailure], ...] = (
    (re.compile(r"GPU is lost|GPU_?IS_?LOST", re.I), _F.GPU_LOST),
    (re.compile(r"requires (?:reset|restart)|RESET_?REQUIRED", re.I), _F.RESET_REQUIRED),
    (re.compile(r"driver not loaded|DRIVER_?NOT_?LOADED|driver is not loaded", re.I), _F.DRIVER_NOT_LOADED),
    (re.compile(r"insufficient permissions|NO_?PERMISSION|blocked by the operating system", re.I), _F.NO_PERMISSION),
    (re.compile(r"librar\w+ not found|LIBRARY_?NOT_?FOUND|cannot open shared object|libnvidia-ml", re.I),
     _F.LIBRARY_NOT_FOUND),
    (re.compile(r"NVMLError_NotFound|NVML_ERROR_NOT_FOUND"), _F.DEVICE_HANDLE),
    (re.compile(r"unknown error|ERROR_?UNKNOWN|NVMLError_Unknown\b", re.I), _F.NVML_UNKNOWN),
)  # fmt: skip
_NVML = re.compile(
    r"[Ff]ailed to initialize NVML|could not load NVML library|NVMLError_[A-Z]\w+|\bNVML_ERROR_[A-Z_]+"
    r"|\bnvml error: |[Ee]rror initializing NVML|nvmlInit(?:_v2|WithFlags)?\b.{0,40}(?:fail|error)|\bERROR_GPU_IS_LOST"
)
# Of these NVML calls the result is no failure of a GPU.
_HARMLESS = re.compile(
    r"NVMLError_(?:NotSupported|FunctionNotFound|InvalidArgument|Uninitialized|AlreadyInitialized|InsufficientSize)"
    r"|NVML_ERROR_(?:NOT_SUPPORTED|FUNCTION_NOT_FOUND|INVALID_ARGUMENT|UNINITIALIZED|INSUFFICIENT_SIZE)"
)
_MISMATCH = re.compile(r"version mismatch|VersionMismatch|VERSION_MISMATCH", re.I)
_BUS = r"((?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f])?)"
_HANDLE = re.compile(
    rf"Unable to (?:determine|detect) the device handle for [Gg][Pp][Uu] ?(?:\d{{1,3}}: )?{_BUS}:?\s*(.*)"
)
_SMI: tuple[tuple[re.Pattern[str], AccessFailure], ...] = (
    (re.compile(r"NVIDIA-SMI has failed because it couldn't communicate"), _F.DRIVER_NOT_LOADED),
    (re.compile(r"NVIDIA-SMI couldn't find \S+ library"), _F.LIBRARY_NOT_FOUND),
    (re.compile(r"Unable to communicate with (?:the )?GPU"), _F.DEVICE_HANDLE),
    (re.compile(r"^\W{0,3}No devices were found\W{0,3}$"), _F.NO_DEVICES),
)
_KERNEL: tuple[tuple[re.Pattern[str], AccessFailure], ...] = (
    # Before INIT_FAILED: the initialisation fails because of the firmware.
    (re.compile(r"NVRM: .{0,120}(?:GSP RM heartbeat timed out|GSP-CrashCat|PMU has halted|GSP firmware RM"
                r"|RPC status|[Ff]ailed to (?:boot|load) GSP|gsp(?:Boot|Init)\w{0,40}: .{0,80}(?:fail|cannot|timed out)"
                r"|rpc\w{1,40} failed|GSP task (?:watchdog|exception)|cannot proceed with booting GSP)"), _F.FIRMWARE),
    (re.compile(r"NVRM: .{0,80}(?:RmInitAdapter failed|rm_init_adapter failed)"), _F.INIT_FAILED),
    (re.compile(r"NVRM: .{0,80}(?:probe routine (?:failed|was not called) for|None of the NVIDIA devices were"
                r" (?:probed|initiali[sz]ed)|not supported by (?:open )?nvidia\.ko|requires use of the NVIDIA open)"),
     _F.INIT_FAILED),
    (re.compile(r"NVRM: No NVIDIA (?:GPU|devices) (?:found|probed)"), _F.NO_DEVICES),
    (re.compile(r"\bnvidia: probe of \S{4,16} failed with error|^nvidia \S{4,16}: probe with driver nvidia failed"),
     _F.INIT_FAILED),
)  # fmt: skip
_KERNEL_CODE = re.compile(r"\((0x[0-9a-fA-F]{1,8}:0x[0-9a-fA-F]{1,8}:(?:0x)?[0-9a-fA-F]{1,8})\)")
_KERNEL_BUS = re.compile(rf"GPU[ -]{_BUS}")
_NOT_READY = re.compile(r"system not yet initialized|cudaErrorSystemNotReady|CUDA_ERROR_SYSTEM_NOT_READY")
_CONTAINER = re.compile(
    r"nvidia-container-cli: (\w[\w ]{0,40} error: .{0,160})|(could not select device driver \S{0,12} with"
    r" capabilities: \[\[.{0,20}gpu)|(unresolvable CDI devices \S{0,80})"
)
_PLUGIN: tuple[tuple[re.Pattern[str], AccessFailure], ...] = (
    (re.compile(r"Detected non-NVML platform|Incompatible (?:platform|strategy) detected"), _F.LIBRARY_NOT_FOUND),
    (
        re.compile(r"No devices found\. Waiting indefinitely|did you configure the NVIDIA Container Toolkit"),
        _F.PLUGIN_EMPTY,
    ),
    (re.compile(r"\bNo (?:NVIDIA )?GPUs? (?:devices? )?(?:was |were )?found\b"), _F.NO_DEVICES),
)
_PLUGIN_XID = re.compile(r"XidCriticalError: Xid=(\d{1,4}) on Device=(GPU-[0-9a-f-]{36}|MIG-\S{4,60}|\S{1,60}?)[,;]")
_UNHEALTHY = re.compile(r"(?:device marked unhealthy: |[Mm]arking (?:device )?)(GPU-[0-9a-f-]{36})")
_LICENSE = re.compile(r"license state: (Unlicensed[^\r\n]{0,40})|\b(unlicensed)\b.{0,60}(?:vGPU|license)|"
                      r"(Failed to (?:acquire|renew|borrow)[^\r\n]{0,20} license[^\r\n]{0,60})", re.I)  # fmt: skip
_GRID = re.compile(r"gridd|vgpu|vGPU|NLS|vmiop", re.I)


def find(line: LogLine) -> Iterator[Found]:
    """What `line` reports of GPUs that cannot be reached; nothing for most lines."""
    message = line.message
    if handle := _HANDLE.search(message):
        yield from _failure(_kind_of_handle(handle[2]), pci_of(handle[1]), reason=handle[2])
    elif "NVRM:" in message or message.startswith("nvidia"):
        yield from _kernel(message)
    if xid := _PLUGIN_XID.search(message):
        yield from _plugin_xid(int(xid[1]), xid[2])
    elif unhealthy := _UNHEALTHY.search(message):
        yield from _failure(_F.DEVICE_PLUGIN, unhealthy[1])
    if _NVML.search(message) and not _HARMLESS.search(message) and not _MISMATCH.search(message):
        yield from _failure(_nvml_kind(message), "")
    elif container := _CONTAINER.search(message):
        yield from _failure(_F.CONTAINER_RUNTIME, "", reason=next(filter(None, container.groups())))
    else:
        yield from _one_of((*_SMI, *_PLUGIN), message)
    if _NOT_READY.search(message):
        yield Found(ACCESS_ERROR, {"kind": _F.NOT_READY})
    if (licence := _LICENSE.search(message)) and _GRID.search(f"{line.process} {message}"):
        yield Found(UNLICENSED, {"state": next(filter(None, licence.groups())).strip()})


def _one_of(table: tuple[tuple[re.Pattern[str], AccessFailure], ...], message: str) -> Iterator[Found]:
    kind = next((kind for pattern, kind in table if pattern.search(message)), None)
    if kind is not None:
        yield Found(ACCESS_ERROR, {"kind": kind})


def _nvml_kind(message: str) -> AccessFailure:
    return next((kind for pattern, kind in _NVML_WORDS if pattern.search(message)), _F.NVML_FAILED)


def _kind_of_handle(reason: str) -> AccessFailure:
    kinds = (kind for pattern, kind in _NVML_WORDS[:2] if pattern.search(reason))
    return next(kinds, _F.DEVICE_HANDLE)


def _failure(kind: AccessFailure, gpu: str, reason: str = "") -> Iterator[Found]:
    fields: dict[str, Value] = {"kind": kind}
    if reason.strip():
        fields["reason"] = reason.strip()
    yield Found(ACCESS_ERROR, fields, gpu)
    if kind is _F.GPU_LOST:
        yield Found(GPU_LOST, {"pci": gpu} if pci_of(gpu) else {}, gpu)


def _kernel(message: str) -> Iterator[Found]:
    kind = next((kind for pattern, kind in _KERNEL if pattern.search(message)), None)
    if kind is None:
        return
    code, bus = _KERNEL_CODE.search(message), _KERNEL_BUS.search(message)
    fields: dict[str, Value] = {"kind": kind} | ({"code": code[1]} if code else {})
    yield Found(ACCESS_ERROR, fields, pci_of(bus[1]) if bus else "")


def _plugin_xid(code: int, device: str) -> Iterator[Found]:
    """The device plugin names the GPU by its UUID; the events of a MIG device are those of the machine."""
    gpu = device if device.startswith("GPU-") else ""
    fields: dict[str, Value] = {**lookup_xid(code).fields, "device": device}
    yield Found(XID, fields, gpu)
    if code == 79:
        yield Found(GPU_LOST, {}, gpu)
    yield Found(ACCESS_ERROR, {"kind": _F.DEVICE_PLUGIN}, gpu)


KIND = LineKind(
    "gpu-access",
    (
        rb"device handle for", rb"NVML|[Nn]vmlInit|nvml error", rb"NVRM: ", rb"NVIDIA-SMI (?:has failed"
            rb"|couldn't)", rb"No devices (?:were )?found",
        rb"XidCriticalError|marked unhealthy|[Mm]arking device", rb"nvidia: probe of|driver nvidia failed",
        rb"nvidia-container-cli|could not select device driver|unresolvable CDI", rb"ERROR_GPU_IS_LOST"
            rb"|communicate with (?:the )?GPU",
        rb"system not yet initialized|SystemNotReady|SYSTEM_NOT_READY", rb"[Ii]ncompatible (?:platform|strategy)",
        rb"configure the NVIDIA Container Toolkit|No (?:NVIDIA )?GPU", rb"nlicensed|(?:acquire|renew"
            rb"|borrow).{0,20} license",
    ),
    lambda artifact: EventLines(artifact, find),
)  # fmt: skip
