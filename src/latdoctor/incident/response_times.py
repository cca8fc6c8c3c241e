"""How fast it went: the times whose means over many incidents are called MTTD, MTTA, MTTM and MTTR.

Each of this incident alone, with the two moments that it lies between. Where one of them is missing it is unknown: no
time is put in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from latdoctor.incident import events
from latdoctor.incident.elapsed import CLOCK_SET_BACK, WALL, Elapsed, ElapsedTimes, between, clock_of, is_time, rfc3339
from latdoctor.incident.slo_samples import OVER, UNJUDGED, WITHIN, slo_state
from latdoctor.incident.state import Incident
from latdoctor.incident.timeline_model import (
    FACT,
    INFERENCE,
    OWN,
    DiagnosisEvent,
    ResponseTime,
    RunReport,
    SloSample,
    TimelineStart,
)
from latdoctor.journal.entry import JournalEntry, unix_seconds
from latdoctor.sanitize import clean

DETECT = (
    "From when the trouble began to the first entry of the incident. It began when latency rose, as the evidence of a"
    " diagnosis shows (an inference); else when the alert or a human says that it did. An alert begins to fire after"
    " the trouble does, by as long as its rule waits."
)
ACKNOWLEDGE = (
    "From the first entry of the incident to the first answer to it, by a human or by this program: a look that"
    " confirms or refutes the alert, a diagnosis, a note, a mark, a plan or a run."
)
MITIGATE = (
    "From the start of the incident until it no longer hurt: the moment at which the first run proved itself of which"
    " nothing was taken back; else the end of the last sample over the SLO, where all that was sampled after it kept"
    " it."
)
RESOLVE = "From the start of the incident until it was closed as resolved."
_ANSWERS = (events.CONFIRMED, events.DIAGNOSED, events.NOTED, events.MARKED, events.PLANNED, events.RUN_JOINED)


def measures(
    incident: Incident,
    start: TimelineStart,
    count: ElapsedTimes,
    looks: Sequence[DiagnosisEvent],
    runs: Sequence[RunReport],
    seen: Sequence[SloSample],
) -> tuple[ResponseTime, ...]:
    """The four, in the order in which they come."""
    return (
        _detected(incident, looks),
        _acknowledged(incident),
        _mitigated(incident, start, count, runs, seen),
        _resolved(incident, start, count),
    )


def _detected(incident: Incident, looks: Sequence[DiagnosisEvent]) -> ResponseTime:
    first = incident.entries[0]
    # A rise that a look dates after the opening is a later one, or is dated by a coarse series: it began before.
    rises = (look.since for look in looks if look.since is not None)
    onset = min((since for since in rises if unix_seconds(since) <= unix_seconds(first.at)), default=None)
    opened = incident.opened
    if onset is not None:
        begins, basis, began = (
            f"{clock_of(onset)}: latency rose, as the evidence of a diagnosis shows",
            INFERENCE,
            unix_seconds(onset),
        )
    elif opened.began is not None and is_time(opened.began):
        whose = clean(opened.clock, 100) or "somebody"
        begins, basis, began = f"{clock_of(rfc3339(opened.began))}: it began, as {whose} tells", FACT, opened.began
    else:
        why = "nothing tells when the trouble began"
        return ResponseTime("MTTD", "time to detect", DETECT, None, ends=_named(first, "the first entry"), why=why)
    seconds = unix_seconds(first.at) - began
    return ResponseTime(
        id="MTTD",
        title="time to detect",
        definition=DETECT,
        seconds=seconds if seconds >= 0 else None,
        begins=begins,
        ends=_named(first, "the first entry"),
        basis=basis,
        measured=WALL,
        end_digest=first.digest,
        why="" if seconds >= 0 else "what it began by lies after the incident was opened",
    )


def _acknowledged(incident: Incident) -> ResponseTime:
    first = incident.entries[0]
    answer = next((entry for entry in incident.entries if entry.kind in _ANSWERS or entry.kind == "run.opened"), None)
    if answer is None:
        why = "nobody has answered it yet"
        return ResponseTime(
            "MTTA", "time to acknowledge", ACKNOWLEDGE, None, begins=_named(first, "the first entry"), why=why
        )
    took = between(first, answer)
    return ResponseTime(
        id="MTTA",
        title="time to acknowledge",
        definition=ACKNOWLEDGE,
        seconds=took.seconds,
        begins=_named(first, "the first entry"),
        ends=_named(answer, answer.kind),
        measured=took.by,
        why="" if took.seconds is not None else CLOCK_SET_BACK,
        begin_digest=first.digest,
        end_digest=answer.digest,
    )


def _mitigated(
    incident: Incident, start: TimelineStart, count: ElapsedTimes, runs: Sequence[RunReport], seen: Sequence[SloSample]
) -> ResponseTime:
    whose = {run.id for run in runs if run.stands}
    proof = next((one for one in incident.entries if one.kind == "verify.passed" and one.run in whose), None)
    if proof is not None:
        ends, digest = _named(proof, f"run {proof.run} proved itself"), proof.digest
        return _from_start("MTTM", "time to mitigate", MITIGATE, start, count.of(proof), ends, digest)
    last = _last_over(seen)
    if last is not None:
        ends = f"{clock_of(last.at)}: the end of the last sample over the SLO"
        return _from_start("MTTM", "time to mitigate", MITIGATE, start, Elapsed(last.seconds), ends, last.digest)
    why = "no run has proved itself and stands, and samples do not show that it kept its SLO again"
    return ResponseTime("MTTM", "time to mitigate", MITIGATE, None, begins=_told(start), why=why)


def _last_over(seen: Sequence[SloSample]) -> SloSample | None:
    """The last sample over the SLO, where it was seen to keep it afterwards, and at the end."""
    states = [(slo_state(one), one) for one in seen]
    judged = [(state, one) for state, one in states if state != UNJUDGED]
    over = [one for state, one in judged if state == OVER]
    return over[-1] if over and judged[-1][0] == WITHIN and states[-1][0] == WITHIN else None


def _resolved(incident: Incident, start: TimelineStart, count: ElapsedTimes) -> ResponseTime:
    ended = next(iter(reversed(incident.of(events.CLOSED))), None)
    if incident.closed is None or ended is None or incident.closed.outcome != "resolved":
        why = "it is still open" if incident.closed is None else "it was a false alarm: there was nothing to resolve"
        return ResponseTime("MTTR", "time to resolve", RESOLVE, None, begins=_told(start), why=why)
    ends = _named(ended, "closed as resolved")
    return _from_start("MTTR", "time to resolve", RESOLVE, start, count.of(ended), ends, ended.digest)


def _from_start(
    name: str, title: str, definition: str, start: TimelineStart, took: Elapsed, ends: str, digest: str
) -> ResponseTime:
    return ResponseTime(
        id=name,
        title=title,
        definition=definition,
        seconds=took.seconds,
        begins=_told(start),
        ends=ends,
        measured=took.by if start.clock == OWN else WALL,  # else between two clocks
        begin_digest=start.digest,
        end_digest=digest,
        why="" if took.seconds is not None else CLOCK_SET_BACK,
    )


def _named(entry: JournalEntry, what: str) -> str:
    return f"{clock_of(entry.at)}: {what}"


def _told(start: TimelineStart) -> str:
    return f"{clock_of(start.at)}: {start.message}"


def mean(found: Iterable[ResponseTime], name: str) -> tuple[float | None, int]:
    """The mean of one of the four over many incidents, and of how many it is: those of which it is known."""
    known = [one.seconds for one in found if one.id == name and one.seconds is not None]
    return (sum(known) / len(known) if known else None), len(known)
