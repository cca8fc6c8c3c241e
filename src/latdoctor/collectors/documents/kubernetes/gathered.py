"""Evidence gathered from one output of kubectl: subjects with their file, the last reading of each, events.

Pods of two files, namespaces or clusters may have equal names: a subject carries its namespace where the text or the
command before it shows it, and the cluster that the command names, else the name of the file. Times that the text gives
as ages are relative to when the file was written: events have the field `when` = `about` then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from latdoctor.collectors.documents import NAME
from latdoctor.collectors.documents.kubernetes import SIGNALS
from latdoctor.collectors.documents.kubernetes.command import kube_command
from latdoctor.collectors.documents.kubernetes.event_kinds import KubeEvent, classify
from latdoctor.collectors.documents.kubernetes.gpu_reports import GPU_LOST, LOST_CODE, XID, XidReport, xid_reports
from latdoctor.collectors.documents.kubernetes.quantities import is_gpu
from latdoctor.collectors.documents.text_format import Section
from latdoctor.evidence.model import Event, Evidence, Gap, Labels, Reading, Series, Subject, Value, Window, kind_of
from latdoctor.evidence.subject_branch import uuid_of
from latdoctor.gap_code import GapCode
from latdoctor.kubernetes_quantity import quantity
from latdoctor.sanitize import clean

ABOUT = "about"
MAX_SUBJECTS = 5000  # of one part; those beyond are left out
_LONGEST = 120
_TEXT = 400
_DAMAGES = 3  # shown


class Gathered:
    """Collects readings and events; a later reading of one signal and subject replaces an earlier one."""

    def __init__(self, section: Section) -> None:
        self.section = section
        self.taken_at = section.taken_at
        self.row_time: float | None = None  # when the row that is read was printed, where that is known apart
        self.left_out = 0  # objects that were not even named
        self._left_out: set[str] = set()
        self.damaged: list[str] = []
        self._unknown: dict[Gap, None] = {}
        self._command = kube_command(section.command)
        self._cluster = f"cluster/{clean(self._command.context, _LONGEST)}" if self._command.context else None
        self._place = clean(self._command.context or section.artifact.rpartition("/")[2], _LONGEST)
        self._subjects: dict[str, str | None] = {}
        self._readings: dict[tuple[str, str, Labels], Reading] = {}
        self._series: list[Series] = []
        self._events: dict[tuple[object, ...], Event] = {}

    def node(self, name: str) -> str:
        return self._subject("node", (name,), None)

    def pod(self, namespace: str, name: str, node: str = "") -> str:
        parent = self.node(node) if node else None
        return self._subject("pod", (namespace or self._command.namespace, name), parent)

    def container(self, owner: str, name: str) -> str:
        """A container of the subject `owner`, a pod or a workload's template."""
        path = owner.partition("/")[2].rpartition("@")[0]
        return self._subject("container", (path, name), owner)

    def gpu(self, node: str, name: str) -> str:
        """A GPU of the node (a subject): by its UUID, or by its address or index on that machine; else the node."""
        if not name or not node:
            return node
        subject = f"gpu/{name}" if uuid_of(name) else f"gpu/{name}@{node.partition('/')[2].rpartition('@')[0]}"
        self._subjects.setdefault(subject, node)
        return subject

    def workload(self, kind: str, namespace: str, name: str) -> str:
        return self._subject(kind.lower(), (namespace or self._command.namespace, name), None)

    def scaler(self, namespace: str, name: str, target: str) -> str:
        """An autoscaler of the workload `target` (`Deployment/web`; empty: not known)."""
        kind, _, of = target.strip().partition("/")
        parent = self.workload(kind, namespace, of) if of else None
        return self._subject("hpa", (namespace or self._command.namespace, name), parent or None)

    def reading(
        self,
        signal: str,
        subject: str,
        value: Value | None,
        line: int,
        *,
        labels: Labels = (),
        note: str = "",
        place: str = "",
    ) -> None:
        """Nothing for a value that is not known."""
        if value is None or not subject:
            return
        origin, window = self.section.origin(line, place), Window(None, self.taken_at)
        known = clean(value, _LONGEST) if isinstance(value, str) else float(value)
        self._readings[signal, subject, labels] = Reading(signal, subject, known, origin, window, labels, note)

    def event(
        self,
        signal: str,
        subject: str,
        line: int,
        *,
        time: float | None = None,
        about: bool = False,
        text: str = "",
        fields: Mapping[str, Value] | None = None,
        place: str = "",
    ) -> None:
        """An event; one that is shown twice at the same time is one. `about`: its time was given as an age."""
        if not subject:
            return
        kept = {key: clean(value, _TEXT) if isinstance(value, str) else value for key, value in (fields or {}).items()}
        if about and time is not None:
            kept["when"] = ABOUT
        key = (signal, subject, time, *sorted((name, str(value)) for name, value in kept.items()))
        origin = self.section.origin(line, place)
        self._events.setdefault(key, Event(signal, subject, origin, kept, time, clean(text, _TEXT)))

    def xids(self, node: str, found: Sequence[XidReport], line: int, time: float | None, text: str) -> None:
        """Xids of GPUs of a node, as the driver's log has them."""
        for one in found:
            gpu = self.gpu(node, one.gpu)
            self.event(XID, gpu, line, time=time, text=text, fields=one.fields)
            if one.code == LOST_CODE:
                self.event(GPU_LOST, gpu, line, time=time, text=text, fields={"pci": one.fields.get("pci", "")})

    def kube_event(self, event: KubeEvent, subject: str, line: int, *, place: str = "") -> None:
        """An event object of Kubernetes, as the event that it means here; ordinary ones are left out."""
        if kind_of(subject) == "node" and (xids := xid_reports("", event.reason, event.message)):
            self.xids(subject, xids, line, event.time, f"{event.reason}: {event.message}")
            return
        for kind in classify(event):
            self.event(
                kind.signal,
                subject,
                line,
                time=event.time,
                about=event.about,
                text=f"{event.reason}: {event.message}" if event.reason else event.message,
                fields=kind.fields,
                place=place,
            )

    def limits(self, subject: str, which: str, values: Mapping[str, object], line: int, *, place: str = "") -> None:
        """`which` is `limit` or `request`; GPUs are assigned by their limit."""
        for resource, text in values.items():
            if resource in ("cpu", "memory"):
                self.reading(f"container.{resource}.{which}", subject, quantity(text), line, place=place)
            elif which == "limit" and is_gpu(resource):
                labels = (("resource", clean(resource, 60)),)
                self.reading("container.gpu.limit", subject, quantity(text), line, labels=labels, place=place)

    def unknown(self, subject: str, signal: str, reason: str, line: int, *, place: str = "") -> None:
        """That the object itself says that it does not know the value."""
        origin = self.section.origin(line, place)
        self._unknown[Gap(NAME, reason, (signal,), subject, origin=origin, code=GapCode.STALE)] = None

    def series(self, signal: str, subject: str, points: Mapping[float, float], line: int) -> None:
        """Values by time, of rows that repeat."""
        times = tuple(sorted(points))
        values = tuple(points[time] for time in times)
        self._series.append(Series(signal, subject, times, values, self.section.origin(line)))

    def drop_readings(self, subject: str, *signals: str) -> None:
        """Forget earlier readings that a later state of the same subject contradicts."""
        for signal in signals:
            self._readings.pop((signal, subject, ()), None)

    def evidence(self) -> Evidence:
        shown = {one.subject for one in self._readings.values()} | {one.subject for one in self._events.values()}
        subjects = [Subject(name, parent) for name, parent in self._subjects.items()]
        needed = shown | {one.parent for one in subjects if one.id in shown}
        cluster = (Subject(self._cluster),) if self._cluster and shown else ()
        return Evidence(
            subjects=(*cluster, *(one for one in subjects if one.id in needed)),
            readings=tuple(self._readings.values()),
            series=tuple(self._series),
            events=tuple(self._events.values()),
            gaps=tuple(self._gaps()),
        )

    def _gaps(self) -> Iterator[Gap]:
        """What was left out, and what was damaged: `damaged` says where and how."""
        yield from self._unknown
        origin, source = self.section.origin(), self.section.source
        reasons = [(one, GapCode.UNREADABLE) for one in self.damaged[:_DAMAGES]]
        if more := self.left_out + len(self._left_out):
            reasons.append((f"{more} more objects are left out", GapCode.TOO_LARGE))
        for reason, code in reasons:
            yield Gap(NAME, f"{source}: {reason}", tuple(sorted(SIGNALS)), origin=origin, code=code)

    def _subject(self, kind: str, names: tuple[str, ...], parent: str | None) -> str:
        known = [clean(name, _LONGEST).strip() for name in names if name and name.strip()]
        if not known:
            return ""
        subject = f"{kind}/{'/'.join(known)}@{self._place}"
        if subject not in self._subjects and len(self._subjects) >= MAX_SUBJECTS:
            self._left_out.add(subject)
            return ""
        if self._subjects.get(subject) in (None, self._cluster):
            self._subjects[subject] = parent or self._cluster
        return subject
