"""Lines that look like a report of a GPU error and are in no known form: they count as nothing, and nothing is clear.

A search that met such a line has not found that there is no error.
"""

from __future__ import annotations

import re

# Lines with these words are looked at, on bytes.
HINTS = (
    rb"illegal memory access|device-side assert|ncorrectable ECC|misaligned address|unspecified launch failure"
    rb"|\b[Xx][Ii][Dd]\b|\bcu[A-Z]\w{2,40} failed"
)
_CUDA = re.compile(
    r"\b(?:illegal memory access|device-side assert|uncorrectable ECC error|misaligned address"
    r"|unspecified launch failure)\b"
    r"|\bcu(?:da)?[A-Z]\w{2,60}(?:\(\))? (?:failed|returned (?:error )?[1-9]\d{0,2}\b)"
    r"|\bcuda (?:runtime |driver )?(?:error|failure)\b(?! ?(?:count|counter|handling|check|s\b|[=:] ?(?:0|none|no)\b))",
    re.I,
)
_XID = re.compile(r"\bXid\b(?: error| code| event)?(?:[\s:=#]| \([^)]{0,60}\):?){1,4}[1-9]\d{0,2}\b", re.I)
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
