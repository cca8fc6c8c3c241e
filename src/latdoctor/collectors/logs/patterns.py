"""Patterns of driver and application logs: line → typed facts. Pure, without file access.

Kernel messages must begin with the driver's own words (`NVRM: Xid (`), so that a line that merely quotes one is not
taken for it; carriers of such lines are removed before (`formats.carried`). CUDA errors are searched in application
lines only, because the kernel does not report them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from latdoctor.collectors.logs import boots, cuda_failures, memory_daemons, oom_kills, suspected_errors, typed_commands
from latdoctor.collectors.logs.cuda_failures import failure_in
from latdoctor.collectors.logs.line_prefix import BARE, KERNEL, LogLine
from latdoctor.collectors.logs.memory_daemons import DaemonKill, daemon_kill_in
from latdoctor.collectors.logs.oom_kills import CgroupAtLimit, OomKill, kill_in
from latdoctor.collectors.tensorrt.build_log import OUTSIDE
from latdoctor.evidence.subject_branch import normalise_pci


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A change. `signal` is that of the event, `what` describes it."""

    signal: str
    what: str = ""
    to: str = ""


# A line without any of these has no change. On bytes, like FACT_HINTS.
MARKER_HINTS = re.compile(
    rb"Started server process|Booting worker|tarting (?:vLLM|gunicorn|production|to load model)"
    rb"|uccessfully loaded (?:'|servable)"
    rb"|oad(?:ed|ing) model|(?i:model[ _]version|deploy(?:ed|ing)\b|roll(?:ed|ing) out)"
    rb"|(?i:config\w* (?:file )?(?:\S{1,99} )?(?:re)?(?:loaded|changed))"
    rb"|reloading config|signal process started"
)
_NAME, _VERSION = r"[\w./-]{1,150}", r"[\w.-]{1,60}"
_BECAME = r"(?: (?:is now|changed to|set to|switched to|updated to))? ?[:=]? ?"
_FORMS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    (
        "change.process_start",
        "",
        re.compile(r"Started server process|Booting worker|Starting (?:gunicorn|vLLM|production \w{4} BentoServer)"),
    ),
    # Triton: successfully loaded 'densenet_onnx' version 2
    (
        "change.model",
        "model",
        re.compile(rf"successfully loaded '(?P<what>[^']{{1,100}})'(?: version (?P<to>{_VERSION}))?"),
    ),
    # TensorFlow Serving: Successfully loaded servable version {name: ranker version: 31}
    (
        "change.model",
        "model",
        re.compile(rf"Successfully loaded servable version \{{name: (?P<what>{_NAME}) version: (?P<to>\d{{1,18}})\}}"),
    ),
    # vLLM: Starting to load model meta-llama/Llama-3-8B...
    ("change.model", "model", re.compile(rf"Starting to load model (?P<what>{_NAME}?)\.{{0,3}}(?:\s|$)")),
    # TorchServe: Loading model: a, version: 1.0
    (
        "change.model",
        "model",
        re.compile(rf"[Ll]oad(?:ed|ing) model:? [\"']?(?P<what>{_NAME})[\"']?(?:,? version:? (?P<to>{_VERSION}))?"),
    ),
    (
        "change.model",
        "model version",
        re.compile(rf"\bmodel[ _]version{_BECAME}[\"']?(?P<to>v?\d[\w.-]{{0,60}})", re.I),
    ),
    (
        "change.config",
        "configuration",
        re.compile(
            r"\bconfig(?:uration)?(?: file)? (?P<what>\S{1,150} )?(?:re)?(?:loaded|changed)\b"
            r"|reloading config|signal process started",
            re.I,
        ),
    ),
    (
        "change.deployment",
        "",
        re.compile(
            r"(?<!when )(?<!before )(?<!if )\b(?:deploy(?:ed|ing)|roll(?:ed|ing) out)\s+(?P<what>\S.{0,120})", re.I
        ),
    ),
)


