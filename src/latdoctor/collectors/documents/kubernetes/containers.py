"""The state of one container, however it was written, as readings and events."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from latdoctor.collectors.documents.kubernetes.event_kinds import KubeEvent, classify
from latdoctor.collectors.documents.kubernetes.gathered import Gathered
from latdoctor.evidence.model import Value
from latdoctor.units import format_value

OOM_KILLED = "OOMKilled"
CRASH_LOOP = "CrashLoopBackOff"
IMAGE_REASONS = frozenset({"ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName"})
START_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"}
)
_SIGNALLED = 128  # exit codes above it: ended by a signal
_SIGKILL = 137
_DESCRIBED = re.compile(r"(?:^|\s)(#?\w+)=(\d+(?:\.\d+)?)s?\b")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container ended; times are unix seconds."""

    reason: str = ""
    exit_code: float | None = None
    started: float | None = None
    finished: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe of a container, seconds; `failures` in a row are needed for it to fail."""

    kind: str
    delay: float = 0.0
    timeout: float = 1.0
    period: float = 10.0
    failures: float = 3.0


@dataclass(slots=True)
class ContainerFacts:
    """What is known of a container; `ended` is its last end."""

    name: str
    line: int = 0
    place: str = ""
    ready: bool | None = None
    restarts: float | None = None
    running: bool = False
    running_since: float | None = None
    waiting_reason: str = ""
    waiting_message: str = ""
    ended: Ended | None = None
    limits: dict[str, object] = field(default_factory=dict)
    requests: dict[str, object] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)


def described_probe(kind: str, text: str) -> Probe | None:
    """`http-get http://:8000/health delay=60s timeout=1s period=10s #success=1 #failure=3`."""
    found: Mapping[str, str] = dict(_DESCRIBED.findall(text))
    if not {"delay", "timeout", "period", "#failure"} <= set(found):
        return None
    numbers = (float(found[key]) for key in ("delay", "timeout", "period", "#failure"))
    return Probe(kind, *numbers)


def put(gathered: Gathered, owner: str, facts: ContainerFacts) -> None:
    """Add what is known of the container; `owner` is its pod, or the workload whose template it is part of."""
    subject = gathered.container(owner, facts.name)
    if not subject:
        return
    line, place = facts.line, facts.place
    gathered.limits(subject, "limit", facts.limits, line, place=place)
    gathered.limits(subject, "request", facts.requests, line, place=place)
    for probe in facts.probes:
        labels = (("probe", probe.kind),)
        grace = probe.delay + probe.failures * probe.period
        gathered.reading("container.probe.grace", subject, grace, line, labels=labels, place=place)
        gathered.reading("container.probe.timeout", subject, probe.timeout, line, labels=labels, place=place)
    if facts.ready is not None:
        gathered.reading("container.ready", subject, float(facts.ready), line, place=place)
    gathered.reading("container.restarts", subject, facts.restarts, line, place=place)
    waiting(gathered, subject, facts.waiting_reason, facts.waiting_message, line, place)
    if facts.running:
        if facts.restarts == 0:
            gathered.reading("container.crash_looping", subject, 0.0, line, place=place)
        gathered.event("change.process_start", subject, line, time=facts.running_since, place=place)
    if facts.ended is not None:
        put_end(gathered, subject, facts.ended, line, place)


def waiting(gathered: Gathered, subject: str, reason: str, message: str, line: int, place: str = "") -> None:
    """Why a container or a pod does not run: a state of now, whose beginning is not known."""
    if not reason:
        return
    gathered.reading("container.waiting_reason", subject, reason, line, place=place)
    if reason == CRASH_LOOP:
        gathered.reading("container.crash_looping", subject, 1.0, line, place=place)
    elif reason in IMAGE_REASONS:
        gathered.reading("container.image_pull_failing", subject, 1.0, line, place=place)
        for kind in classify(KubeEvent("ErrImagePull", message)):
            text = f"{reason}: {message}" if message else reason
            fields = {**kind.fields, "reason": reason}
            gathered.event(kind.signal, subject, line, text=text, fields=fields, place=place)
    elif reason in START_REASONS:
        text = f"{reason}: {message}" if message else reason
        gathered.event("kube.start_failed", subject, line, text=text, fields={"reason": reason}, place=place)


def put_end(gathered: Gathered, subject: str, end: Ended, line: int, place: str = "", *, about: bool = False) -> None:
    """The end of a container: its reason and exit code, and an event at the time when it ended."""
    reason, code = end.reason, end.exit_code
    if reason == "Completed" and not code:
        return
    gathered.reading("container.exit_reason", subject, reason or None, line, place=place)
    gathered.reading("container.exit_code", subject, code, line, place=place)
    if reason == OOM_KILLED:
        gathered.reading("container.oom_killed", subject, 1.0, line, place=place)
    elif reason and code is not None and code != _SIGKILL:  # a killed child may leave "Error" and 137
        gathered.reading("container.oom_killed", subject, 0.0, line, place=place)
    fields: dict[str, Value] = {"reason": reason} if reason else {}
    said = [reason] if reason else []
    if code is not None:
        fields["exit_code"] = code
        said.append(f"exit code {code:.0f}")
    if code is not None and code > _SIGNALLED:
        fields["signal_number"] = code - _SIGNALLED
    if end.started is not None and end.finished is not None and end.finished >= end.started:
        fields["ran"] = end.finished - end.started
        if reason == OOM_KILLED:
            gathered.reading("container.ran_until_oom", subject, end.finished - end.started, line, place=place)
        said.append(f"after {format_value(end.finished - end.started, 'time')}")
    text = ", ".join(said) + (f": {end.message}" if end.message else "")
    gathered.event("kube.container_ended", subject, line, time=end.finished, about=about, text=text, fields=fields)
