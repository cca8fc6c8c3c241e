"""A timeline as CloudEvents 1.0 in JSON lines, for event collectors.

The id of an event is the digest of its journal entry (with the part, where one entry has several events), for
deduplication. The deadlines of the SOP are events of their own, at the time when they are due; a changed status is a
new event.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from urllib.parse import quote

import msgspec
from msgspec import Struct

from latdoctor.incident import events
from latdoctor.incident.timeline_model import SloSample, StageReport, Timeline, TimelineEvent

PREFIX, VERSION = "io.latdoctor", "v1"
_TYPES = {
    events.OPENED: "incident.opened",
    events.ALERTED: "alert.received",
    events.CONFIRMED: "alert.confirmed",
    events.DIAGNOSED: "diagnosis.ranked",
    events.PLANNED: "plan.proposed",
    events.SAMPLED: "evidence.collected",
    events.MARKED: "stage.marked",
    "evidence.kept": "evidence.collected",
    "before.longer": "evidence.collected",
    "before.measured": "evidence.collected",
    "run.opened": "run.opened",
    "change.intended": "step.intended",
    "change.made": "step.applied",
    "stage.verified": "verify.result",
    "verify.window": "verify.result",
    "verify.passed": "verify.result",
    "verify.failed": "verify.result",
    "settled": "verify.result",
    "rollback.begun": "rollback",
    "undo.intended": "rollback",
    "undo.made": "rollback",
    "undo.failed": "rollback",
}
DEADLINE = "sop.deadline"


class CloudEvent(Struct, frozen=True):
    """The attributes of CloudEvents 1.0, and the data."""

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: str
    datacontenttype: str
    data: TimelineEvent | SloSample | StageReport | None


def render(timeline: Timeline) -> str:
    """A line for each event, in the order of the timeline."""
    encoder = msgspec.json.Encoder()
    lines = [encoder.encode(event) for event in cloud_events(timeline)]
    return b"".join(line + b"\n" for line in lines).decode()


def cloud_events(timeline: Timeline) -> Iterator[CloudEvent]:
    """Every moment, every sample, and every deadline of the SOP."""
    source = f"/latdoctor/{timeline.subject}s/{quote(timeline.id, safe='')}"
    for event in timeline.moments:
        yield _event(source, event.id, _type(event.kind), event.run, event.at, event)
    for one in timeline.samples:
        yield _event(source, one.digest, _TYPES[events.SAMPLED], timeline.id, one.at, one)
    for stage in timeline.stages:
        name = f"{timeline.start.digest}.sop.{stage.id}.{stage.status}"
        yield _event(source, name, DEADLINE, f"{timeline.id}/{stage.id}", _due(timeline, stage), stage)


def _event(
    source: str, name: str, kind: str, subject: str, at: str, data: TimelineEvent | SloSample | StageReport
) -> CloudEvent:
    return CloudEvent("1.0", name, source, f"{PREFIX}.{kind}.{VERSION}", subject, at, "application/json", data)


def _type(kind: str) -> str:
    """Event type of an entry kind. Unlisted kinds are used as they are: `note.made`, `run.closed`, later versions'."""
    known = _TYPES.get(kind)
    if known:
        return known
    return "".join(char if char.isascii() and (char.isalnum() or char in ".-") else "-" for char in kind)


def _due(timeline: Timeline, stage: StageReport) -> str:
    start = datetime.datetime.fromisoformat(timeline.start.at)
    try:
        due = start + datetime.timedelta(seconds=stage.due)
    except OverflowError:
        due = start
    return due.astimezone(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
