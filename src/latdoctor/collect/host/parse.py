"""Samples of the host turned into evidence: node/local, and process/PID where one is watched. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from latdoctor.collect.host import limits as host_limits
from latdoctor.collect.host import node as host_node
from latdoctor.collect.host import process as host_process
from latdoctor.collect.host.samples import read_samples
from latdoctor.collect.host.span import Section, Span
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact
from latdoctor.evidence.model import Evidence, Gap, Origin, Reading, Subject, Window

NODE = "node/local"
SOURCE = "host"
SIGNALS = tuple(
    signal
    for section in (*host_node.SECTIONS, *host_limits.SECTIONS, *host_process.SECTIONS)
    for signal in section.signals
)


def parse(artifacts: Sequence[Artifact]) -> Evidence:
    """What the samples of one look say. Raises SourceError where they are damaged."""
    span = Span(read_samples(artifacts))
    artifact = max(artifact.name for artifact in artifacts)
    parts = [_read(span, host_node.SECTIONS, NODE, artifact)]
    if span.last.pid is None:
        parts.append(_read(span, host_limits.SECTIONS, NODE, artifact))
    else:
        process = f"process/{span.last.pid}"
        parts.append(Evidence(subjects=(Subject(process, NODE),)))
        parts.append(_read(span, (*host_limits.SECTIONS, *host_process.SECTIONS), process, artifact))
    return Evidence.merge([Evidence(subjects=(Subject(NODE),)), *parts])


def _read(span: Span, sections: Sequence[Section], subject: str, artifact: str) -> Evidence:
    window = Window(span.first.time, span.last.time)
    readings: list[Reading] = []
    hidden: dict[tuple[str, str], list[str]] = {}
    for section in sections:
        try:
            facts = section.read(span)
        except SourceError as error:
            hidden.setdefault((error.what, error.next_step), []).extend(section.signals)
            continue
        for fact in facts:
            if math.isfinite(fact.value):
                origin = Origin(artifact, fact.place)
                readings.append(Reading(fact.signal, subject, fact.value, origin, window, note=fact.note))
            else:
                hidden.setdefault((f"{fact.place}: a value out of range", ""), []).append(fact.signal)
    gaps = [
        Gap(SOURCE, reason, tuple(signals), subject, next_step, Origin(artifact))
        for (reason, next_step), signals in hidden.items()
    ]
    return Evidence(readings=tuple(readings), gaps=tuple(gaps))
