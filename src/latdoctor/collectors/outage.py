"""A server that gives no answers, as evidence: as its own address shows, or a Prometheus that scrapes it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from latdoctor.decode_errors import UNDECODABLE
from latdoctor.errors import SourceError
from latdoctor.evidence.bundle import Artifact, Bundle
from latdoctor.evidence.model import Event, Evidence, Origin, Reading, Subject, Value, Window
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

ANSWERING, OUTAGE, LISTENING, DOWN = "server.answering", "server.outage", "server.listening", "server.down"
SIGNALS = frozenset({ANSWERING, OUTAGE, LISTENING, DOWN})
SUFFIX = "-down.json"  # of the artifact of a server that did not answer at all
_MAX_BYTES = 1 << 16
_WIDTH = 200


@dataclass(frozen=True, slots=True)
class Outage:
    """A server without answers: `why` is a predicate (`refuses connections`).

    `since`: its last answer, unix seconds; None where none was seen. It went down at most `within` seconds later.
    `listening`: whether a process accepts connections there; None where that is not known.
    """

    server: str
    why: str
    since: float | None = None
    within: float = 0.0
    listening: bool | None = None


def answers(server: str, origin: Origin, window: Window) -> Evidence:
    """That the server still answers."""
    return Evidence(readings=(Reading(ANSWERING, f"server/{server}", 1.0, origin, window),))


def outage_evidence(found: Outage, origin: Origin, window: Window) -> Evidence:
    """That the server does not answer, how that shows, and since when if that is known."""
    subject = f"server/{found.server}"
    shown = clean(f"{found.server} {found.why}", _WIDTH)
    fields: dict[str, Value] = {"within": found.within} if found.within else {}
    events = (Event(DOWN, subject, origin, fields, found.since, shown),) if found.since is not None else ()
    listening = float(found.listening) if found.listening is not None else None
    values: list[tuple[str, Value | None]] = [(ANSWERING, 0.0), (OUTAGE, shown), (LISTENING, listening)]
    readings = tuple(Reading(name, subject, value, origin, window) for name, value in values if value is not None)
    return Evidence(subjects=(Subject(subject),), readings=readings, events=events)


def outage_page(why: str, *, listening: bool) -> bytes:
    """The content of the artifact of a server that did not answer."""
    return json.dumps({"why": why, "listening": listening}).encode()


def is_outage(artifact: Artifact) -> bool:
    """Whether it records that a server did not answer at all."""
    return artifact.name.endswith(SUFFIX)


def outage_artifacts(bundle: Bundle) -> frozenset[str]:
    """The artifacts of servers that did not answer at all: they cannot be read, and that is the incident itself."""
    return frozenset(artifact.name for artifact in bundle.artifacts if is_outage(artifact))


def read_outage(artifact: Artifact, server: str) -> Evidence:
    """Raises SourceError for a damaged artifact."""
    try:
        stored = json.loads(artifact.read(_MAX_BYTES))
    except UNDECODABLE as error:
        raise SourceError("cannot be read", where=artifact.source) from error
    if not isinstance(stored, dict) or not isinstance(stored.get("why"), str):
        raise SourceError("does not record why", where=artifact.source, code=GapCode.UNREADABLE)
    moment = Window(artifact.taken_at, artifact.taken_at)
    found = Outage(server, stored["why"], listening=bool(stored.get("listening")))
    return outage_evidence(found, Origin(artifact.name), moment)
