"""Lines of the Python interpreter and of torch.compile: fatal errors, slow callbacks, recompilations and their limit.

Also what native code prints when it ends its process: a signal, an assertion, an exception that nothing caught.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from latdoctor.collectors.logs.line_events import EventLines, Found
from latdoctor.collectors.logs.line_kind import LineKind, LineLocation
from latdoctor.collectors.logs.line_prefix import LogLine
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Value

FATAL, RECOMPILE, LIMIT, SLOW = "log.fatal_error", "log.recompile", "log.recompile_limit", "log.slow_callback"
SIGNALS = (FATAL, RECOMPILE, LIMIT, SLOW)
_FATAL = re.compile(
    r"(?:^|\s)(?:Fatal Python error: (?P<python>.{1,200})$"
    # glog and Ray, Triton, Go, C++, glibc, the shell, ggml
    r"|\*{3} (?P<signal>SIG(?:SEGV|BUS|ABRT|FPE|ILL)) |Signal \((?P<number>6|7|8|11)\) received\.?\s*$"
    r"|(?P<go>SIG(?:SEGV|BUS|ABRT): .{1,80}?)(?:\s*$| PC=)"
    r"|(?P<thrown>terminate called (?:after throwing an instance of .{1,120}|without an active exception))"
    r"|(?P<glibc>double free or corruption|free\(\): invalid (?:pointer|size)|malloc\(\): .{1,40}"
    r"|corrupted size vs\. prev_size)"
    r"|(?P<shell>(?:Segmentation fault|Aborted|Bus error|Illegal instruction|Floating point exception) \(core dumped\))"
    r"|(?P<ggml>\S{0,200}: GGML_ASSERT\(.{1,200}\) failed)|!{3,}\s(?P<handler>Segfault encountered)\s!{3,})"
)
# asyncio in debug mode
_SLOW = re.compile(r"\bExecuting <(?:Task|Handle|TimerHandle)\b.{0,2000}> took (\d{1,6}\.\d{1,6}) seconds\s*$")
_SLOW_SECONDS = 0.5  # asyncio reports from a tenth of a second on
_RECOMPILE = re.compile(
    r"Recompiling function (?P<function>.{1,200}?) in (?P<file>\S{1,300}?)(?::(?P<line>\d{1,9}))?\s*$"
)
_LIMIT = re.compile(
    r"torch\._dynamo hit config\.(?:accumulated_)?(?:recompile|cache_size)_limit \((?P<limit>\d{1,9})\)"
    r"|(?:Recompile|recompile|cache_size)_?limit reached with (?:fullgraph|one_graph)=True"
)
_FUNCTION = re.compile(r"\bfunction: '(?P<function>[^']{1,200})' \((?P<file>[^()]{1,300})\)")
_REASON = re.compile(r"\b(?:last reason|reasons): {1,4}(?P<reason>\S.{0,400})$|- \d+/\d+: (?P<guard>\S.{0,400})$")
_COMMENT = re.compile(r" {2,}# ")  # the source line, behind the guard
# Kinds of reasons, by the words of the guard that failed.
_KINDS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("shape", r"size mismatch|size\(\)|\.shape|rank mismatch|len\("),
        ("dtype", r"dtype mismatch"),
        ("stride", r"stride mismatch"),
        ("device", r"device index mismatch|dispatch key set mismatch"),
        ("gradient", r"requires_grad mismatch|grad_mode|GLOBAL_STATE"),
        ("type", r"___check_type_id|type\("),
        ("object", r"___check_obj_id|id\("),
        ("value", r"=="),
    )
)
_REACH = 8  # lines behind the first within which function and reason follow


def kind_of_reason(reason: str) -> str:
    """What changed so that the compiled code did not fit; empty where the reason is of no known kind."""
    return next((kind for kind, pattern in _KINDS if pattern.search(reason)), "")


@dataclass(slots=True)
class _Pending:
    signal: str
    at: LineLocation
    fields: dict[str, Value] = field(default_factory=dict)


class _PythonLines:
    """Joins the lines of a recompilation: its function, and the first reason that follows."""

    def __init__(self, artifact: Artifact) -> None:
        self._events = EventLines(artifact, _nothing)
        self._pending: _Pending | None = None

    def take(self, at: LineLocation) -> None:
        message = at.line.message
        if found := _FATAL.search(message):
            name = next(text for text in found.groups() if text)
            self._events.add(Found(FATAL, {"name": f"signal {name}" if name.isdigit() else name}), at)
        elif found := _SLOW.search(message):
            if float(found[1]) >= _SLOW_SECONDS:
                self._events.add(Found(SLOW, {"seconds": float(found[1])}), at)
        elif found := _RECOMPILE.search(message):
            self._begin(RECOMPILE, at, _where(found))
        elif found := _LIMIT.search(message):
            limit = found["limit"]
            self._begin(LIMIT, at, {"limit": float(limit)} if limit else {})
            self._add_details(message, at)
        else:
            self._add_details(message, at)

    def _begin(self, signal: str, at: LineLocation, fields: dict[str, Value]) -> None:
        self._flush()
        self._pending = _Pending(signal, at, fields)

    def _add_details(self, message: str, at: LineLocation) -> None:
        pending = self._pending
        if pending is None or at.number - pending.at.number > _REACH:
            return
        if found := _FUNCTION.search(message):
            pending.fields |= {key: value for key, value in _where(found).items() if key not in pending.fields}
        elif (found := _REASON.search(message)) and "reason" not in pending.fields:
            reason = _COMMENT.split(found["reason"] or found["guard"], maxsplit=1)[0].strip()
            pending.fields |= {"reason": reason, "kind": kind_of_reason(reason)}

    def _flush(self) -> None:
        if self._pending is not None:
            self._events.add(Found(self._pending.signal, self._pending.fields), self._pending.at)
            self._pending = None

    def evidence(self, *, complete: bool) -> Evidence:
        self._flush()
        return self._events.evidence(complete=complete)


def _nothing(_line: LogLine) -> tuple[Found, ...]:
    return ()


def _where(found: re.Match[str]) -> dict[str, Value]:
    groups = found.groupdict()
    line = groups.get("line")
    return {"function": groups["function"], "file": f"{groups['file']}:{line}" if line else groups["file"]}


KIND = LineKind(
    "python",
    (
        rb"\*\*\* SIG[A-Z]|Signal \(\d+\) received|SIG(?:SEGV|BUS|ABRT): |terminate called ",
        rb"double free or corr|free\(\): invalid|malloc\(\): ",
        rb"corrupted size vs|\(core dumped\)|GGML_ASSERT\(|Segfault encountered|Executing <[A-Z]",
        rb"Fatal Python error|Recompiling function|torch\._dynamo hit config|limit reached with",
        rb"function: '|last reason: |reasons: |- \d+/\d+: ",
    ),
    _PythonLines,
)