def change_in(message: str) -> LoggedChange | None:
    """The change in `message`, or None."""
    for signal, what, form in _FORMS:
        found = form.search(message)
        if found:
            named = found.groupdict()
            thing = " ".join(part for part in (what, (named.get("what") or "").strip()) if part)
            return LoggedChange(signal, thing, named.get("to") or "")
    return None


@dataclass(frozen=True, slots=True)
class Xid:
    """An Xid of the GPU at `pci` (0000:9b:00); pid and process are empty if the driver does not know them."""

    code: int
    pci: str
    pid: str
    process: str
    detail: str


@dataclass(frozen=True, slots=True)
class SXid:
    """An error of an NVSwitch. `severity` is "fatal", "non-fatal" or empty."""

    code: int
    pci: str
    switch: str
    severity: str


@dataclass(frozen=True, slots=True)
class GpuLost:
    """A GPU fell off the bus. `pci` is empty if an earlier line has it (the three-line form)."""

    pci: str


@dataclass(frozen=True, slots=True)
class GpuNamed:
    """The first of three lines: the GPU that the following lines are about."""

    pci: str


@dataclass(frozen=True, slots=True)
class CudaError:
    """A CUDA call failed. `code` is None if the line has only a name, as from the CUDA libraries."""

    code: int | None
    name: str
    sticky: bool
    process: str  # pid or rank in the line; empty if absent


@dataclass(frozen=True, slots=True)
class DriverMismatch:
    """Driver, library or toolkit versions are incompatible; versions if the line has them."""

    client: str = ""
    module: str = ""


@dataclass(frozen=True, slots=True)
class DcgmErrorReported:
    """A DCGM error; `name` is without its prefix."""

    name: str


@dataclass(frozen=True, slots=True)
class ShapeRefused:
    """An input shape outside the range of a TensorRT engine."""


@dataclass(frozen=True, slots=True)
class ProcessStarted:
    """A server process started: the state of an earlier process no longer applies."""


LogFact = (
    Xid
    | SXid
    | GpuLost
    | GpuNamed
    | CudaError
    | DriverMismatch
    | OomKill
    | CgroupAtLimit
    | DaemonKill
    | ProcessStarted
    | LoggedChange
    | DcgmErrorReported
    | ShapeRefused
)

# Lines without any of these contain no fact. On bytes, so that most lines are never decoded.
FACT_HINTS = re.compile(
    rb"NVRM|SXid|DCGM_FR_|exceed min ~ max|any optimization profile|expected the shape of|"
    rb"set binding dimension|"
    rb"(?i:version mismatch|nvidia driver on your system)|Version tag does not match|this version of TensorRT|"
    + b"|".join(
        (
            MARKER_HINTS.pattern,
            boots.HINTS,
            cuda_failures.HINTS,
            memory_daemons.HINTS,
            oom_kills.HINTS,
            suspected_errors.HINTS,
            typed_commands.HINTS,
        )
    )
)

# What the kernel alone writes, in a line without its time.
_KERNELS = re.compile(r"\s*(?:NVRM:|(?:Memory cgroup out|Out) of memory: Kill|oom-kill:constraint=|memory: usage \d)")
_PCI = r"(?:PCI:)?((?:[0-9a-fA-F]{1,8}:)?[0-9a-fA-F]{1,4}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
_XID = re.compile(rf"NVRM: Xid \({_PCI}[^)]{{0,40}}\): (\d{{1,4}})\b(.*)")
_XID_PID = re.compile(r"\bpid='?(\d{1,10}|<unknown>)'?")
_XID_NAME = re.compile(r"\bname='?([^,']{1,64})")
# An SXid writes several lines; those with its severity code and its data are not counted again.
_SXID = re.compile(
    rf"(nvidia-nvswitch\d{{1,4}}): SXid \({_PCI}\): (\d{{1,6}})\b(?!, *(?:Severity|Data)\b)(?:, *(Fatal|Non-fatal)\b)?",
    re.I,
)
_LOST = re.compile(rf"NVRM: (?:.{{0,40}}GPU (?:at )?{_PCI}\b)?.{{0,160}}?fallen off the bus", re.S)
_NAMED = re.compile(rf"NVRM: The NVIDIA GPU {_PCI}")
_MISMATCH = re.compile(r"NVRM: API mismatch: the client has the version ([\w.-]{1,40})")
_MODULE_VERSION = re.compile(r"this kernel module has the version ([\w.-]{1,40})")

