"""Lines of NCCL and RCCL, and of PyTorch's watchdog over them: time-outs of collectives, errors, and the transport.

[rank1]:[E…] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=78, OpType=BROADCAST, …) ran for …
host:412:530 [2] transport/net_ib.cc:1208 NCCL WARN NET/IB : Got completion from peer … with status=12 …
host:412:530 [2] NCCL INFO Channel 00/0 : 2[2] -> 3[3] via P2P/CUMEM
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from latdoctor.collectors.logs.line_events import EventLines, Found
from latdoctor.collectors.logs.line_kind import LineKind, LineLocation
from latdoctor.collectors.logs.line_prefix import LogLine
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Origin, Reading, Subject, Value

TIMEOUT, ERROR = "log.collective_timeout", "log.collective_error"
VERSION, NETWORK, CHANNELS, NO_PEER = (
    "collective.version", "collective.network", "collective.channels", "collective.peer_access_disabled",
)  # fmt: skip
SIGNALS = (TIMEOUT, ERROR, VERSION, NETWORK, CHANNELS, NO_PEER)

_WATCHDOG = re.compile(
    r"caught collective operation timeout: Work\w{2,8}\((.{0,400}?=[\w\[\], ]{1,80})\)(?:\s+ran for (\d{1,12})"
    r" milliseconds)?"
)
# Not an operation: processes that never met, and a watchdog that waits for one itself.
_NEVER_MET = re.compile(
    r"\bDistStoreError: Timed out after (?P<seconds>\d{1,6}) seconds waiting for clients"
    r"|due to ProcessGroupNCCL watchdog hang"
)
_WORK = re.compile(r"(\w[\w()]{1,20})=(\[[^\]]{0,80}\]|[\w.:]{1,40})")
_RANK = re.compile(r"\b[Rr]ank ?(\d{1,6})\b")
_GROUP = re.compile(r"\[PG (?:ID )?(\S{1,40}?)(?: PG GUID \S{1,60})? Rank")
_STORE = re.compile(r"(?:DistStoreError|wait timeout after|Timed out waiting) .{0,20}?(\d{1,9})\s?ms")
_TORCH = re.compile(
    r"\b(?:NCCL|RCCL) error in: .{0,200}?, (unhandled (?:cuda|system) error|internal error|invalid (?:usage"
    r"|argument)|remote process exited or there was a network error|unhandled \w+ error)"
)
_RESULT = re.compile(
    r"\b(ncclUnhandledCudaError|ncclSystemError|ncclInternalError|ncclInvalidArgument|ncclInvalidUsage|ncclRemoteError)\b"
)
_RESULTS = {
    "unhandled cuda error": "cuda",
    "unhandled system error": "system",
    "internal error": "internal",
    "invalid usage": "usage",
    "invalid argument": "usage",
    "remote process exited or there was a network error": "remote",
    "ncclUnhandledCudaError": "cuda",
    "ncclSystemError": "system",
    "ncclInternalError": "internal",
    "ncclInvalidArgument": "usage",
    "ncclInvalidUsage": "usage",
    "ncclRemoteError": "remote",
}
_WARN = re.compile(r"(?:\[(\d{1,4})\] [^\[]{0,160})?\b(?:NCCL|RCCL) WARN (.*)")
_WARNINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"NET/IB|ibv_|IB device|mlx5_", re.I), "infiniband"),
    (re.compile(r"Cuda failure|CUDA driver|HIP failure", re.I), "cuda"),
    (re.compile(r"shared memory|/dev/shm|No space left", re.I), "shared-memory"),
    (
        re.compile(
            r"socket|connect|recv from|Connection (?:reset|refused|closed)|timed out|NET/Socket|Bootstrap", re.I
        ),
        "network",
    ),
    (re.compile(r"NVLink|NVLS|P2P|peer", re.I), "peer"),
)
# Hints that NCCL itself calls no failure.
_NO_WARNING = re.compile(
    r"^(?:NCCL_\w+ set by|Could not find|No plugin|.{0,40}deprecated|MSCCL)|will use|Falling back", re.I
)
_VERSION = re.compile(r"\b(?:NCCL|RCCL) version[ :]{1,3}v?(\d[\w.+-]{1,40})|using nccl==(\d[\w.]{1,20})", re.I)
_NETWORK = re.compile(r"NCCL INFO Using (?:non-device )?network (\S[\w /-]{0,30})|NCCL INFO Using network (\S{1,30})")
_CHANNEL = re.compile(
    r"NCCL INFO Channel \d{1,3}(?:/\d{1,3})? : .{1,80}? via ([A-Z][A-Za-z0-9]{1,10}(?:/[A-Za-z0-9]{1,20})?)"
)
_NO_P2P = re.compile(
    r"NCCL_P2P_DISABLE set by environment to 1|P2P is disabled between connected GPUs|p2p is disabled", re.I
)
_FAILED_COMPLETION = re.compile(r"status=(\d{1,3})\b")
_MS = 1e-3


def find(line: LogLine) -> Iterator[Found]:
    """The events of one line; nothing for most lines."""
    message = line.message
    rank = _RANK.search(message)
    common: dict[str, Value] = {"rank": rank[1]} if rank else {}
    if watchdog := _WATCHDOG.search(message):
        yield Found(TIMEOUT, common | _work(watchdog[1], watchdog[2], message))
    elif missed := _NEVER_MET.search(message):
        waited = missed["seconds"]
        yield Found(TIMEOUT, common | ({"timeout_s": float(waited)} if waited else {}))
    elif torch := _TORCH.search(message):
        yield Found(ERROR, common | {"kind": _RESULTS.get(torch[1], "other")})
    elif result := _RESULT.search(message):
        yield Found(ERROR, common | {"kind": _RESULTS[result[1]], "secondary": 1.0})
    elif warning := _WARN.search(message):
        text = warning[2]
        if not _NO_WARNING.search(text):
            yield Found(ERROR, _warning(text) | ({"rank": warning[1]} if warning[1] else common))


def _work(inside: str, ran: str | None, message: str) -> dict[str, Value]:
    """`SeqNum=78, OpType=BROADCAST, NumelIn=80, NumelOut=80, Timeout(ms)=600000`; older ones have TensorShape."""
    parts = dict(_WORK.findall(inside))
    fields: dict[str, Value] = {}
    for name, key in (("OpType", "op"), ("SeqNum", "seq"), ("NumelIn", "numel"), ("TensorShape", "shape")):
        if name in parts:
            fields[key] = float(parts[name]) if parts[name].isdigit() else parts[name]
    if parts.get("Timeout(ms)", "").isdigit():
        fields["timeout_s"] = float(parts["Timeout(ms)"]) * _MS
    if ran:
        fields["elapsed_s"] = float(ran) * _MS
    if group := _GROUP.search(message):
        fields["group"] = group[1]
    return fields


def _warning(text: str) -> dict[str, Value]:
    kind = next((kind for pattern, kind in _WARNINGS if pattern.search(text)), "other")
    status = _FAILED_COMPLETION.search(text)
    return {"kind": kind, "reason": text[:160]} | ({"status": float(status[1])} if status else {})


class NcclLines:
    """A LineReader: events, and which version, network and transports NCCL reports to use."""

    def __init__(self, artifact: Artifact) -> None:
        self._events = EventLines(artifact, find)
        self._artifact = artifact
        self._channels: Counter[str] = Counter()
        self._texts: dict[str, tuple[Value, int]] = {}

    def take(self, at: LineLocation) -> None:
        message = at.line.message
        self._events.take(at)
        if version := _VERSION.search(message):
            self._texts[VERSION] = (version[1] or version[2], at.number)
        if network := _NETWORK.search(message):
            self._texts[NETWORK] = ((network[1] or network[2]).strip(), at.number)
        if channel := _CHANNEL.search(message):
            self._channels[_transport(channel[1])] += 1
        if _NO_P2P.search(message):
            self._texts[NO_PEER] = (1.0, at.number)

    def evidence(self, *, complete: bool) -> Evidence:
        node = f"node/{self._artifact.group}"
        name = self._artifact.name
        readings = [Reading(s, node, value, Origin(name, f"line {n}")) for s, (value, n) in self._texts.items()]
        readings += [
            Reading(CHANNELS, node, float(count), Origin(name), labels=(("transport", transport),))
            for transport, count in sorted(self._channels.items())
        ]
        own = Evidence(subjects=(Subject(node),), readings=tuple(readings)) if readings else Evidence()
        return Evidence.merge([self._events.evidence(complete=complete), own])


def _transport(text: str) -> str:
    """`NET/Socket`, `NET/IB`, `P2P` and `SHM`; what follows names the memory that is used."""
    first, _, second = text.partition("/")
    return f"{first}/{second}" if first == "NET" and second else first


KIND = LineKind(
    "nccl",
    (rb"caught collective operation timeout|DistStoreError: Timed|watchdog hang",
     rb"NCCL (?:WARN|INFO|error|version)", rb"RCCL (?:version|error)",
     rb"nccl(?:UnhandledCuda|System|Internal|Remote)Error|ncclInvalid(?:Usage|Argument)", rb"using nccl=="),
    NcclLines,
)  # fmt: skip
