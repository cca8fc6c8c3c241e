"""Response times of an incident: MTTD, MTTA, MTTM and MTTR are their means over many incidents.

Each is the time between two events of this incident; if one is missing, the time is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from latdoctor.incident import events
from latdoctor.incident.elapsed import (
    CLOCK_SET_BACK,
    ClockType,
    Elapsed,
    ElapsedTimes,
    between,
    by_clock,
    clock_of,
    is_time,
    rfc3339,
)
from latdoctor.incident.events import IncidentOutcome
from latdoctor.incident.slo_samples import SloState, slo_state
from latdoctor.incident.state import Incident
from latdoctor.incident.timeline_model import (
    OWN,
    Basis,
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
    " diagnosis shows (an inference); else when the alert or an operator reports it. An alert begins to fire after"
    " the trouble does, by as long as its rule waits."
)
ACKNOWLEDGE = (
    "From the first entry of the incident to the first answer to it, by a human or by this program: a diagnosis that"
    " confirms or refutes the alert, a diagnosis, a note, a mark, a plan or a run."
)
MITIGATE = (
    "From the start of the incident until users were no longer affected: the verification of the first run of which"
    " nothing was rolled back; else the beginning of the first sample within the SLO after the last one over it, if the"
    " last of all keeps it too. A server that gives no answers in between does not keep it."
)
RESOLVE = "From the start of the incident until it was closed as resolved."
_MTTD = partial(ResponseTime, "MTTD", "time to detect", DETECT, None)
_MTTA = partial(ResponseTime, "MTTA", "time to acknowledge", ACKNOWLEDGE, None)
_MTTM = partial(ResponseTime, "MTTM", "time to mitigate", MITIGATE, None)
_MTTR = partial(ResponseTime, "MTTR", "time to resolve", RESOLVE, None)
_ANSWERS = (events.CONFIRMED, events.DIAGNOSED, events.NOTED, events.MARKED, events.PLANNED, events.RUN_JOINED)


def measures(
    incident: Incident,
    start: TimelineStart,
    count: ElapsedTimes,
    diagnoses: Sequence[DiagnosisEvent],
    runs: Sequence[RunReport],
    samples: Sequence[SloSample],
) -> tuple[ResponseTime, ...]:
    """The four response times in chronological order."""
    return (
        _detected(incident, diagnoses),
        _acknowledged(incident),
        _mitigated(incident, start, count, runs, samples),
        _resolved(incident, start, count),
    )


def _detected(incident: Incident, diagnoses: Sequence[DiagnosisEvent]) -> ResponseTime:
    first = incident.entries[0]
    # A rise dated after the opening is a later one, or comes from a coarse series: it began earlier.
    rises = (diagnosis.since for diagnosis in diagnoses if diagnosis.since is not None)
    onset = min((since for since in rises if unix_seconds(since) <= unix_seconds(first.at)), default=None)
    opened, basis = incident.opened, Basis.FACT
    time = _MTTD(ends=_named(first, "the first entry"), why="the start of the trouble is unknown")
    if onset is not None:
        began, basis = unix_seconds(onset), Basis.INFERENCE
        begins = f"{clock_of(onset)}: latency rose, as the evidence of a diagnosis shows"
    elif opened.began is not None and is_time(opened.began):
        began = opened.began
        begins = f"{clock_of(rfc3339(began))}: it began, {by_clock(clean(opened.clock, 100))}"
    else:
        return time
    seconds = unix_seconds(first.at) - began
    known, why = (seconds, "") if seconds >= 0 else (None, "the reported start is after the opening")
    end = first.digest
    return replace(time, seconds=known, begins=begins, basis=basis, measured=ClockType.WALL, end_digest=end, why=why)


def _acknowledged(incident: Incident) -> ResponseTime:
    first = incident.entries[0]
    answer = next((entry for entry in incident.entries if entry.kind in _ANSWERS or entry.kind == "run.opened"), None)
    time = _MTTA(begins=_named(first, "the first entry"), why="the incident has not been acknowledged yet")
    if answer is None:
        return time
    time = replace(time, ends=_named(answer, answer.kind), begin_digest=first.digest, end_digest=answer.digest)
    return _taking(time, between(first, answer))


def _mitigated(
    incident: Incident,
    start: TimelineStart,
    count: ElapsedTimes,
    runs: Sequence[RunReport],
    samples: Sequence[SloSample],
) -> ResponseTime:
    source = {run.id for run in runs if run.stands}
    proof = next((one for one in incident.entries if one.kind == "verify.passed" and one.run in source), None)
    if proof is not None:
        return _from_start(
            _MTTM(ends=_named(proof, f"run {proof.run} is verified")), start, count.of(proof), proof.digest
        )
    met = _met_again(samples)
    if met is not None:
        last, first = met
        begun = None if first.seconds is None else first.seconds - first.length
        after = begun if last.seconds is None or begun is None else max(last.seconds, begun)
        at = clock_of(rfc3339(max(unix_seconds(last.at), unix_seconds(first.at) - first.length)))
        time = _MTTM(ends=f"{at}: the SLO was met again, as the samples show")
        return _from_start(time, start, Elapsed(after), first.digest)
    why = "no run is verified and in place, and the samples do not show the SLO kept again"
    return _MTTM(begins=_start_text(start), why=why)


def _met_again(samples: Sequence[SloSample]) -> tuple[SloSample, SloSample] | None:
    """The last sample over the SLO and the first within it after that, if the last of all is within it."""
    states = [(slo_state(one), one) for one in samples]
    judged = [(state, one) for state, one in states if state != SloState.UNJUDGED]
    over = [number for number, (state, _) in enumerate(judged) if state == SloState.OVER]
    if not over or over[-1] + 1 == len(judged) or states[-1][0] != SloState.WITHIN:
        return None
    return judged[over[-1]][1], judged[over[-1] + 1][1]


def _resolved(incident: Incident, start: TimelineStart, count: ElapsedTimes) -> ResponseTime:
    ended = next(iter(reversed(incident.of(events.CLOSED))), None)
    if incident.closed is None or ended is None or incident.closed.outcome is not IncidentOutcome.RESOLVED:
        why = "it is still open" if incident.closed is None else "it was a false alarm: there was nothing to resolve"
        return _MTTR(begins=_start_text(start), why=why)
    return _from_start(_MTTR(ends=_named(ended, "closed as resolved")), start, count.of(ended), ended.digest)


def _from_start(time: ResponseTime, start: TimelineStart, took: Elapsed, digest: str) -> ResponseTime:
    time = replace(time, begins=_start_text(start), begin_digest=start.digest, end_digest=digest)
    return _taking(time, took if start.clock == OWN else Elapsed(took.seconds, ClockType.WALL))  # across two clocks


def _taking(time: ResponseTime, took: Elapsed) -> ResponseTime:
    why = "" if took.seconds is not None else CLOCK_SET_BACK
    return replace(time, seconds=took.seconds, measured=took.by, why=why)


def _named(entry: JournalEntry, what: str) -> str:
    return f"{clock_of(entry.at)}: {what}"


def _start_text(start: TimelineStart) -> str:
    return f"{clock_of(start.at)}: {start.message}"


def mean(found: Iterable[ResponseTime], name: str) -> tuple[float | None, int]:
    """The mean of one of the four over many incidents, and of how many it is: those of which it is known."""
    known = [one.seconds for one in found if one.id == name and one.seconds is not None]
    return (sum(known) / len(known) if known else None), len(known)