_APPLICATION_MISMATCH = re.compile(
    r"driver/library version mismatch"
    r"|nvidia driver on your system is too old"
    r"|cuda driver version is insufficient for cuda runtime version"
    r"|forward compatibility was attempted on non supported hw"
    r"|unsupported display driver / cuda driver combination"
    # An engine of TensorRT that another version of it has built.
    r"|Serialization assertion .{1,120} failed\.\s?Version tag does not match"
    r"|engine plan file is not compatible with this version of TensorRT",
    re.I,
)
# Triton goes on without its pinned pool. On a machine without a GPU the runtime calls the missing driver too old; where
# a driver is too old for a GPU that is used, the models that fail for it say so in lines of their own.
_OPTIONAL = re.compile(r"pinned memory pool will not be available", re.I)
_DCGM = re.compile(r"\bDCGM_FR_([A-Z0-9_]{2,60})\b")
_SPEAKS_OF_PROCESS = re.compile(r"\bpid[=: ]{1,2}(\d{1,10})\b|\[(rank ?\d{1,5})\]", re.I)
_STARTED = re.compile(r"Started server process|Booting worker")


def parse_facts(line: LogLine) -> tuple[LogFact, ...]:
    """The facts in `line`; empty for most lines. Never raises."""
    if line.writer == KERNEL:
        return _kernel_facts(line.message)
    if line.writer == BARE and _KERNELS.match(line.message):
        return _kernel_facts(line.message.lstrip())
    return _application_facts(line)


def _kernel_facts(message: str) -> tuple[LogFact, ...]:
    if found := _XID.match(message):
        code, rest = int(found[2]), found[3]
        pid, name = _XID_PID.search(rest), _XID_NAME.search(rest)
        pci = normalise_pci(found[1])
        xid = Xid(code, pci, _known(pid), _known(name), rest.lstrip(", "))
        return (xid, GpuLost(pci)) if code == 79 else (xid,)
    if found := _SXID.match(message):
        return (SXid(int(found[3]), normalise_pci(found[2]), found[1], (found[4] or "").lower()),)
    if found := _LOST.match(message):
        return (GpuLost(normalise_pci(found[1]) if found[1] else ""),)
    if found := _NAMED.match(message):
        return (GpuNamed(normalise_pci(found[1])),)
    if found := _MISMATCH.match(message):
        module = _MODULE_VERSION.search(message)
        return (DriverMismatch(found[1].rstrip(".,"), module[1].rstrip(".,") if module else ""),)
    kill = kill_in(message)
    return () if kill is None else (kill,)


def _known(found: re.Match[str] | None) -> str:
    return "" if found is None or "unknown" in found[1] else found[1].strip()


def _application_facts(line: LogLine) -> tuple[LogFact, ...]:
    message = line.message
    mark = change_in(message)
    if _STARTED.search(message):
        return (ProcessStarted(), mark) if mark else (ProcessStarted(),)
    if _OPTIONAL.search(message):
        return ()
    if _APPLICATION_MISMATCH.search(message):
        return (DriverMismatch(),)
    if named := _DCGM.search(message):
        return (DcgmErrorReported(named[1]),)
    if OUTSIDE.search(message):
        return (ShapeRefused(),)
    if kill := daemon_kill_in(message):
        return (kill,)
    error = failure_in(message)
    if error is None:
        return (mark,) if mark else ()
    if error.driver:
        return (DriverMismatch(),)
    process_match = _SPEAKS_OF_PROCESS.search(message)
    process = line.pid or (process_match[1] or process_match[2] if process_match else "")
    return (CudaError(error.code, error.name, error.sticky, process),)
