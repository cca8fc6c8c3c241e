"""Vital signs out of the log lines of inference engines: events that they report, and since when a level holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from latdoctor.conditions.evaluator import show
from latdoctor.diagnosis.result import Vital
from latdoctor.evidence.model import Event, Evidence, Value

ONSET = "level.onset"
# The gravest first. Nothing follows from the absence of one.
EVENTS = (
    "log.engine_dead",
    "log.engine_timeout",
    "log.kv_full",
    "log.queue_full",
    "log.model_failed",
    "log.pool_fallback",
    "log.prefix_cache_lost",
    "log.kv_transfer_failed",
    "log.kernel_compiled",
    "log.slot_awaited",
)


def engine_events(evidence: Evidence) -> Iterator[Vital]:
    """How many lines of each kind there are, and when the first of them was logged."""
    for signal in EVENTS:
        events = evidence.events_by_signal.get(signal, ())
        count = sum(_lines(one) for one in _first_of_kind(events))
        times = [one.time for one in events if one.time is not None]
        if events:
            yield Vital(signal, events[0].subject, count, f"{count:g}", since=min(times, default=None))


def level_changes(evidence: Evidence) -> dict[tuple[str, str], Event]:
    """When each quantity of each subject moved to another level; of several moves the one that lasts."""
    events = [one for one in evidence.events_by_signal.get(ONSET, ()) if one.time is not None]
    events.sort(key=lambda one: "until" not in one.fields)
    return {(str(one.fields.get("signal", "")), one.subject): one for one in events}


def dated(vital: Vital, moved: Mapping[tuple[str, str], Event]) -> Vital:
    """`vital` with the time at which its quantity moved to this level, if that is known."""
    event = moved.get((vital.signal, vital.subject))
    before = event.fields.get("before") if event else None
    if event is None or isinstance(before, str) or before is None:
        return vital
    return structs.replace(vital, since=event.time, before=show(vital.signal, before))


def _lines(event: Event) -> float:
    """The number of lines that an event stands for: of many only some are kept, and each says how many there were."""
    found = event.fields.get("lines", 1.0)
    return found if not isinstance(found, str) else 1.0


def _first_of_kind(events: Sequence[Event]) -> Iterator[Event]:
    known: set[tuple[str, Value]] = set()
    for one in events:
        kind = (one.subject, one.fields.get("what", ""))
        if "lines" not in one.fields or kind not in known:
            known.add(kind)
            yield one
