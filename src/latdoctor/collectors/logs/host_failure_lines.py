"""Lines in which the kernel or a program reports that the machine or its network refuses work."""

from __future__ import annotations

import re
from collections.abc import Iterator

from latdoctor.collectors.logs.line_events import EventLines, Found
from latdoctor.collectors.logs.line_kind import LineKind
from latdoctor.collectors.logs.line_prefix import LogLine, Writer
from latdoctor.evidence.host_failure import HOST_FAILURE, HostFailure
from latdoctor.evidence.model import Value

_F = HostFailure
# Of the kernel alone: programs quote such lines.
_KERNEL: tuple[tuple[re.Pattern[str], HostFailure], ...] = (
    (re.compile(r"^(?:nf|ip)_conntrack: (?:nf_conntrack: )?table full, dropping packet"), _F.CONNTRACK_FULL),
    (re.compile(r"^(?:nfs: )?server (?P<what>\S{1,100}) not responding, (?:still trying|timed out)"),
     _F.STORAGE_UNRESPONSIVE),
    (re.compile(r"^nvme (?P<what>nvme\d{1,3}): I/O (?:tag )?\d.{0,40}\btimeout\b"), _F.STORAGE_UNRESPONSIVE),
    (re.compile(r"^INFO: task (?P<what>\S{1,60}):\d{1,10} blocked for more than \d{1,6} seconds"), _F.TASK_BLOCKED),
    (re.compile(r"^(?:blk_update_request: )?(?:critical \w+|I/O) error, dev (?P<what>\S{1,40}),"), _F.STORAGE_ERROR),
    (re.compile(r"^Buffer I/O error on dev(?:ice)? (?P<what>\S{1,40}),"), _F.STORAGE_ERROR),
    (re.compile(r"^(?:EXT4-fs|XFS|BTRFS) (?:error|critical|warning)?\s?\(?(?P<what>device \S{1,40}|\S{1,40})\)?:? "
                r".{0,80}(?:[Ii]/[Oo] [Ee]rror|shut ?down|remount.{0,20}read-only)"), _F.STORAGE_ERROR),
    (re.compile(r"^cgroup: fork rejected by pids controller in (?P<what>\S{1,200})"), _F.THREADS),
)  # fmt: skip
_HOST = r"[\"'`(]?(?P<what>[A-Za-z0-9_][\w.-]{1,250})"
_PROGRAM: tuple[tuple[re.Pattern[str], HostFailure], ...] = (
    (re.compile(r"\bNo space left on device\b|\bENOSPC\b|no space left on device"), _F.DISK_FULL),
    (re.compile(r"\bDisk quota exceeded\b|\bEDQUOT\b"), _F.DISK_QUOTA),
    (re.compile(r"certificate is not yet valid|is not yet valid: current time \S{1,40} is before|issued in the future"
                r"|token (?:is )?(?:used before issued|not (?:yet )?valid (?:yet|before))|ImmatureSignatureError"
                r"|The token is not yet valid|RequestTimeTooSkewed|clock skew detected", re.I), _F.CLOCK_SKEW),
    (re.compile(r"certificate has expired|\bCERT(?:IFICATE)?_HAS_EXPIRED\b|\bcertificate (?:is )?expired\b"
                r"|alert certificate expired|x509: certificate has expired", re.I), _F.CERTIFICATE_EXPIRED),
    (re.compile(rf"Temporary failure in name resolution|\bEAI_AGAIN(?: {_HOST})?|Try again.{{0,20}}getaddrinfo"
                r"|lookup (?P<name>[\w.-]{1,250}?)\.? on \S{1,60}: (?:read udp .{0,80}i/o timeout|server misbehaving)"
                r"|lookup (?P<go>[\w.-]{1,250}?): i/o timeout"
                r"|plugin/errors: \d (?P<zone>[\w.-]{1,250}?)\.? (?:A|AAAA|SRV|PTR|HINFO): (?:read|dial|write) "
                r"|Resolving timed out after|;; connection timed out; no servers could be reached"
                r"|could not be resolved \((?:110|2|3): |no resolver defined"), _F.NAME_RESOLUTION),
    (re.compile(rf"Name or service not known|Could not resolve host:? ?{_HOST}|nodename nor servname provided"
                r"|\bENOTFOUND (?P<node>[\w.-]{1,250})|lookup (?P<go>[\w.-]{1,250}?)\.?(?: on \S{1,60})?: no such host"
                r"|failed to lookup address information|host not found in upstream"), _F.NAME_UNKNOWN),
    (re.compile(r"\bToo many open files\b|\bEMFILE\b|\bENFILE\b|too many open files"), _F.OPEN_FILES),
    (re.compile(r"can't start new thread|pthread_create(?:\(\))? failed"
                r"|fork: (?:retry: )?Resource temporarily unavailable"
                r"|unable to create (?:new )?(?:native )?thread|libgomp: Thread creation failed"
                r"|failed to create new OS thread"), _F.THREADS),
)  # fmt: skip
# EADDRNOTAVAIL: of a bind the address is not the machine's; of ::1 the machine has no IPv6.
_NO_PORT = re.compile(r"Cannot assign requested address|\bEADDRNOTAVAIL\b|cannot assign requested address")
_NO_CONNECT = re.compile(r"\bbind|listen|::1\b|\[::\]", re.I)
# These have the same errors for another reason: watches of inotify, messages about what did not happen.
_WATCHES = re.compile(r"inotify|fsnotify|\bwatch(?:er|es)?\b", re.I)
# A line of source code or of a document, as grep prints it.
_QUOTED = re.compile(r"^\s*(?:#|//|\*|def |if |raise |except |return |assert )")


