"""Scanner of one log, line by line: who wrote its lines, which events they report, and what was searched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from latdoctor.collectors.logs import (
    CHANGES,
    CUDA_ERROR,
    DCGM_ERROR,
    DRIVER_MISMATCH,
    ENGINE_SHAPE,
    GPU_LOST,
    OOM_KILL,
    SIGNALS,
    SXID,
    XID,
    error_code_tables,
    suspected_errors,
    typed_commands,
)
from latdoctor.collectors.logs import patterns as log_lines
from latdoctor.collectors.logs.boots import Boots, past_events
from latdoctor.collectors.logs.line_kind import LineLocation
from latdoctor.collectors.logs.line_prefix import KERNEL
from latdoctor.collectors.logs.log_nature import KernelExtent, LogNature
from latdoctor.collectors.logs.memory_daemons import DaemonKill
from latdoctor.collectors.logs.oom_kills import CgroupAtLimit, OomKill, OomKills
from latdoctor.collectors.logs.patterns import (
    CudaError,
    DcgmErrorReported,
    DriverMismatch,
    GpuLost,
    GpuNamed,
    LogFact,
    LoggedChange,
    ProcessStarted,
    ShapeRefused,
    SXid,
    Xid,
)
from latdoctor.collectors.logs.time_coverage import LogTimeCoverage
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import HOST, Event, Evidence, Gap, MachineName, Origin, Subject, Value
from latdoctor.evidence.redaction.redactor import without_secrets
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

MAX_EVENTS = 1000  # of one signal in one log
_NAMES_THE_NEXT = 4  # lines within which "The NVIDIA GPU …" identifies the GPU that fell off the bus
_MAX_HOSTS = 1000  # of one log
_KINDS_SHOWN = 5
_WHOLE = "pass the whole kernel log"
# What a kernel log is searched for.
_OF_KERNEL: Mapping[KernelExtent, tuple[str, ...]] = {
    KernelExtent.NONE: (),
    KernelExtent.OTHER_EXTRACT: (),
    KernelExtent.DRIVER_EXTRACT: (XID, GPU_LOST),
    KernelExtent.WHOLE: (XID, SXID, GPU_LOST, OOM_KILL),
}
_WHOLE_LOG = "pass the whole log: dmesg -T > dmesg.log"
_REACH = "pass a log that covers the judged window, with times of day (dmesg -T)"


class LogScanner:
    """Takes the lines of one log in order. Mutable; used by `logs.parse` only.

    `coverage` is set if a time range was requested.
    """

    def __init__(self, artifact: Artifact, coverage: LogTimeCoverage | None = None) -> None:
        self._artifact = artifact
        self.coverage = coverage
        self._unplaced: Counter[str] = Counter()  # by signal: events that may be outside the time range
        self._node = f"node/{artifact.group}"
        self._events: list[Event] = []
        self._counts: Counter[str] = Counter()
        self._kinds: Counter[tuple[str, Value, str]] = Counter()
        self._dropped: Counter[tuple[str, str]] = Counter()  # by signal and subject
        self._suspected: dict[str, str] = {}  # by signal: where the first line is that may report one
        self._lost: set[str] = set()  # signals with kinds of which no event was kept
        self._kills = OomKills()
        self._dead: set[str] = set()  # processes whose CUDA context is gone
        self._hosts: dict[str, str] = {}  # the machines that wrote lines, and the place of the first of each
        self._named = ("", 0)  # the GPU that the last "The NVIDIA GPU …" named, and its line
        self._selected = ""  # where a command selects the lines that follow it
        self._boots = Boots()
        self.nature = LogNature()

    def take(self, at: LineLocation, worth: bool, *, sampled: bool) -> None:
        """Process a line. `worth`: it contains words of interest; `sampled`: it is read whatever it contains."""
        self.nature.note(at.line, at.text, sampled=sampled)
        self._boots.note(at, len(self._events))
        if at.line.host and at.line.host not in self._hosts and len(self._hosts) < _MAX_HOSTS:
            self._hosts[at.line.host] = at.place
        if self.coverage:
            self.coverage.note_time(at.line)
        if worth:
            facts = log_lines.parse_facts(at.line)
            for fact in facts:
                self._take_fact(at, fact)
            self._suspect(at, facts)

    def _take_fact(self, at: LineLocation, fact: LogFact) -> None:  # noqa: C901 — one short case for each kind of fact
        match fact:
            case Xid():
                self._add(XID, at, _xid_fields(fact), gpu=fact.pci)
            case SXid():
                self._add(SXID, at, _sxid_fields(fact))
            case GpuNamed():
                self._named = (fact.pci, at.number)
            case GpuLost():
                named, where = self._named
                pci = fact.pci or (named if at.number - where <= _NAMES_THE_NEXT else "")
                self._add(GPU_LOST, at, {"pci": pci} if pci else {}, gpu=pci)
            case CudaError():
                self._add(CUDA_ERROR, at, self._cuda_fields(fact))
            case DriverMismatch():
                self._add(DRIVER_MISMATCH, at, _non_empty({"client": fact.client, "module": fact.module}))
            case OomKill() | CgroupAtLimit():
                self._take_kill(at, fact)
            case DaemonKill():
                self._add(OOM_KILL, at, fact.fields())
            case DcgmErrorReported():
                self._add(DCGM_ERROR, at, _dcgm_fields(fact))
            case ShapeRefused():
                self._add(ENGINE_SHAPE, at, {})
            case LoggedChange():
                self._add(fact.signal, at, _non_empty({"what": fact.what, "to": fact.to}))
            case ProcessStarted():
                self._dead.discard(at.line.pid)

    def note_command(self, at: LineLocation, command: str) -> None:
        """Note a command that is typed above its output."""
        if not self._selected and typed_commands.is_selective(command):
            self._selected = at.place

    def suspect(self, signals: Iterable[str], place: str) -> None:
        """Note a line that may report `signals`: they are not ruled out."""
        for signal in signals:
            self._suspected.setdefault(signal, place)

    def _suspect(self, at: LineLocation, facts: tuple[LogFact, ...]) -> None:
        """Note a line that may report an error in words that are not known: what it may report is not ruled out."""
        if self.coverage and at.line.time is not None and self.coverage.excludes(at.line.time, earlier_too=False):
            return
        calls = any(isinstance(fact, CudaError | DriverMismatch) for fact in facts)
        if at.line.writer != KERNEL and not calls and suspected_errors.is_suspected_call(at.line.message):
            self._suspected.setdefault(CUDA_ERROR, at.place)
        if not any(isinstance(fact, Xid) for fact in facts) and suspected_errors.is_suspected_xid(at.line.message):
            self.suspect((XID, GPU_LOST), at.place)
        if suspected_errors.is_suspected_lost(at.line.message):
            self.suspect((GPU_LOST,), at.place)
        kills = any(isinstance(fact, OomKill | CgroupAtLimit | DaemonKill) for fact in facts)
        if not kills and suspected_errors.is_suspected_kill(at.line.message):
            self.suspect((OOM_KILL,), at.place)

    def _unclear(self) -> Mapping[str, str]:
        """Where a line may report what was not found, by signal."""
        return {signal: place for signal, place in self._suspected.items() if not self._counts[signal]}

    def _take_kill(self, at: LineLocation, fact: OomKill | CgroupAtLimit) -> None:
        if isinstance(fact, CgroupAtLimit):
            self._kills.note_group(fact, at.number)
        elif (fields := self._kills.fields(fact, at.number)) is not None:
            self._add(OOM_KILL, at, fields)

    def _cuda_fields(self, fact: CudaError) -> dict[str, Value]:
        fields: dict[str, Value] = {"name": fact.name, "sticky": float(fact.sticky)}
        if fact.code is not None:
            fields["code"] = float(fact.code)
        if fact.process:
            fields["pid"] = fact.process
        # After a sticky error every call of that process fails: only the first shows the cause. A log without process
        # names is taken for the log of one process, until that restarts.
        fields["secondary"] = float(fact.process in self._dead)
        if fact.sticky:
            self._dead.add(fact.process)
        return fields

    def _left_out(self, signal: str, time: float | None) -> bool:
        """Whether an event is outside the requested time range, or may be."""
        if self.coverage is None:
            return False
        if time is None:
            self._unplaced[signal] += 1
            return True
        return self.coverage.excludes(time, earlier_too=signal in CHANGES)

    def _add(self, signal: str, at: LineLocation, fields: dict[str, Value], gpu: str = "") -> None:
        if self._left_out(signal, at.line.time):
            return
        subject = f"gpu/{gpu}" if gpu else self._node
        kind = (signal, fields.get("code", fields.get("name", "")), gpu)
        self._kinds[kind] += 1
        # The first event of every kind is kept even if another kind has used up the limit, within bounds.
        new = self._kinds[kind] == 1 and self._counts[signal] < 2 * MAX_EVENTS
        if self._counts[signal] >= MAX_EVENTS and not new:
            self._dropped[signal, subject] += 1
            if self._kinds[kind] == 1:
                self._lost.add(signal)
            return
        self._counts[signal] += 1
        if at.line.uptime is not None:
            fields["uptime_s"] = at.line.uptime
        if at.line.host:
            fields[HOST] = at.line.host
        if at.line.time is not None and not at.line.zoned:
            fields["zone"] = "not given, read as UTC"
        self._events.append(
            Event(
                signal=signal,
                subject=subject,
                origin=Origin(self._artifact.name, at.place),
                fields={
                    key: _redacted(value, 200) if isinstance(value, str) else value for key, value in fields.items()
                },
                time=at.line.time,
                text=_redacted(at.text, 2000),
            )
        )

    def evidence(self, *, complete: bool) -> Evidence:
        """Return the evidence of the whole log. An incomplete log cannot rule anything out."""
        events = tuple(one for number, one in enumerate(self._events) if not self._boots.is_past(number, one))
        gpus = tuple(dict.fromkeys(event.subject for event in events if event.subject != self._node))
        complete = complete and not self._selected
        searched = self._searched() if complete and not (self.coverage and self.coverage.missed) else ()
        of_gpu = [signal for signal in searched if signal in (XID, GPU_LOST)]
        return Evidence(
            subjects=(Subject(self._node), *(Subject(gpu, parent=self._node) for gpu in gpus)),
            events=events,
            looked=(
                *((signal, self._node) for signal in searched),
                *((signal, gpu) for gpu in gpus for signal in of_gpu),
            ),
            gaps=self._gaps(),
            clipped=tuple(self._dropped),
            machines=tuple(
                MachineName(self._node, host, Origin(self._artifact.name, place)) for host, place in self._hosts.items()
            ),
        )

    def _searched(self) -> tuple[str, ...]:
        kernel = _OF_KERNEL[self.nature.kernel_extent]
        found = [*kernel, *((CUDA_ERROR,) if self.nature.is_application_log else ())]
        either = (DRIVER_MISMATCH,) if found else ()
        past = past_events(self._boots, self._events)
        hidden = self._lost | self._unplaced.keys() | self._unclear().keys() | set(past.signals if past else ())
        return tuple(signal for signal in SIGNALS if signal in (*found, *either) and signal not in hidden)

    def _total(self, signal: str) -> str:
        """The number and kinds of lines of a signal of which some were dropped."""
        totals = {kind: count for kind, count in self._kinds.items() if kind[0] == signal}
        commonest = sorted(totals.items(), key=lambda item: -item[1])
        shown = [
            f"{count} of {code:g}{f' on {gpu}' if gpu else ''}" if isinstance(code, float) else f"{count} of {code}"
            for (_, code, gpu), count in commonest[:_KINDS_SHOWN]
            if code != ""
        ]
        details = f" ({', '.join(shown)}{' and others' if len(commonest) > _KINDS_SHOWN else ''})" if shown else ""
        total = sum(totals.values())
        return f"{total} {signal} lines{details}, of which {self._counts[signal]} were kept: counts are lower bounds"

    def _gaps(self) -> tuple[Gap, ...]:
        source, origin = self._artifact.source, Origin(self._artifact.name)
        gaps = [
            Gap(
                "logs",
                f"{source}: {self._total(signal)}",
                (signal,) if signal in self._lost else (),
                origin=origin,
                code=GapCode.TOO_LARGE,
            )
            for signal in dict.fromkeys(signal for signal, _ in self._dropped)
        ]
        if self.coverage and self.coverage.missed:
            gaps.append(Gap("logs", f"{source}: {self.coverage.missed}", SIGNALS, None, _REACH, origin, GapCode.STALE))
        for signal, count in self._unplaced.items():
            reason = f"{source}: {count} {signal} lines have no time of day: not counted"
            gaps.append(Gap("logs", reason, (signal,), None, _REACH, origin, GapCode.AMBIGUOUS))
        for signal, place in self._unclear().items():
            reason = f"{source}: {place} may report an error: it is cut, broken or in words that are not known"
            where = Origin(self._artifact.name, place)
            gaps.append(Gap("logs", reason, (signal,), None, "", where, GapCode.AMBIGUOUS))
        if past := past_events(self._boots, self._events):
            reason = f"{source}: {past.reason}"
            gaps.append(Gap("logs", reason, past.signals, None, "", origin, GapCode.BEFORE_BOOT))
        if self._selected:
            reason = f"{source}: {self._selected} is a command that prints selected lines or the last ones of a log"
            where = Origin(self._artifact.name, self._selected)
            gaps.append(Gap("logs", reason, SIGNALS, None, _WHOLE_LOG, where, GapCode.ABSENT))
        gaps += _unsearched(self.nature, source, origin)
        return tuple(gaps)


def _unsearched(nature: LogNature, source: str, origin: Origin) -> Iterator[Gap]:
    """What a text of this nature was not searched for."""
    kernel = (XID, SXID, GPU_LOST, OOM_KILL)
    match nature.kernel_extent:
        case KernelExtent.NONE:
            forms = "contains no line in a kernel log format (dmesg, journal, syslog)"
            reason = f"{source}: {forms}, so it is not searched for Xids and OOM kills"
            step = "pass the kernel log too: dmesg -T > dmesg.log"
            yield Gap("logs", reason, kernel, None, step, origin, GapCode.ABSENT)
        case KernelExtent.DRIVER_EXTRACT:
            reason = f"{source}: contains only lines of the GPU driver, so it may be an extract"
            yield Gap("logs", reason, (SXID, OOM_KILL), None, _WHOLE, origin, GapCode.ABSENT)
        case KernelExtent.OTHER_EXTRACT:
            reason = f"{source}: contains lines of one part of the kernel only, so it may be an extract"
            either = () if nature.is_application_log else (DRIVER_MISMATCH,)
            yield Gap("logs", reason, (*kernel, *either), None, _WHOLE, origin, GapCode.ABSENT)
    if not nature.application_lines:
        reason = f"{source}: contains no application line, so it cannot contain CUDA errors"
        yield Gap("logs", reason, (CUDA_ERROR,), None, "pass the server's log too", origin, GapCode.ABSENT)
    elif not nature.is_application_log:
        reason = f"{source}: few of its lines have a time or a level, so it may not be a log and rules nothing out"
        hidden = (CUDA_ERROR,) if nature.kernel_lines else (CUDA_ERROR, DRIVER_MISMATCH)
        yield Gap("logs", reason, hidden, None, "pass the server's log", origin, GapCode.UNSUPPORTED)


def _redacted(text: str, limit: int) -> str:
    return clean(without_secrets(text), limit)


def _non_empty(texts: dict[str, str]) -> dict[str, Value]:
    """The texts that are not empty."""
    return {key: text for key, text in texts.items() if text}


def _dcgm_fields(fact: DcgmErrorReported) -> dict[str, Value]:
    row = error_code_tables.lookup_dcgm_error(fact.name)
    return {
        "name": row.name,
        "meaning": row.means,
        "action": row.action.does,
        "follow_up": row.action.follow_up,
        "needs": row.action.needs,
        "secondary": float(row.secondary),
    }


def _sxid_fields(fact: SXid) -> dict[str, Value]:
    fields: dict[str, Value] = {"code": float(fact.code), "pci": fact.pci, "switch": fact.switch}
    return fields | ({"severity": fact.severity} if fact.severity else {})


def _xid_fields(fact: Xid) -> dict[str, Value]:
    row = error_code_tables.lookup_xid(fact.code)
    fields = {**row.fields, "pci": fact.pci, "action": recovery_action(fact) or row.action.does}
    decoded = error_code_tables.decode_nvlink(fact.code, fact.detail)
    if decoded is not None:
        fields |= {
            "unit": " or ".join(decoded.units),
            "severity": decoded.severity,
            "bucket": decoded.action.name,
            "action": decoded.action.does,
            "follow_up": decoded.follow_up.does,
            "needs": decoded.action.needs,
            "fatal": float(decoded.action.needs in ("gpu", "node")),
        }
    coverage = {"pid": fact.pid, "process": fact.process}
    return fields | {key: text for key, text in coverage.items() if text}


def recovery_action(fact: Xid) -> str:
    """The action in an Xid 154: `… changed from 0x0 (None) to 0x2 (Node Reboot Required)`."""
    if fact.code != 154 or " to 0x" not in fact.detail:
        return ""
    details = fact.detail.rpartition(" to 0x")[2].partition("(")[2].partition(")")[0].strip().lower()
    return {"": "", "none": "nothing to do"}.get(details, details)
