"""Lines that look like a report of a fault and are in no known form: they count as nothing, and nothing is clear.

A search that met such a line has not found that there is no error.
"""

from __future__ import annotations

import re

# Lines with these words are looked at, on bytes.
HINTS = (
    rb"illegal memory access|device-side assert|ncorrectable ECC|misaligned address|unspecified launch failure"
    rb"|\b[Xx][Ii][Dd]\b|\bcu[A-Z]\w{2,40} failed"
    rb"|(?i:must evict|evicted|evicting|OOMKilled|out of memory|low memory|memory pressure)|GPU (?:reset|recovery|hang)"
)
_CUDA = re.compile(
    r"\b(?:illegal memory access|device-side assert|uncorrectable ECC error|misaligned address"
    r"|unspecified launch failure)\b"
    r"|\bcu(?:da)?[A-Z]\w{2,60}(?:\(\))? (?:failed|returned (?:error )?[1-9]\d{0,2}\b)"
    r"|\bcuda (?:runtime |driver )?(?:error|failure)\b(?! ?(?:count|counter|handling|check|s\b|[=:] ?(?:0|none|no)\b))",
    re.I,
)
_XID = re.compile(r"\bXid\b(?: error| code| event)?(?:[\s:=#]| \([^)]{0,60}\):?){1,4}[1-9]\d{0,2}\b", re.I)
# Other GPUs than NVIDIA's, and drivers that give up on one.
_LOST = re.compile(
    r"\bGPU reset(?:\(\d{1,3}\))? (?:begin|failed)|\bGPU recovery (?:disabled|failed)|\bGPU HANG\b|\bdevice wedged\b",
    re.I,
)
# By a daemon, a kubelet or a runtime: what is killed and that memory is why, in any order.
_ENDED = r"(?:kill(?:ed|ing)?|evict(?:ed|ing)?|OOMKilled|terminat(?:ed|ing)|sending SIG(?:TERM|KILL))"
_SHORT = r"(?:out of memory|low memory|memory pressure|OOMKilled|oom|due to memory|resource: ?memory|[\"=]memory\b)"
_KILL = re.compile(rf"\b{_ENDED}\b.{{0,160}}?{_SHORT}|\bOOMKilled\b|{_SHORT}.{{0,160}}?\b{_ENDED}\b", re.I)
_NO_KILL = re.compile(
    r"\b(?:no|not|never|without|will be|would be|may be) (?:\w+ ){0,3}?(?:kill|evict|terminat|oom|out of memory)", re.I
)
# `no uncorrectable ECC errors`, `0 Xid errors`, `uncorrectable ECC errors: 0`.
_DENIED = re.compile(
    r"\b(?:no|zero|0|without|any|not) (?:\w+ ){0,3}?(?:Xid|illegal|uncorrectable|cuda)|:\s*0\s*$", re.I
)


def is_suspected_call(message: str) -> bool:
    """Whether `message` may report a failed call of CUDA."""
    return _CUDA.search(message) is not None and not _DENIED.search(message)


def is_suspected_xid(message: str) -> bool:
    """Whether `message` may report an Xid."""
    return _XID.search(message) is not None and not _DENIED.search(message) and "XidCriticalError" not in message


def is_suspected_lost(message: str) -> bool:
    """Whether `message` may report that a GPU is gone or was reset."""
    return _LOST.search(message) is not None


def is_suspected_kill(message: str) -> bool:
    """Whether `message` may report that something was killed or evicted for want of memory."""
    return _KILL.search(message) is not None and not _NO_KILL.search(message)
