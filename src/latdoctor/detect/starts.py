"""When a server or its process started, from how long it has been up."""

from __future__ import annotations

from latdoctor.evidence.model import Event, Evidence, Origin, is_unknown

UPTIMES = ("server.uptime", "process.uptime")
STARTED = "change.process_start"


def starts(evidence: Evidence) -> Evidence:
    """`change.process_start` of every uptime, where no source told the start itself."""
    told = {event.subject for event in evidence.events_by_signal.get(STARTED, ())}
    found: list[Event] = []
    for signal in UPTIMES:
        for one in evidence.readings_by_signal.get(signal, ()):
            if one.subject in told or one.window.end is None or isinstance(one.value, str) or is_unknown(one.value):
                continue
            told.add(one.subject)
            origin = Origin(one.origin.artifact, f"{one.origin.place}, from {signal}".lstrip(", "))
            found.append(Event(STARTED, one.subject, origin, {}, one.window.end - one.value))
    return Evidence(events=tuple(found))