def find(line: LogLine) -> Iterator[Found]:
    """What `line` reports; nothing for most lines."""
    if line.writer is Writer.KERNEL:
        found = _first(_KERNEL, line.message)
    elif _QUOTED.match(line.message):
        found = None
    elif _NO_PORT.search(line.message):
        found = None if _NO_CONNECT.search(line.message) else (_F.PORTS_EXHAUSTED, "")
    else:
        found = _first(_PROGRAM, line.message)
    if found is None:
        return
    kind, what = found
    if kind in (_F.DISK_FULL, _F.OPEN_FILES) and _WATCHES.search(line.message):
        return
    fields: dict[str, Value] = {"kind": kind}
    if what:
        fields["what"] = what
    if line.process:
        fields["process"] = line.process
    yield Found(HOST_FAILURE, fields)


def _first(table: tuple[tuple[re.Pattern[str], HostFailure], ...], message: str) -> tuple[HostFailure, str] | None:
    for pattern, kind in table:
        if found := pattern.search(message):
            return kind, next(filter(None, found.groupdict().values()), "")
    return None


KIND = LineKind(
    "host-failures",
    (
        rb"conntrack: table full", rb"not responding, ", rb"blocked for more than", rb"I/O error",
        rb"I/O .{0,40}timeout",
        rb"(?:EXT4-fs|BTRFS|XFS) ", rb"[Nn]o space left on device|ENOSPC", rb"Disk quota exceeded|EDQUOT",
        rb"(?i:certificate (?:has |is )?(?:expired|not yet))|CERT\w{0,10}_HAS_EXPIRED|not yet valid",
        rb"issued in the future|before issued|ImmatureSignature|RequestTimeTooSkewed|clock skew",
        rb"name resolution|EAI_AGAIN|getaddrinfo|lookup [\w.-]{1,250}.{0,80}: |plugin/errors: |Resolving timed out",
        rb"could not be resolved|no resolver defined|connection timed out; no servers|address information",
        rb"service not known|resolve host|nodename nor|ENOTFOUND|not found in upstream",
        rb"[Tt]oo many open files|EMFILE|ENFILE", rb"can't start new thread|pthread_create|fork: |[Tt]hread creation",
        rb"native thread|new OS thread|fork rejected", rb"[Cc]annot assign requested|EADDRNOTAVAIL",
    ),
    lambda artifact: EventLines(artifact, find),
)  # fmt: skip
