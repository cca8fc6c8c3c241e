"""Collector of this machine and one process, from /proc and /sys/fs/cgroup.

Everything is read at the start and at the end of the window. In between, about twice a second, only the thread states
of the process are read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from latdoctor.collectors.base import (
    Availability,
    Clock,
    CollectRequest,
    CollectResult,
    SourceAvailability,
    SourceReader,
    sampling_moments,
)
from latdoctor.collectors.host import NAME, cgroup_limits
from latdoctor.collectors.host import machine as host_node
from latdoctor.collectors.host import process as host_process
from latdoctor.collectors.host.cgroup_paths import cgroup_folders
from latdoctor.collectors.host.proc_snapshot import read_samples, take_sample
from latdoctor.collectors.host.sample_window import SampleWindow, SignalGroup
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin, Reading, Subject, Window, to_json
from latdoctor.gap_code import GapCode

NODE = "node/local"
SOURCE = "host"


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """Return the evidence of the samples of one collection. Raises SourceError if they are damaged."""
    span = SampleWindow(read_samples(artifacts))
    artifact = max(artifact.name for artifact in artifacts)
    parts = [_read(span, host_node.SECTIONS, NODE, artifact)]
    if span.last.pid is None:
        parts.append(_read(span, cgroup_limits.SECTIONS, NODE, artifact))
    else:
        process = f"process/{span.last.pid}"
        parts.append(Evidence(subjects=(Subject(process, NODE),)))
        parts.append(_read(span, (*cgroup_limits.SECTIONS, *host_process.SECTIONS), process, artifact))
    return Evidence.merge([Evidence(subjects=(Subject(NODE),)), *parts])


def _read(span: SampleWindow, sections: Sequence[SignalGroup], subject: str, artifact: str) -> Evidence:
    window = Window(span.first.time, span.last.time)
    readings: list[Reading] = []
    hidden: dict[tuple[str, str, GapCode], list[str]] = {}
    for section in sections:
        try:
            facts = section.read(span)
        except SourceError as error:
            hidden.setdefault((error.what, error.next_step, error.code), []).extend(section.signals)
            continue
        for fact in facts:
            if math.isfinite(fact.value):
                origin = Origin(artifact, fact.place)
                readings.append(Reading(fact.signal, subject, fact.value, origin, window, note=fact.note))
            else:
                hidden.setdefault((f"{fact.place}: a value out of range", "", GapCode.INCONSISTENT), []).append(
                    fact.signal
                )
    gaps = [
        Gap(SOURCE, reason, tuple(signals), subject, next_step, Origin(artifact), code)
        for (reason, next_step, code), signals in hidden.items()
    ]
    return Evidence(readings=tuple(readings), gaps=tuple(gaps))


INTERVAL = 0.5  # seconds between samples of the thread states
MAX_SAMPLES = 41

_ROOT = Path("/")


def collect(request: CollectRequest, clock: Clock, root: Path = _ROOT) -> CollectResult:
    """Sample the machine over `request.window`. The reason of an unreadable file is kept in the sample."""
    most = 2 if request.pid is None else MAX_SAMPLES
    artifacts: list[Artifact] = []
    for moment in sampling_moments(clock, request.window, INTERVAL, most):
        sample = take_sample(root, request.pid, moment.time, whole=moment.at_end)
        name = f"{NAME}/{len(artifacts):03d}.json"
        artifacts.append(Artifact(name, NAME, NAME, "/proc of this machine", moment.time, to_json(sample)))
    return CollectResult(tuple(artifacts))


def preflight(root: Path = _ROOT) -> Sequence[SourceAvailability]:
    """What is available here: /proc, pressure, cgroup and quota; a process only once it is named."""
    span = SampleWindow((take_sample(root, None, 0.0, whole=True),))
    missing = [
        reason for path, reason in span.last.unread.items() if path.startswith(("/proc/s", "/proc/v", "/proc/m"))
    ]
    return (
        SourceAvailability(
            "/proc",
            Availability.NO if missing else Availability.YES,
            missing[0] if missing else "processors, memory, load",
        ),
        _pressure(span),
        _cgroup(span),
        SourceAvailability(
            "a process",
            Availability.IF_GIVEN,
            "threads, switches, faults, CPU quota of its cgroup",
            "name it with --pid N",
            "--pid N",
        ),
    )


def _pressure(span: SampleWindow) -> SourceAvailability:
    what = "pressure (PSI)"
    unread = {path: why for path, why in span.last.unread.items() if path.startswith("/proc/pressure/")}
    if not unread:
        return SourceAvailability(what, Availability.YES, "processor, memory and disk")
    partly = any(path.startswith("/proc/pressure/") for path in span.last.files)
    status = Availability.PARTLY if partly else Availability.NO
    detail = "; ".join(f"{path}: {why}" for path, why in unread.items())
    return SourceAvailability(what, status, detail, "boot with psi=1 on a kernel that has it (4.20 and newer)")


def _cgroup(span: SampleWindow) -> SourceAvailability:
    try:
        cpu, memory = cgroup_folders(span.last.files, "self")
        quota = cgroup_limits.quota_of(span)
    except SourceError as error:
        return SourceAvailability("cgroup", Availability.PARTLY, error.what, error.next_step)
    versions = f"CPU by version {cpu.version}, memory by version {memory.version}"
    if quota is None:
        return SourceAvailability(
            "cgroup", Availability.PARTLY, f"{versions}; no CPU quota here", "name the server's process with --pid N"
        )
    return SourceAvailability("cgroup", Availability.YES, f"{versions}; CPU quota of {quota:g} processors")


READER = SourceReader(collect, parse, preflight)
